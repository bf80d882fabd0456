//! Jobs: progress, cost against the budget, and the approval of a pilot with its first results.

use maud::{Markup, html};
use ostler_ops::jobs as ops;
use ostler_ops::jobs::pilot::{PilotResult, PilotState};
use ostler_ops::jobs::results::JobResults;
use ostler_wire::job::{JobResultView, JobState, JobView};

use super::layout::{ANYTHING_CHANGES, PageContext, PageView, TASKS_CHANGE, segment, with_query};
use super::overview::task_address;
use super::parts::button::{ActionButton, command};
use super::parts::state::badge;
use super::parts::{counted, line, millis, share, short, time, usd};
use super::why::offer;
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

/// Jobs on the page.
const MAX_JOBS: usize = 100;
/// Results that are shown with a job.
const FIRST_RESULTS: usize = 10;

pub(crate) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Jobs, "jobs");
    let all = ops::list(call.store(), MAX_JOBS).await?;
    let main = html! {
        h1 { "Jobs" }
        @if all.is_empty() { p class="quiet" { "There is none. A job runs a command for many items: " (command("ostler map")) } }
        @else { table class="cards" {
            thead { tr { th { "State" } th { "Job" } th { "Progress" } th class="n" { "Failed" } th { "Created" } } }
            tbody data-list="" { @for job in &all {
                tr data-key=(job.id) {
                    td data-label="State" { (badge(job.state.name())) @if let Some(why) = &job.paused { " " span class="quiet" { (line(why)) } } }
                    td data-label="Job" { a href=(page.link(&format!("jobs/{}", segment(&job.id)))) { (line(&job.name)) } " " span class="quiet id" { (short(&job.id)) } }
                    td data-label="Progress" { (bar(job)) }
                    td class="n" data-label="Failed" { (job.tasks.failed) }
                    td data-label="Created" { (time::at(job.created_at)) }
                }
            } }
        } }
    };
    Ok(page.page("Jobs", TASKS_CHANGE, &main))
}

fn bar(job: &JobView) -> Markup {
    let ended = job.tasks.completed + job.tasks.failed + job.tasks.cancelled;
    html! { progress max=(job.items) value=(ended) aria-label="progress" {} " " (ended) " of " (job.items) }
}

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let (job, failed) = ops::show(call.store(), call.param("job")).await?;
    let page = PageContext::new(&call, PageView::Jobs, &format!("jobs/{}", segment(call.param("job"))));
    let record = ops::find(call.store(), &job.id).await?;
    let id = record.job.id;
    let pilot = match ops::pilot::state(call.store(), &record).await? {
        PilotState::Waiting => Some(ops::pilot::result(call.store(), id).await?),
        PilotState::None | PilotState::Running | PilotState::Approved | PilotState::Cancelled => None,
    };
    let mut results = JobResults::of(call.store(), id).await?;
    let mut first: Vec<JobResultView> = Vec::new();
    while first.len() < FIRST_RESULTS
        && let Some(result) = results.next(call.store()).await?
    {
        first.push(result.view());
    }
    let main = html! {
        h1 { (badge(job.state.name())) " " (line(&job.name)) " " span class="id" { (job.id) } }
        @if let Some(why) = job.paused.as_ref().filter(|_| pilot.is_none()) { p class="answer" { "It is paused: " (line(why)) "." } }
        p { (bar(&job)) ", " (job.tasks.running + job.tasks.claimed) " running, " (job.tasks.failed) " failed" }
        @if let Some(pilot) = &pilot { (piloted(&page, &job, pilot)) }
        (actions(&page, &job))
        (facts(&page, &job))
        @if !failed.is_empty() { section id="failed" { h2 { "Failed items" } ul class="plain" { @for item in &failed { li { strong { (line(&item.item)) } ": " span class="bad" { (line(&item.error)) } } } } } }
        section id="results" {
            h2 { "First results" }
            div class="scroll" { table {
                thead { tr { th class="n" { "#" } th { "Item" } th { "State" } th { "Output" } th class="n" { "Took" } th class="n" { "Cost" } } }
                tbody { @for result in &first {
                    tr data-key=(result.task) {
                        td class="n" { (result.number) }
                        td { a href=(page.link(&task_address(&result.task))) { (line(ostler_core::beginning(&result.item, 80))) } }
                        td { (badge(result.state)) }
                        td { @if let Some(output) = result.output.as_ref().or(result.error.as_ref()) { pre { (ostler_core::visible_lines(ostler_core::beginning(output, 600))) } } }
                        td class="n" { @if let Some(took) = result.duration_ms { (millis(took)) } }
                        td class="n" { @if let Some(cost) = result.cost_usd { (usd(cost)) } }
                    }
                } }
            } }
        }
    };
    Ok(page.page(&line(&job.name), ANYTHING_CHANGES, &main))
}

