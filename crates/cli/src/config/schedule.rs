//! The tables `[schedule.NAME]`: recurring tasks. A node writes them to the store when it starts.

use ostler_config::{FoundValue, Section};
use ostler_core::{Missed, Overlap, Overrides, Priority, Timestamp};
use ostler_runtime::{BadScheduleSpec, PlannedSchedule, ScheduleSpec};
use ostler_store::check_schedule;
use ostler_store::schedules::TaskTemplate;
use ostler_wire::time::TimeView;

use super::name;
use super::pool::COUNTS;

/// The default time zone.
pub(crate) const UTC: &str = "UTC";
/// The keys for the recurrence; each schedule has exactly one of them.
const WHEN: [&str; 3] = ["cron", "every", "at"];

pub(super) fn read_all(section: &Section<'_>) -> Vec<PlannedSchedule> {
    section.entries().into_iter().filter_map(|(name, found)| read(name, &found)).collect()
}

fn read(name: String, found: &FoundValue<'_>) -> Option<PlannedSchedule> {
    let mut section = found.table()?;
    let times = times(&mut section);
    let overlaps = Overlap::ALL.map(|choice| (choice.name(), choice));
    let overlap = section.find("overlap").map_or(Some(Overlap::default()), |found| found.one_of(&overlaps));
    let policies = Missed::ALL.map(|choice| (choice.name(), choice));
    let missed = section.find("missed").map_or(Some(Missed::default()), |found| found.one_of(&policies));
    let task = match section.find("task") {
        Some(found) => found.table().and_then(task),
        None => {
            section.fault(
                "task",
                "is missing: the task to enqueue, such as { queue = \"shell\", kind = \"sweep\" }",
            );
            None
        }
    };
    section.close(&[]);
    let plan = PlannedSchedule { name, times: times?, overlap: overlap?, missed: missed?, task: task? };
    // Its name and its payload, whose limits the store knows.
    let checked = check_schedule(&plan.schedule(Timestamp::ZERO));
    checked.map_err(|error| found.fault(format!("{}: {error}", found.path()))).ok()?;
    Some(plan)
}

fn times(section: &mut Section<'_>) -> Option<ScheduleSpec> {
    let said = section.present(&WHEN);
    let timezone = section.find("timezone");
    let when = match said.as_slice() {
        [when] => *when,
        [] => {
            section.fault("cron", "is missing, and so are every and at; one of them is required");
            return None;
        }
        [first, second, ..] => {
            section.fault(second, format!("and {first} are both given; only one is allowed"));
            return None;
        }
    };
    if let (Some(timezone), "every" | "at") = (&timezone, when) {
        timezone.refuse::<()>("is only for cron");
    }
    let found = section.find(when)?;
    let refuse = |error: BadScheduleSpec| found.refuse::<ScheduleSpec>(format!("is invalid: {error}"));
    match when {
        "cron" => {
            let zone = timezone.map_or(Some(UTC.to_owned()), |timezone| timezone.text())?;
            ScheduleSpec::cron(&found.text()?, &zone).map_or_else(refuse, Some)
        }
        "every" => ScheduleSpec::every(found.duration()?).map_or_else(refuse, Some),
        _ => match TimeView::parse(&found.moment()?) {
            Ok(at) => Some(ScheduleSpec::at(at)),
            Err(error) => found.refuse(format!("is {}: {error}", found.shown())),
        },
    }
}

fn task(mut section: Section<'_>) -> Option<TaskTemplate> {
    let mut named = |key: &'static str| match section.find(key) {
        Some(found) => name(&found),
        None => {
            section.fault(key, "is missing; a task needs a queue and a kind");
            None
        }
    };
    let (queue, kind) = (named("queue"), named("kind"));
    let payload =
        section.find("payload").map_or(Some("null".to_owned()), |found| Some(found.json()?.to_string()));
    let points =
        section.find("priority").map_or(Some(0), |found| found.signed(Priority::MIN..=Priority::MAX));
    let overrides = Overrides {
        attempts: section.find("attempts").and_then(|found| found.count(COUNTS)),
        timeout: section.find("timeout").and_then(|found| found.duration()),
        ..Overrides::NONE
    };
    section.close(&[]);
    let priority = points.and_then(Priority::new)?;
    Some(TaskTemplate { queue: queue?, kind: kind?, payload: payload?, priority, overrides })
}
