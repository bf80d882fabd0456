//! Rules about schedules: late, unserved, or unreadable ones.

use std::time::Duration;

use ostler_core::Timestamp;
use ostler_schedule::ScheduleSpec;
use ostler_store::schedules::{Activity, ScheduleRecord};
use ostler_store::views::Liveness;

use super::{Finding, about, names, queues, word};
use crate::doctor::facts::StoreFacts;

/// A run that is later than this was not just missed by a little: no node fires schedules.
const LATE: Duration = Duration::from_secs(300);

/// The maximum number of schedules reported one by one.
const MAX_TOLD: usize = 20;

pub(super) fn findings(seen: &StoreFacts, now: Timestamp) -> Vec<Finding> {
    let active = || {
        let runs = |record: &&ScheduleRecord| {
            record.activity == Activity::Active && record.schedule.next_at.is_some()
        };
        seen.schedules.iter().filter(runs)
    };
    let (readable, strange): (Vec<&ScheduleRecord>, Vec<&ScheduleRecord>) =
        active().partition(|record| ScheduleSpec::parse(&record.schedule.spec).is_ok());
    let mut found = Vec::new();
    found.extend(unreadable(&strange));
    found.extend(late(seen, &readable, now));
    found.extend(unserved(seen, &readable, now));
    found
}

fn named(records: &[&ScheduleRecord]) -> String {
    names(records.iter().map(|record| record.schedule.name.as_str()))
}

fn first(records: &[&ScheduleRecord]) -> String {
    records.first().map(|record| word(&record.schedule.name)).unwrap_or_default()
}

fn unreadable(strange: &[&ScheduleRecord]) -> Option<Finding> {
    if strange.is_empty() {
        return None;
    }
    let sentence = format!(
        "This version cannot read the recurrence of these schedules, and does not run them: {}",
        named(strange)
    );
    let advice = format!(
        "If a newer version created them, start its nodes. Otherwise remove and add them again: ostler schedule rm {}",
        first(strange)
    );
    Some(Finding::error("schedule-unreadable", sentence, advice))
}

fn late(seen: &StoreFacts, active: &[&ScheduleRecord], now: Timestamp) -> Option<Finding> {
    let since = |record: &ScheduleRecord| record.schedule.next_at.map(|next| now.since(next));
    let late: Vec<&ScheduleRecord> =
        active.iter().copied().filter(|record| since(record).is_some_and(|late| late > LATE)).collect();
    let longest = late.iter().filter_map(|record| since(record)).max()?;
    let is_up = seen.survey.nodes.iter().any(|node| node.liveness == Liveness::Alive);
    let (who, advice) = if is_up {
        (
            "although a node is up",
            "Restart the node: ostler drain NODE, then ostler up. Does its clock show the right time?"
                .to_owned(),
        )
    } else {
        (
            "and no node is up",
            format!("Start one: ostler up. To remove one: ostler schedule rm {}", first(&late)),
        )
    };
    let sentence =
        format!("These schedules should have run up to {} ago, {who}: {}", about(longest), named(&late));
    Some(Finding::error("schedule-late", sentence, advice))
}

/// Schedules that enqueue tasks for a queue that no node serves. A kind without a handler shows in its waiting tasks.
fn unserved(seen: &StoreFacts, active: &[&ScheduleRecord], now: Timestamp) -> Vec<Finding> {
    let Some(served) = queues::served(seen, now) else { return Vec::new() };
    let lacks = |record: &&&ScheduleRecord| !served.contains(record.schedule.task.queue.as_str());
    let found = active.iter().filter(lacks).take(MAX_TOLD).map(|record| {
        let (name, queue) = (&record.schedule.name, &record.schedule.task.queue);
        let sentence =
            format!("Schedule \"{name}\" enqueues tasks in queue \"{queue}\", which no running node serves");
        let advice = format!(
            "Start a node with a pool for it, [pool.{}], or remove it: ostler schedule rm {}",
            word(queue),
            word(name)
        );
        Finding::warning("schedule-unserved", sentence, advice)
    });
    found.collect()
}