/// What the pilot has shown, and the decision about the other items.
fn piloted(page: &PageContext, job: &JobView, pilot: &PilotResult) -> Markup {
    let decide = |operation: &str, label: &str| {
        offer(page, &ActionButton::new(operation, label, &[("p:job", &job.id)]))
    };
    html! {
        section id="pilot" class="answer" {
            p {
                "The pilot of " (counted(pilot.items, "item")) " has ended: " (pilot.failed) " failed"
                @if let Some(cost) = pilot.cost { ", at a cost of " (usd(cost.usd())) } ". "
                (counted(pilot.rest, "more item")) @if pilot.rest == 1 { " waits" } @else { " wait" } " for your decision; the first results are below."
                @if let Some(cost) = pilot.cost_of_rest() { " If they are alike, they will cost about " (usd(cost.usd())) "." }
            }
            (decide("jobs.approve", "Approve the pilot"))
            (decide("jobs.reject", "Reject"))
        }
    }
}

fn actions(page: &PageContext, job: &JobView) -> Markup {
    let one = |operation: &str, label: &str| ActionButton::new(operation, label, &[("p:job", &job.id)]);
    let mut all = Vec::new();
    match job.state {
        // Its pilot decides.
        JobState::Paused if job.paused.as_deref() == Some(ops::pilot::PAUSED) => {
            all.push(one("jobs.cancel", "Cancel"));
        }
        JobState::Running | JobState::Unfinished => {
            all.push(one("jobs.pause", "Pause"));
            all.push(one("jobs.cancel", "Cancel"));
        }
        JobState::Paused => {
            all.push(one("jobs.resume", "Resume"));
            all.push(one("jobs.cancel", "Cancel"));
        }
        JobState::Completed | JobState::Failed | JobState::Cancelled => {
            all.push(one("jobs.remove", "Remove"));
        }
    }
    if job.tasks.failed > 0 {
        all.push(one("jobs.retry_failed", "Retry the failed"));
    }
    html! { section id="actions" class="actions" { @for button in &all { (button.show(page)) } } }
}

fn facts(page: &PageContext, job: &JobView) -> Markup {
    html! {
        dl id="facts" class="facts" {
            dt { "Created" } dd { (time::at(job.created_at)) }
            @if let Some(took) = job.duration_ms { dt { "Took" } dd { (millis(took)) } }
            @if let Some(cost) = job.cost_usd { dt { "Cost" } dd { (usd(cost)) } }
            @if let Some(budget) = &job.budget { dt { "Budget" } dd { @if let Some(total) = budget.total_usd { (share(budget.spent_usd, total, "spent")) " " (usd(budget.spent_usd)) " of " (usd(total)) } @else { (usd(budget.spent_usd)) } ", " (usd(budget.reserved_usd)) " reserved" } }
            @if let Some(pilot) = job.pilot { dt { "Pilot" } dd { (counted(pilot, "item")) @if pilot == 1 { " runs" } @else { " run" } " before the others are approved" } }
            @if !job.command.is_empty() { dt { "Command" } dd { code { (line(&job.command.join(" "))) } } }
            dt { "Items" } dd { a href=(page.link(&with_query("tasks", &[("queue", &job.queue)]))) { "as tasks" } }
            dt { "Results" } dd { a download href=(page.link(&format!("api/v1/jobs/{}/results", segment(&job.id)))) { "JSON lines" } " " (command(&format!("ostler job export {} --jsonl", job.id))) }
        }
    }
}
