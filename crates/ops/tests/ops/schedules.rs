//! Schedules: put, paused, resumed, removed, and their next runs.

use std::time::Duration;

use ostler_core::{Missed, Overlap, Overrides, Priority};
use ostler_ops::schedules::{check, detail, find, put, remove, set, upcoming};
use ostler_ops::{Missing, OpsError, Refusal};
use ostler_schedule::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{Activity, ScheduleRecord, TaskTemplate};
use ostler_store::{Clock as _, MAX_SCHEDULES, Store as _};
use ostler_wire::schedule::ScheduleResult;

use crate::world::{QUEUE, World};

const HOUR: Duration = Duration::from_secs(3_600);

fn hourly(name: &str) -> PlannedSchedule {
    let task = TaskTemplate {
        queue: QUEUE.to_owned(),
        kind: "sweep".to_owned(),
        payload: "null".to_owned(),
        priority: Priority::NORMAL,
        overrides: Overrides::NONE,
    };
    let times = ScheduleSpec::every(HOUR).expect("an interval");
    PlannedSchedule { name: name.to_owned(), times, overlap: Overlap::Skip, missed: Missed::One, task }
}

#[tokio::test]
async fn a_schedule_is_created_then_replaced_and_keeps_its_pause() {
    let world = World::new();
    let plan = hourly("sweep");
    let (created, record) = put(world.store(), &plan).await.expect("it is put");
    let next = world.clock.now().after(HOUR);
    assert_eq!((created.result, record.next_run()), (ScheduleResult::Created, Some(next)));
    let paused = set(world.store(), "sweep", Activity::Paused).await.expect("it is paused");
    assert_eq!((paused.result, paused.next_at), (ScheduleResult::Paused, None));
    let (replaced, record) = put(world.store(), &plan).await.expect("it is put");
    assert_eq!((replaced.result, replaced.next_at), (ScheduleResult::Replaced, None));
    assert_eq!(record.activity, Activity::Paused);
    let resumed = set(world.store(), "sweep", Activity::Active).await.expect("it is resumed");
    assert_eq!(resumed.next_at.map(|at| at.timestamp()), Some(next));
}

#[tokio::test]
async fn the_next_runs_are_counted_from_the_first_and_an_unreadable_recurrence_has_none() {
    let world = World::new();
    let (_, record) = put(world.store(), &hourly("sweep")).await.expect("it is put");
    let now = world.clock.now();
    assert_eq!(upcoming(&record), [1, 2, 3, 4, 5].map(|hours| now.after(hours * HOUR)));
    let view = detail(&record);
    assert_eq!((view.schedule.when.every_ms, view.schedule.state), (Some(3_600_000), "active"));
    let mut strange = ScheduleRecord { activity: Activity::Active, ..record };
    strange.schedule.spec = "moon full".to_owned();
    assert_eq!(upcoming(&strange), []);
    assert_eq!(detail(&strange).schedule.when.every_ms, None);
}

#[tokio::test]
async fn a_schedule_that_is_not_there_and_one_too_many_are_refused() {
    let world = World::new();
    let missing = || OpsError::from(Missing::Schedule("sweep".to_owned()));
    assert_eq!(find(world.store(), "sweep").await, Err(missing()));
    assert_eq!(remove(world.store(), "sweep").await.map(|view| view.schedule), Err(missing()));
    let paused = set(world.store(), "sweep", Activity::Paused).await.map(|view| view.schedule);
    assert_eq!(paused, Err(missing()));
    let now = world.clock.now();
    for number in 0..MAX_SCHEDULES {
        world.store.put_schedule(hourly(&number.to_string()).schedule(now)).await.expect("it is put");
    }
    let full = put(world.store(), &hourly("one more")).await.map(|(view, _)| view.result);
    assert_eq!(full, Err(Refusal::TooManySchedules { limit: MAX_SCHEDULES }.into()));
    let unnamed = check(&hourly(""), now);
    assert!(matches!(unnamed, Err(OpsError::Store(_))), "{unnamed:?}");
}
