//! Schedules: stored by name, with each due time fired once.

use std::time::Duration;

use ostler_core::{Missed, Overlap, Overrides, Priority, StateName, TaskId, Timestamp};

use super::super::scene::{KIND, QUEUE, Scene, TICK, heard, invalid};
use super::runner::cases;
use ostler_store::calls::NewTask;
use ostler_store::schedules::{
    Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, ScheduleRecord, Skipped,
    TaskTemplate,
};
use ostler_store::unique::Unique;
use ostler_store::{MAX_MESSAGE_BYTES, MAX_SCHEDULES, MAX_TEMPLATE_BYTES};

cases![
    a_schedule_is_shown_as_it_was_put,
    schedules_are_listed_in_order_of_name,
    a_put_of_the_same_times_keeps_the_next_moment,
    a_put_of_other_times_brings_its_own,
    a_put_keeps_the_pause_and_the_last_run,
    a_schedule_that_is_over_stays_over,
    a_schedule_can_be_dropped,
    a_schedule_has_a_form,
    a_store_has_so_many_schedules_and_no_more,
    a_change_of_a_schedule_is_news,
    a_moment_is_fired_and_the_schedule_goes_on,
    a_moment_is_fired_once,
    no_moment_is_fired_before_its_time,
    only_the_next_moment_is_fired,
    a_paused_schedule_is_not_fired,
    the_last_moment_is_the_last,
    a_missed_moment_is_passed_over,
    a_firing_has_a_form,
    a_run_rings_the_bell,
];

const HOUR: Duration = Duration::from_secs(3_600);

fn schedule(s: &Scene, overlap: Overlap) -> Schedule {
    Schedule {
        name: "nightly".to_owned(),
        spec: "0 3 * * * Europe/Vienna".to_owned(),
        overlap,
        missed: Missed::One,
        task: TaskTemplate {
            queue: QUEUE.to_owned(),
            kind: KIND.to_owned(),
            payload: "{\"sweep\":true}".to_owned(),
            priority: Priority::new(2).expect("a priority"),
            overrides: Overrides { attempts: Some(7), ..Overrides::NONE },
        },
        next_at: Some(s.now()),
    }
}

pub(super) async fn put(s: &Scene, overlap: Overlap) -> Schedule {
    let schedule = schedule(s, overlap);
    assert_eq!(s.store.put_schedule(schedule.clone()).await, Ok(PutAnswer::Created));
    schedule
}

pub(super) async fn shown(s: &Scene) -> ScheduleRecord {
    let mut all = s.store.schedules().await.expect("schedules answers");
    assert_eq!(all.len(), 1, "there is one schedule");
    all.remove(0)
}

/// A firing for the current time, with the next one in an hour.
pub(super) fn firing(s: &Scene, task: Option<NewTask>) -> Firing {
    let next = Some(s.now().after(HOUR));
    Firing { schedule: "nightly".to_owned(), expected: s.now(), next, task }
}

pub(super) async fn fire(s: &Scene, firing: Firing) -> Fired {
    s.store.fire(firing).await.expect("fire answers")
}

/// Fires the schedule for the current time, and lets an hour pass.
pub(super) async fn run(s: &Scene) -> (TaskId, Fired) {
    let task = s.draft();
    let id = task.id;
    let fired = fire(s, firing(s, Some(task))).await;
    s.pass(HOUR);
    (id, fired)
}

// ---- stored ----

async fn a_schedule_is_shown_as_it_was_put(s: &Scene) {
    for (overlap, missed) in Overlap::ALL.into_iter().zip(Missed::ALL) {
        let schedule = Schedule { missed, ..schedule(s, overlap) };
        s.store.put_schedule(schedule.clone()).await.expect("put_schedule answers");
        let (activity, last_at, last_task) = (Activity::Active, None, None);
        assert_eq!(shown(s).await, ScheduleRecord { schedule, activity, last_at, last_task });
    }
    let template = schedule(s, Overlap::Skip).task;
    let task = template.task(s.task_id());
    assert_eq!((task.queue, task.kind, task.payload), (template.queue, template.kind, template.payload));
    assert_eq!((task.priority, task.overrides), (template.priority, template.overrides));
}

