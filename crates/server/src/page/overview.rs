//! The overview: what is wrong, and what mends it; queues, breakers, limits, accounts and budgets.

use std::collections::BTreeMap;

use maud::{Markup, html};
use ostler_core::Timestamp;
use ostler_ops::accounts;
use ostler_ops::overview::{self, JobQueues, Overview};
use ostler_store::views::Survey;
use ostler_wire::account::AccountView;
use ostler_wire::limits::{BreakerView, QueueView, ThrottleView};
use ostler_wire::system::{FindingView, Severity, StatsView};

use super::layout::{PageContext, PageView, TASKS_CHANGE, segment, with_query};
use super::mend;
use super::parts::button::{ActionButton, field, fold, menu};
use super::parts::state::badge;
use super::parts::{line, millis, seconds, share, time, usd};
use super::pulse::{OldestWait, QueuePulse, WINDOW};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Overview, "");
    let seen = Overview::take(call.store()).await?;
    let state = &call.app.page;
    let findings = state.pulse.findings(call.app.examiner.as_ref(), page.now).await;
    let (pulses, since) = state.pulse.feel(call.store(), &seen.survey, page.now).await;
    let accounts = accounts::list(call.store()).await?;
    let breakers = overview::breakers(call.store()).await?;
    let (stats, queues) = (seen.stats(None), seen.queues(JobQueues::Hidden));
    let main = html! {
        h1 { "Overview" }
        (doctor(&page, &findings))
        (counts(&page, &stats))
        (queue_table(&page, &seen, &queues, &pulses, since))
        (throttles(&page, &seen.survey, &stats.held))
        (breaker_table(&page, &breakers))
        (account_table(&page, &accounts))
        (budgets(&queues))
    };
    Ok(page.page("Overview", TASKS_CHANGE, &main))
}

fn doctor(page: &PageContext, findings: &[FindingView]) -> Markup {
    let wrong = findings.iter().filter(|finding| finding.severity != Severity::Info).count();
    html! {
        section id="doctor" aria-label="What is wrong" {
            @if wrong == 0 { p class="fine" { span aria-hidden="true" { "✓ " } "Nothing is wrong." } }
            ul class="findings" {
                @for finding in findings {
                    li class={ "finding f-" (finding.severity.name()) } data-key=(format!("{}-{}", finding.code, finding.sentence)) {
                        p { strong { (finding.severity.name()) } " " (line(&finding.sentence)) }
                        p class="advice" { (line(&finding.advice)) }
                        @for button in mend::buttons(&finding.advice) { (button.show(page)) }
                    }
                }
            }
        }
    }
}

fn counts(page: &PageContext, stats: &StatsView) -> Markup {
    let all = [
        ("queued", stats.tasks.queued),
        ("running", stats.tasks.running + stats.tasks.claimed),
        ("completed", stats.tasks.completed),
        ("failed", stats.tasks.failed),
        ("cancelled", stats.tasks.cancelled),
    ];
    html! {
        section id="counts" aria-label="Tasks by state" {
            ul class="tiles" {
                @for (state, count) in all {
                    li { a href=(page.link(&with_query("tasks", &[("state", state)]))) { strong { (count) } (badge(state)) } }
                }
                li { a href=(page.link("nodes")) { strong { (stats.workers.busy) " / " (stats.workers.total) } span class="state" { "workers busy" } } }
            }
        }
    }
}

