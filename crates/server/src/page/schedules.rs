//! Schedules: when they run, what they enqueue, and their last run.

use maud::{Markup, html};
use ostler_wire::schedule::{RecurrenceView, ScheduleView};

use super::layout::{PageContext, PageView, TASKS_CHANGE};
use super::overview::task_address;
use super::parts::button::{ActionButton, command, field, fold, menu};
use super::parts::state::badge;
use super::parts::{line, millis, short, time};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Schedules, "schedules");
    let all: Vec<ScheduleView> = call.store().schedules().await?.iter().map(ScheduleView::from).collect();
    let main = html! {
        h1 { "Schedules" }
        @if all.is_empty() { p class="quiet" { "There is none. To add one: " (command("ostler schedule add NAME")) } }
        @else { table class="cards" {
            thead { tr { th { "State" } th { "Schedule" } th { "When" } th { "Next run" } th { "Last run" } th { "Enqueues" } th { span class="hidden" { "Actions" } } } }
            tbody { @for one in &all {
                tr data-key=(one.name) {
                    td data-label="State" { (badge(one.state)) }
                    td data-label="Schedule" { (line(&one.name)) }
                    td data-label="When" { (when(&one.when)) }
                    td data-label="Next run" { (time::maybe(one.next_at)) }
                    td data-label="Last run" { (time::maybe(one.last_at)) @if let Some(task) = &one.last_task { " " a class="id" href=(page.link(&task_address(task))) { (short(task)) } } }
                    td data-label="Enqueues" { (line(&one.task.kind)) " in " (line(&one.task.queue)) span class="quiet" { " if the last still runs: " (one.overlap) ", missed: " (one.missed) } }
                    td { (menu(&page, &one.name, &[
                        if one.state == "paused" { ActionButton::new("schedules.resume", "Resume", &[("p:name", &one.name)]) } else { ActionButton::new("schedules.pause", "Pause", &[("p:name", &one.name)]) },
                        ActionButton::new("schedules.remove", "Remove", &[("p:name", &one.name)]),
                    ])) }
                }
            } }
        } }
        (added(&page))
    };
    Ok(page.page("Schedules", TASKS_CHANGE, &main))
}

/// A form for a new schedule, or in the place of the one with its name.
fn added(page: &PageContext) -> Markup {
    let inputs = html! {
        (field("p:name", "name", "nightly")) (field("s:queue", "queue", "reports")) (field("s:kind", "kind", "report"))
        (field("s:cron", "cron", "0 3 * * *")) (field("s:timezone", "in the zone", "UTC")) (field("s:every", "or every", "10m"))
        label for="payload" { "Payload, as JSON" } textarea id="payload" name="j:payload" rows="3" spellcheck="false" { "\n{}" }
    };
    fold(page, "new", "New schedule", &ActionButton::new("schedules.put", "Add", &[]), &inputs)
}

fn when(when: &RecurrenceView) -> Markup {
    html! {
        @if let Some(cron) = &when.cron { code { (line(cron)) } @if let Some(zone) = &when.timezone { " " (line(zone)) } }
        @else if let Some(every) = when.every_ms { "every " (millis(every.unsigned_abs())) }
        @else if let Some(at) = when.at { "once, at " (time::at(at)) }
        @else { span class="quiet" { "written by another version" } }
    }
}
