//! Schedules, for people.

use std::fmt::Write as _;
use std::time::Duration;

use ostler_core::Timestamp;
use ostler_wire::schedule::{RecurrenceView, ScheduleDetail, ScheduleView};
use ostler_wire::time::TimeView;

use super::Looks;
use super::table::{Cell, Paint, Table};
use super::visible;
use super::when;
use crate::config::duration;

pub(crate) fn schedules(views: &[ScheduleView], now: Timestamp, looks: Looks) -> String {
    if views.is_empty() {
        return "no schedules yet; \"ostler schedule add\" creates one\n".to_owned();
    }
    let mut table = Table::new(&["NAME", "WHEN", "QUEUE", "KIND", "STATE", "NEXT", "LAST"]);
    for view in views {
        let paint = if view.state == "active" { Paint::Good } else { Paint::Faint };
        let from_now =
            |moment: Option<TimeView>| moment.map_or("-".to_owned(), |at| when::from(now, at.timestamp()));
        table.row(vec![
            view.name.as_str().into(),
            shown_times(&view.when, looks).into(),
            view.task.queue.as_str().into(),
            view.task.kind.as_str().into(),
            Cell::painted(view.state, paint),
            from_now(view.next_at).into(),
            from_now(view.last_at).into(),
        ]);
    }
    table.render(looks)
}

/// The recurrence as users write it.
fn shown_times(recurrence: &RecurrenceView, looks: Looks) -> String {
    match (&recurrence.cron, recurrence.every_ms, recurrence.at) {
        (Some(line), _, _) => format!("{line} {}", recurrence.timezone.as_deref().unwrap_or_default()),
        (None, Some(step), _) => {
            format!("every {}", duration::show(Duration::from_millis(step.unsigned_abs())))
        }
        (None, None, Some(moment)) => format!("at {}", when::moment(moment, looks)),
        // Another version may have written it.
        (None, None, None) => "-".to_owned(),
    }
}

pub(crate) fn schedule(detail: &ScheduleDetail, now: Timestamp, looks: Looks) -> String {
    let (schedule, upcoming) = (&detail.schedule, &detail.upcoming);
    let at = |moment: TimeView| {
        format!("{} ({})", when::moment(moment, looks), when::from(now, moment.timestamp()))
    };
    let task = &schedule.task;
    let mut lines: Vec<(&str, Option<String>)> = vec![
        ("name", Some(schedule.name.clone())),
        ("state", Some(schedule.state.to_owned())),
        ("when", Some(shown_times(&schedule.when, looks))),
        ("overlap", Some(schedule.overlap.to_owned())),
        ("missed", Some(schedule.missed.to_owned())),
    ];
    let names = std::iter::once("next").chain(std::iter::repeat("then"));
    lines.extend(names.zip(upcoming).map(|(name, moment)| (name, Some(at(*moment)))));
    let timeout = task.timeout_ms.map(|timeout| Duration::from_millis(timeout.unsigned_abs()));
    lines.extend([
        ("last", schedule.last_at.map(at)),
        ("last task", schedule.last_task.clone()),
        ("queue", Some(task.queue.clone())),
        ("kind", Some(task.kind.clone())),
        ("priority", Some(task.priority.to_string())),
        ("attempts", task.attempts.map(|attempts| attempts.to_string())),
        ("timeout", timeout.map(when::long)),
        ("payload", Some(task.payload.as_str().to_owned())),
    ]);
    let mut text = String::new();
    for (name, value) in lines.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let _ = writeln!(text, "{name:<13} {}", visible(&value));
    }
    text
}