fn queue_table(
    page: &PageContext,
    seen: &Overview,
    queues: &[QueueView],
    pulses: &BTreeMap<String, QueuePulse>,
    since: Option<Timestamp>,
) -> Markup {
    html! {
        section id="queues" {
            h2 { "Queues" }
            @if queues.is_empty() { p class="quiet" { "There is no queue yet. To submit a task: " code class="cmd" { "ostler submit QUEUE KIND" } } }
            @else {
                table class="cards" {
                    thead { tr { th { "Queue" } th class="n" { "Waiting" } th class="n" { "Running" } th class="n" { "Ended / min" } th class="n" { "Oldest waits" } th class="n" { "p50" } th class="n" { "p99" } th class="n" { "Failed" } th { "State" } th { span class="hidden" { "Actions" } } } }
                    tbody {
                        @for queue in queues {
                            @let runs = seen.stats(Some(&queue.queue)).all_kinds;
                            @let pulse = pulses.get(&queue.queue).cloned().unwrap_or_default();
                            tr data-key=(queue.queue) {
                                td data-label="Queue" { a href=(page.link(&with_query("tasks", &[("queue", &queue.queue)]))) { (line(&queue.queue)) } }
                                td class="n" data-label="Waiting" { (queue.tasks.queued) @if let Some(limit) = queue.queue_limit { span class="quiet" { " of " (limit) } } }
                                td class="n" data-label="Running" { (queue.tasks.running + queue.tasks.claimed) @if let Some(limit) = queue.concurrency { span class="quiet" { " of " (limit) } } }
                                td class="n" data-label="Ended / min" { @match pulse.per_minute { Some(rate) => (format!("{rate:.1} ")), None => span class="quiet" title="It is counted while a page is open" { "…" } } (spark(page.now, &pulse)) }
                                td class="n" data-label="Oldest waits" { (oldest(page.now, pulse.oldest)) }
                                td class="n" data-label="p50" { @if runs.count > 0 { (millis(runs.p50_ms.into())) } @else { span class="quiet" { "–" } } }
                                td class="n" data-label="p99" { @if runs.count > 0 { (millis(runs.p99_ms.into())) } @else { span class="quiet" { "–" } } }
                                td class="n" data-label="Failed" { @if queue.tasks.failed > 0 { a class="bad" href=(page.link(&with_query("dead", &[("queue", &queue.queue)]))) { (queue.tasks.failed) } } @else { "0" } @if pulse.failed > 0 { span class="bad" title="Since the rates are counted" { " +" (pulse.failed) } } }
                                td data-label="State" { (queue_state(queue)) }
                                td { (menu(page, &queue.queue, &queue_actions(&seen.survey, queue))) (limits(page, &queue.queue)) }
                            }
                        }
                    }
                }
                @if let Some(since) = since { p class="quiet" { "Rates are counted since " (time::clock(since)) ", while a page is open." } }
            }
        }
    }
}

/// How long the oldest task of a queue has waited.
fn oldest(now: Timestamp, waits: Option<OldestWait>) -> Markup {
    let age = |at| seconds(now.since(at).as_secs());
    html! {
        @match waits {
            None => span class="quiet" { "–" },
            Some(OldestWait::Since(at)) => (age(at)),
            Some(OldestWait::About(at)) => span title="By what came and what left, if tasks are taken in their order" { "≈ " (age(at)) },
            Some(OldestWait::Before(at)) => span title="It came before the queue was watched" { "> " (age(at)) },
        }
    }
}

/// The rates of a queue as a line, with its figures as a label. The right edge is now.
fn spark(now: Timestamp, pulse: &QueuePulse) -> Markup {
    const WIDTH: f64 = 100.0;
    const HEIGHT: f64 = 20.0;
    let most = pulse.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let Some((first, last)) = pulse.rates.first().zip(pulse.rates.last()).filter(|_| pulse.rates.len() > 1)
    else {
        return html! {};
    };
    let point = |(at, rate): &(Timestamp, f64)| {
        let x = WIDTH * (1.0 - now.since(*at).as_secs_f64() / WINDOW.as_secs_f64()).max(0.0);
        let y = HEIGHT - 1.0 - rate / most.max(1.0) * (HEIGHT - 2.0);
        format!("{x:.1},{y:.1}")
    };
    let points: Vec<String> = pulse.rates.iter().map(point).collect();
    let label = format!(
        "Ended per minute in the last {}: {:.0} at first, {most:.0} at most, {:.0} now",
        seconds(now.since(first.0).as_secs()),
        first.1,
        last.1
    );
    html! {
        svg class="spark" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
            polyline points=(points.join(" ")) {}
        }
    }
}

fn queue_state(queue: &QueueView) -> Markup {
    html! {
        @if let Some(reason) = &queue.paused { (badge("paused")) " " span class="quiet" { (line(reason)) } }
        @else if let Some(held) = &queue.held { (badge(held.waits_for)) @if let Some(until) = held.until { " until " (time::at(until)) } }
        @else { (badge("active")) }
    }
}