async fn schedules_are_listed_in_order_of_name(s: &Scene) {
    assert_eq!(s.store.schedules().await, Ok(Vec::new()));
    for name in ["b", "a", "\u{e9}", "B"] {
        let schedule = Schedule { name: name.to_owned(), ..schedule(s, Overlap::Skip) };
        assert_eq!(s.store.put_schedule(schedule).await, Ok(PutAnswer::Created));
    }
    let all = s.store.schedules().await.expect("schedules answers");
    let names: Vec<&str> = all.iter().map(|kept| kept.schedule.name.as_str()).collect();
    assert_eq!(names, ["B", "a", "b", "\u{e9}"]);
}

async fn a_put_of_the_same_times_keeps_the_next_moment(s: &Scene) {
    let first = put(s, Overlap::Skip).await;
    s.pass(HOUR);
    let again = Schedule { next_at: Some(s.now()), overlap: Overlap::Queue, ..first.clone() };
    assert_eq!(s.store.put_schedule(again).await, Ok(PutAnswer::Replaced));
    let kept = shown(s).await.schedule;
    assert_eq!((kept.next_at, kept.overlap), (first.next_at, Overlap::Queue));
}

async fn a_put_of_other_times_brings_its_own(s: &Scene) {
    let first = put(s, Overlap::Skip).await;
    s.pass(HOUR);
    let other = Schedule { next_at: Some(s.now()), spec: "every 5m".to_owned(), ..first };
    assert_eq!(s.store.put_schedule(other.clone()).await, Ok(PutAnswer::Replaced));
    assert_eq!(shown(s).await.schedule, other);
}

async fn a_put_keeps_the_pause_and_the_last_run(s: &Scene) {
    let first = put(s, Overlap::Queue).await;
    let fired_at = s.now();
    let (id, _) = run(s).await;
    assert_eq!(
        s.store.change_schedule("nightly", ScheduleChange::Set(Activity::Paused)).await,
        Ok(ScheduleAnswer::Done)
    );
    let other = Schedule { spec: "every 5m".to_owned(), ..first };
    assert_eq!(s.store.put_schedule(other).await, Ok(PutAnswer::Replaced));
    let kept = shown(s).await;
    assert_eq!(kept.activity, Activity::Paused);
    assert_eq!((kept.last_at, kept.last_task), (Some(fired_at), Some(id)));
}

async fn a_schedule_that_is_over_stays_over(s: &Scene) {
    let once = put(s, Overlap::Skip).await;
    fire(s, Firing { next: None, ..firing(s, Some(s.draft())) }).await;
    assert_eq!(s.store.put_schedule(once).await, Ok(PutAnswer::Replaced));
    assert_eq!(shown(s).await.schedule.next_at, None, "putting it again does not run it again");
}

async fn a_schedule_can_be_dropped(s: &Scene) {
    let first = put(s, Overlap::Skip).await;
    let (id, _) = run(s).await;
    assert_eq!(s.store.change_schedule("nightly", ScheduleChange::Remove).await, Ok(ScheduleAnswer::Done));
    assert_eq!(
        s.store.change_schedule("nightly", ScheduleChange::Remove).await,
        Ok(ScheduleAnswer::NotFound)
    );
    assert_eq!(
        s.store.change_schedule("nightly", ScheduleChange::Set(Activity::Paused)).await,
        Ok(ScheduleAnswer::NotFound)
    );
    assert_eq!(s.store.schedules().await, Ok(Vec::new()));
    assert_eq!(fire(s, firing(s, Some(s.draft()))).await, Fired::NotDue);
    assert_eq!(s.state(id).await, StateName::Queued, "its runs stay");
    assert_eq!(s.store.put_schedule(first).await, Ok(PutAnswer::Created), "and it can come back");
    assert_eq!(shown(s).await.last_task, None);
}

