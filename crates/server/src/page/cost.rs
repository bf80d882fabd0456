//! What was spent on models, by day, queue, job, model or account.

use maud::html;
use ostler_ops::cost::{CostDimension, CostRequest, report};

use super::layout::{PageContext, PageView, TASKS_CHANGE, with_query};
use super::overview::task_address;
use super::parts::button::command;
use super::parts::{line, share, usd};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Cost, "cost");
    let asked = form_urlencoded::parse(call.query.as_bytes()).find(|(name, _)| name == "by");
    let asked = asked.map_or_else(|| "day".to_owned(), |(_, by)| by.into_owned());
    let by = CostDimension::ALL.into_iter().find(|by| by.name() == asked).unwrap_or(CostDimension::Day);
    let request = CostRequest { by, since: None, until: None, queue: None };
    let found = report(call.store(), &request).await?;
    let most = found.costs.iter().map(|cost| cost.cost_usd).fold(0.0, f64::max);
    let main = html! {
        h1 { "Cost" }
        p class="big" { (usd(found.total.cost_usd)) @if found.total.estimated_usd > 0.0 { span class="quiet" { " of which " (usd(found.total.estimated_usd)) " is estimated" } } }
        p class="choices" { "By " @for one in CostDimension::ALL { a href=(with_query("cost", &[("by", one.name())])) aria-current=[(one == by).then_some("true")] { (one.name()) } " " } }
        table class="cards" {
            thead { tr { th { (by.name()) } th { span class="hidden" { "Share" } } th class="n" { "Cost" } th class="n" { "Runs" } th class="n" { "Input" } th class="n" { "Output" } th class="n" { "Cache read" } th class="n" { "Cache write" } } }
            tbody { @for cost in &found.costs {
                @let name = cost.key.clone().unwrap_or_else(|| "not named".to_owned());
                tr data-key=(format!("{name}-{}", cost.attempt.unwrap_or(0))) {
                    td data-label=(by.name()) { @match by {
                        CostDimension::Task | CostDimension::Attempt => { a href=(page.link(&task_address(&name))) { (name) } @if let Some(attempt) = cost.attempt { " attempt " (attempt) } },
                        CostDimension::Job | CostDimension::Queue | CostDimension::Pool | CostDimension::Account | CostDimension::Model | CostDimension::Day => (line(&name)),
                    } }
                    td { (share(cost.cost_usd, most, "share of the largest")) }
                    td class="n" data-label="Cost" { (usd(cost.cost_usd)) }
                    td class="n" data-label="Runs" { (cost.runs) }
                    td class="n" data-label="Input" { (cost.input_tokens) }
                    td class="n" data-label="Output" { (cost.output_tokens) }
                    td class="n" data-label="Cache read" { (cost.cache_read_tokens) }
                    td class="n" data-label="Cache write" { (cost.cache_write_tokens) }
                }
            } }
        }
        @if found.costs.is_empty() { p class="quiet" { "Nothing was spent yet." } }
        p class="quiet" { "The same in a terminal: " (command(&format!("ostler cost --by {}", by.name()))) }
    };
    Ok(page.page("Cost", TASKS_CHANGE, &main))
}
