//! Settings from JSON: limits of a queue, amendments of a task, schedules.

use ostler_core::Overrides;
use ostler_schedule::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::TaskTemplate;
use ostler_wire::input::{AmendInput, NumberOrWord, QueueSetInput, ScheduleInput};
use ostler_wire::limit_syntax::{self, NONE, Wish};
use ostler_wire::value;

use super::{BadField, field, read};
use crate::queues::QueueSet;
use crate::tasks::check_amendment;

/// The time zone of a cron line that names none.
const UTC: &str = "UTC";

/// The limits that the input asks for.
///
/// # Errors
/// A sentence with the field.
pub fn queue_set(input: QueueSetInput) -> Result<QueueSet, BadField> {
    let number = |value: Option<NumberOrWord>| value.map(|value| value.text());
    Ok(QueueSet {
        rate: wishes("rate", &input.rate, limit_syntax::rate)?,
        key_rate: wishes("key_rate", &input.key_rate, limit_syntax::rate)?,
        concurrency: wish("concurrency", number(input.concurrency), limit_syntax::count)?,
        key_concurrency: wish("key_concurrency", number(input.key_concurrency), limit_syntax::count)?,
        queue_limit: wish("queue_limit", number(input.queue_limit), limit_syntax::waiting)?,
        key: wish("key", input.key, limit_syntax::path)?,
        cost: wish("cost", input.cost, limit_syntax::path)?,
        breaker: wish("breaker", input.breaker, limit_syntax::breaker)?,
        budget: wish("budget", input.budget, ostler_core::parse_usd)?,
        budget_per_day: wish("budget_per_day", input.budget_per_day, ostler_core::parse_usd)?,
        reserve: wish("reserve", input.reserve, ostler_core::parse_usd)?,
        priority: read("priority", input.priority, value::priority_order)?,
        key_until: read("key_until", input.key_until, value::key_hold)?,
    })
}

fn wish<T>(
    name: &'static str,
    text: Option<String>,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<Wish<T>>, BadField> {
    let read = |text: String| {
        if text == NONE { Ok(Wish::Nothing) } else { field(name, &text, parse).map(Wish::Of) }
    };
    text.map(read).transpose()
}

fn wishes<T>(
    name: &'static str,
    texts: &[String],
    parse: fn(&str) -> Result<T, String>,
) -> Result<Vec<Wish<T>>, BadField> {
    texts.iter().filter_map(|text| wish(name, Some(text.clone()), parse).transpose()).collect()
}

/// The settings that the input gives; the others do not change.
///
/// # Errors
/// A sentence with the field.
pub fn amendment(input: AmendInput) -> Result<Overrides, BadField> {
    let overrides = Overrides {
        attempts: read("attempts", input.attempts, value::attempts)?,
        timeout: read("timeout", input.timeout, value::duration)?,
        backoff: read("backoff", input.backoff, value::backoff)?,
        base: read("base", input.base, value::duration)?,
        max: read("max", input.max, value::duration)?,
        ..Overrides::NONE
    };
    if overrides.is_none() {
        return Err(BadField::plain("nothing to change: give attempts, timeout, backoff, base or max"));
    }
    check_amendment(&overrides).map_err(|error| BadField::plain(error.to_string()))?;
    Ok(overrides)
}

/// The schedule of this name that the input describes.
///
/// # Errors
/// A sentence with the field.
pub fn schedule(name: &str, input: ScheduleInput) -> Result<PlannedSchedule, BadField> {
    let cron = |line: &str| ScheduleSpec::cron(line, input.timezone.as_deref().unwrap_or(UTC));
    let times = match (&input.cron, &input.every, &input.at) {
        (Some(line), None, None) => cron(line),
        (None, Some(step), None) if input.timezone.is_none() => {
            ScheduleSpec::every(field("every", step, value::duration)?)
        }
        (None, None, Some(at)) if input.timezone.is_none() => {
            Ok(ScheduleSpec::at(field("at", at, value::moment)?))
        }
        _ => return Err(BadField::plain("give one of cron, every and at; only cron has a timezone")),
    };
    let task = TaskTemplate {
        queue: field("queue", &input.queue, value::queue)?,
        kind: field("kind", &input.kind, value::kind)?,
        payload: input.payload.map_or_else(|| "null".to_owned(), |payload| payload.get().to_owned()),
        priority: read("priority", input.priority, value::priority)?.unwrap_or_default(),
        overrides: Overrides {
            attempts: read("attempts", input.attempts, value::attempts)?,
            timeout: read("timeout", input.timeout, value::duration)?,
            ..Overrides::NONE
        },
    };
    Ok(PlannedSchedule {
        name: field("name", name, |name| value::named("schedule", name))?,
        times: times.map_err(|error| BadField::plain(error.to_string()))?,
        overlap: read("overlap", input.overlap, value::overlap)?.unwrap_or_default(),
        missed: read("missed", input.missed, value::missed)?.unwrap_or_default(),
        task,
    })
}