async fn a_schedule_has_a_form(s: &Scene) {
    let good = || schedule(s, Overlap::Skip);
    let template = |change: fn(&mut TaskTemplate)| {
        let mut schedule = good();
        change(&mut schedule.task);
        schedule
    };
    let wrong = [
        ("no name", Schedule { name: String::new(), ..good() }),
        ("a name with a line break", Schedule { name: "a\nb".to_owned(), ..good() }),
        ("no times", Schedule { spec: String::new(), ..good() }),
        ("a long spec", Schedule { spec: "x".repeat(MAX_MESSAGE_BYTES + 1), ..good() }),
        ("no queue", template(|task| task.queue.clear())),
        ("no kind", template(|task| task.kind.clear())),
        ("a large payload", template(|task| task.payload = "x".repeat(MAX_TEMPLATE_BYTES + 1))),
        ("no attempt at all", template(|task| task.overrides.attempts = Some(0))),
    ];
    for (what, schedule) in wrong {
        invalid(what, s.store.put_schedule(schedule).await);
    }
    assert_eq!(s.store.schedules().await, Ok(Vec::new()));
}

async fn a_store_has_so_many_schedules_and_no_more(s: &Scene) {
    let named = |number: usize| Schedule { name: format!("s{number}"), ..schedule(s, Overlap::Skip) };
    for number in 0..MAX_SCHEDULES {
        assert_eq!(s.store.put_schedule(named(number)).await, Ok(PutAnswer::Created));
    }
    let too_many = Ok(PutAnswer::TooMany { limit: MAX_SCHEDULES });
    assert_eq!(s.store.put_schedule(named(MAX_SCHEDULES)).await, too_many);
    assert_eq!(s.store.put_schedule(named(0)).await, Ok(PutAnswer::Replaced));
}

async fn a_change_of_a_schedule_is_news(s: &Scene) {
    let mut news = s.store.control();
    news.arm();
    put(s, Overlap::Skip).await;
    heard("a new schedule", &mut news).await;
    s.store
        .change_schedule("nightly", ScheduleChange::Set(Activity::Paused))
        .await
        .expect("change_schedule answers");
    heard("a pause", &mut news).await;
}

// ---- fired ----

async fn a_moment_is_fired_and_the_schedule_goes_on(s: &Scene) {
    let node = s.join().await;
    let kept = put(s, Overlap::Skip).await;
    let task = kept.task.task(s.task_id());
    let id = task.id;
    let fired_at = s.now();
    assert_eq!(fire(s, firing(s, Some(task))).await, Fired::Enqueued(id));
    let record = shown(s).await;
    assert_eq!(record.schedule.next_at, Some(fired_at.after(HOUR)));
    assert_eq!((record.last_at, record.last_task), (Some(fired_at), Some(id)));
    let claimed = s.claim(node, 10).await.remove(0);
    assert_eq!((claimed.lease.task(), claimed.payload), (id, kept.task.payload));
    assert_eq!((claimed.priority, claimed.policy.retry.attempts), (kept.task.priority, 7));
}

async fn a_moment_is_fired_once(s: &Scene) {
    put(s, Overlap::Queue).await;
    let second = s.fixture.second().await;
    let expected = firing(s, Some(s.draft()));
    assert!(matches!(fire(s, expected.clone()).await, Fired::Enqueued(_)));
    let before = s.picture().await;
    s.pass(TICK);
    let again = Firing { task: Some(s.draft()), ..expected.clone() };
    assert_eq!(second.fire(again).await, Ok(Fired::NotDue), "another node, a moment later");
    assert_eq!(fire(s, expected).await, Fired::NotDue, "a repeat of the call");
    assert_eq!(s.picture().await, before);
    assert_eq!(s.counts().await.submitted(), 1);
}