fn queue_actions(survey: &Survey, queue: &QueueView) -> Vec<ActionButton> {
    let name = queue.queue.as_str();
    let mut all = vec![if queue.paused.is_some() {
        ActionButton::new("queues.resume", "Resume", &[("p:queue", name)])
    } else {
        ActionButton::new("queues.pause", "Pause", &[("p:queue", name)])
    }];
    if queue.breaker.is_some() || queue.breaker_state.is_some() {
        all.push(ActionButton::new("breakers.open", "Open the breaker", &[("p:queue", name)]));
        all.push(ActionButton::new("breakers.reset", "Reset the breaker", &[("p:queue", name)]));
    }
    if queue.held.as_ref().is_some_and(|held| is_hold(survey, held)) {
        all.push(ActionButton::new("queues.release", "End the hold", &[("p:queue", name)]));
    }
    all
}

/// Limits to set. What is left empty stays.
fn limits(page: &PageContext, queue: &str) -> Markup {
    let set = ActionButton::new("queues.set", "Set", &[("p:queue", queue)]);
    let inputs =
        html! { (field("n:concurrency", "running at once", "8")) (field("s:budget", "budget", "$5")) };
    fold(page, &format!("limits-{queue}"), "Limits", &set, &inputs)
}

fn throttles(page: &PageContext, survey: &Survey, held: &[ThrottleView]) -> Markup {
    html! {
        @if !held.is_empty() {
            section id="throttles" {
                h2 { "Limits that hold work back" }
                table class="cards" {
                    thead { tr { th { "Queue" } th { "Limit key" } th { "Waits for" } th { "Until" } th { span class="hidden" { "Actions" } } } }
                    tbody {
                        @for one in held {
                            @let key = one.key.as_deref().unwrap_or_default();
                            tr data-key=(format!("{}\u{1f}{key}\u{1f}{}", one.queue, one.waits_for)) {
                                td data-label="Queue" { (line(&one.queue)) }
                                td data-label="Limit key" { @if one.key.is_some() { (line(key)) } @else { span class="quiet" { "all" } } }
                                td data-label="Waits for" { (badge(one.waits_for)) }
                                td data-label="Until" { @match one.until { Some(until) => (time::at(until)), None => span class="quiet" { "ended by hand, or when work ends" } } }
                                td { (menu(page, &format!("held-{}-{key}", one.queue), &release(survey, one))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What ends a throttle. A rate that is reached has no hold to end.
fn release(survey: &Survey, held: &ThrottleView) -> Vec<ActionButton> {
    let mut fields = vec![("p:queue", held.queue.as_str())];
    fields.extend(held.key.as_deref().map(|key| ("s:key", key)));
    match held.waits_for {
        "paused" => vec![ActionButton::new("queues.resume", "Resume the queue", &fields[..1])],
        "breaker_open" => vec![ActionButton::new("breakers.reset", "Reset the breaker", &fields)],
        "rate_limited" if is_hold(survey, held) => {
            vec![ActionButton::new("queues.release", "End the hold", &fields)]
        }
        _ => Vec::new(),
    }
}

/// Whether a "too many requests" answer has placed it.
fn is_hold(survey: &Survey, held: &ThrottleView) -> bool {
    match &held.key {
        None => survey.queues.iter().any(|queue| queue.name == held.queue && queue.held_until.is_some()),
        Some(key) => {
            let mut keys = survey.keys.iter().filter(|known| known.queue == held.queue && known.key == *key);
            keys.any(|known| known.held_until.is_some())
        }
    }
}

fn breaker_table(page: &PageContext, breakers: &[BreakerView]) -> Markup {
    html! {
        @if !breakers.is_empty() {
            section id="breakers" {
                h2 { "Breakers" }
                table class="cards" {
                    thead { tr { th { "Of" } th { "State" } th { "Until" } th { "Opens after" } th { span class="hidden" { "Actions" } } } }
                    tbody {
                        @for breaker in breakers {
                            @let queue = breaker.queue.as_deref().unwrap_or_default();
                            @let key = breaker.key.as_deref().unwrap_or_default();
                            @let call = breaker.call.as_deref().unwrap_or_default();
                            tr data-key=(format!("{queue}\u{1f}{key}\u{1f}{call}")) {
                                td data-label="Of" { @if call.is_empty() { (line(queue)) @if !key.is_empty() { " · " (line(key)) } } @else { "call " (line(call)) } }
                                td data-label="State" { @match breaker.state { Some(state) => (badge(state)), None => span class="quiet" { "one for each key" } } }
                                td data-label="Until" { (time::maybe(breaker.until)) }
                                td data-label="Opens after" { @match breaker.breaker { Some(rule) => @if let Some(failures) = rule.failures { (failures) " failures in a row" } @else { ((rule.share.unwrap_or(0.0) * 100.0).round()) " % failures" } , None => span class="quiet" { "by hand" } } }
                                td {
                                    @if !queue.is_empty() && breaker.state.is_some_and(|state| state != "closed") {
                                        @let fields = if key.is_empty() { vec![("p:queue", queue)] } else { vec![("p:queue", queue), ("s:key", key)] };
                                        (menu(page, &format!("breaker-{queue}-{key}"), &[ActionButton::new("breakers.reset", "Reset", &fields)]))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn account_table(page: &PageContext, accounts: &[AccountView]) -> Markup {
    html! {
        @if !accounts.is_empty() {
            section id="accounts" {
                h2 { "Accounts" }
                table class="cards" {
                    thead { tr { th { "Account" } th { "Queues" } th class="n" { "Running" } th { "Used" } th { "Resets" } th { "State" } th { span class="hidden" { "Actions" } } } }
                    tbody {
                        @for account in accounts {
                            tr data-key=(account.account) {
                                td data-label="Account" { (line(&account.account)) }
                                td data-label="Queues" { (line(&account.queues.join(", "))) }
                                td class="n" data-label="Running" { (account.running) @if let Some(most) = account.most { span class="quiet" { " of " (most) } } }
                                td data-label="Used" { @if let Some(usage) = &account.usage { (share(usage.used, 1.0, "allowance used")) " " (format!("{:.0} %", usage.used * 100.0)) @if usage.near_limit { " " (badge("near_limit")) } } @else { span class="quiet" { "–" } } }
                                td data-label="Resets" { (time::maybe(account.usage.as_ref().and_then(|usage| usage.resets_at))) }
                                td data-label="State" { @match &account.held { Some(held) => { (badge("paused")) " " (line(&held.reason)) @if let Some(until) = held.until { " until " (time::at(until)) } }, None => (badge("active")) } }
                                td { (menu(page, &format!("account-{}", account.account), &[
                                    if account.held.is_some() { ActionButton::new("accounts.release", "Release", &[("p:account", &account.account)]) }
                                    else { ActionButton::new("accounts.hold", "Hold", &[("p:account", &account.account)]) },
                                ])) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn budgets(queues: &[QueueView]) -> Markup {
    let with = queues.iter().filter_map(|queue| Some((queue, queue.budget?)));
    html! {
        @if queues.iter().any(|queue| queue.budget.is_some()) {
            section id="budgets" {
                h2 { "Budgets" }
                table class="cards" {
                    thead { tr { th { "Queue" } th { "Spent" } th class="n" { "Of" } th class="n" { "Today" } th class="n" { "Reserved" } } }
                    tbody {
                        @for (queue, budget) in with {
                            tr data-key=(queue.queue) {
                                td data-label="Queue" { (line(&queue.queue)) }
                                td data-label="Spent" { @if let Some(total) = budget.total_usd { (share(budget.spent_usd, total, "spent")) " " } (usd(budget.spent_usd)) }
                                td class="n" data-label="Of" { @match budget.total_usd { Some(total) => (usd(total)), None => span class="quiet" { "–" } } }
                                td class="n" data-label="Today" { (usd(budget.spent_today_usd)) @if let Some(day) = budget.per_day_usd { span class="quiet" { " of " (usd(day)) } } }
                                td class="n" data-label="Reserved" { (usd(budget.reserved_usd)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The address of a task.
pub(super) fn task_address(id: &str) -> String {
    format!("tasks/{}", segment(id))
}