async fn no_moment_is_fired_before_its_time(s: &Scene) {
    let later = Schedule { next_at: Some(s.now().after(TICK)), ..schedule(s, Overlap::Skip) };
    s.store.put_schedule(later).await.expect("put_schedule answers");
    let early = Firing { expected: s.now().after(TICK), ..firing(s, Some(s.draft())) };
    assert_eq!(fire(s, early.clone()).await, Fired::NotDue, "the clock of the node that fires is ahead");
    s.pass(TICK);
    assert!(matches!(fire(s, early).await, Fired::Enqueued(_)));
}

async fn only_the_next_moment_is_fired(s: &Scene) {
    put(s, Overlap::Skip).await;
    s.pass(HOUR);
    let before = s.picture().await;
    for expected in [s.now(), s.now().before(TICK), Timestamp::ZERO] {
        let wrong = Firing { expected, ..firing(s, Some(s.draft())) };
        assert_eq!(fire(s, wrong).await, Fired::NotDue);
    }
    let unknown = Firing { schedule: "weekly".to_owned(), ..firing(s, Some(s.draft())) };
    assert_eq!(fire(s, unknown).await, Fired::NotDue);
    assert_eq!(s.picture().await, before);
}

async fn a_paused_schedule_is_not_fired(s: &Scene) {
    put(s, Overlap::Skip).await;
    let due = firing(s, Some(s.draft()));
    assert_eq!(
        s.store.change_schedule("nightly", ScheduleChange::Set(Activity::Paused)).await,
        Ok(ScheduleAnswer::Done)
    );
    assert_eq!(fire(s, due.clone()).await, Fired::NotDue);
    assert_eq!(shown(s).await.activity, Activity::Paused);
    assert_eq!(
        s.store.change_schedule("nightly", ScheduleChange::Set(Activity::Active)).await,
        Ok(ScheduleAnswer::Done)
    );
    assert!(matches!(fire(s, due).await, Fired::Enqueued(_)), "it goes on where it was");
}

async fn the_last_moment_is_the_last(s: &Scene) {
    put(s, Overlap::Queue).await;
    let last = Firing { next: None, ..firing(s, Some(s.draft())) };
    assert!(matches!(fire(s, last.clone()).await, Fired::Enqueued(_)));
    assert_eq!(shown(s).await.schedule.next_at, None);
    assert_eq!(fire(s, Firing { task: Some(s.draft()), ..last }).await, Fired::NotDue);
}

async fn a_missed_moment_is_passed_over(s: &Scene) {
    put(s, Overlap::Skip).await;
    assert_eq!(fire(s, firing(s, None)).await, Fired::Skipped(Skipped::Missed));
    let record = shown(s).await;
    assert_eq!(record.schedule.next_at, Some(s.now().after(HOUR)));
    assert_eq!((record.last_at, record.last_task), (None, None));
    assert_eq!(s.counts().await.submitted(), 0);
}

async fn a_firing_has_a_form(s: &Scene) {
    put(s, Overlap::Skip).await;
    let before = s.picture().await;
    let with = |task: NewTask| firing(s, Some(task));
    let wrong = [
        ("a next moment that is not later", Firing { next: Some(s.now()), ..with(s.draft()) }),
        ("a unique key", with(NewTask { unique: Some(Unique::new("k")), ..s.draft() })),
        ("a task to wait for", with(NewTask { after: vec![s.task_id()], ..s.draft() })),
        ("no kind", with(NewTask { kind: String::new(), ..s.draft() })),
    ];
    for (what, firing) in wrong {
        invalid(what, s.store.fire(firing).await);
    }
    assert_eq!(s.picture().await, before);
}

async fn a_run_rings_the_bell(s: &Scene) {
    put(s, Overlap::Skip).await;
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    run(s).await;
    heard("a run of a schedule", &mut wakeups).await;
}
