//! Schedules on a real embedded store: each run is fired once across all nodes, whatever the clocks do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Missed, Overlap, Overrides, Priority, Timestamp};
use ostler_runtime::{Node, NodeConfig, NodeDeps, PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{Activity, Schedule, ScheduleChange, ScheduleRecord, TaskTemplate};
use ostler_store::{Clock, Store};
use ostler_testkit::{Ids, MAX_WAIT, ManualClock, TempStore};

const QUEUE: &str = "documents";
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// Poll interval.
const LOOK: Duration = Duration::from_millis(5);
/// A schedule that is never due: touching it wakes every node.
const BELL: &str = "bell";

async fn node(store: Arc<dyn Store>, clock: Arc<dyn Clock>, seed: u64) -> Node {
    let ids = Ids::new(seed);
    let parts = NodeDeps { store, clock, ids: Arc::new(move || ids.task().0) };
    Node::start(parts, NodeConfig::new(format!("node {seed}"), Vec::new())).await.expect("it starts")
}

/// A schedule whose kind is its name, so that its runs can be counted.
fn schedule(name: &str, times: &ScheduleSpec, missed: Missed, first: Timestamp) -> Schedule {
    Schedule {
        name: name.to_owned(),
        spec: times.to_string(),
        overlap: Overlap::Queue,
        missed,
        task: TaskTemplate {
            queue: QUEUE.to_owned(),
            kind: name.to_owned(),
            payload: "null".to_owned(),
            priority: Priority::NORMAL,
            overrides: Overrides::NONE,
        },
        next_at: Some(first),
    }
}

fn seconds() -> ScheduleSpec {
    ScheduleSpec::every(SECOND).expect("a step")
}

async fn put(store: &dyn Store, schedule: Schedule) {
    store.put_schedule(schedule).await.expect("it is put");
}

async fn runs(store: &dyn Store, kind: &str) -> u64 {
    let lanes = store.survey().await.expect("the store answers").lanes;
    lanes.iter().filter(|lane| lane.kind == kind).map(|lane| lane.counts.submitted()).sum()
}

async fn record(store: &dyn Store, name: &str) -> ScheduleRecord {
    let all = store.schedules().await.expect("the store answers");
    all.into_iter().find(|record| record.schedule.name == name).expect("it is there")
}

/// A store with a manual clock, and a node.
struct World {
    here: TempStore,
    clock: ManualClock,
    node: Node,
}

impl World {
    async fn new() -> Self {
        let (here, clock) = TempStore::manual();
        let node = node(here.store(), Arc::new(clock.clone()), 1).await;
        put(
            here.store().as_ref(),
            schedule(BELL, &ScheduleSpec::at(Timestamp::ZERO), Missed::One, Timestamp::ZERO),
        )
        .await;
        here.store()
            .change_schedule(BELL, ScheduleChange::Set(Activity::Paused))
            .await
            .expect("it is paused");
        Self { here, clock, node }
    }

    async fn put(&self, name: &str, times: &ScheduleSpec, missed: Missed) {
        let first = times.first(self.clock.now()).expect("there is a first moment");
        put(self.here.store().as_ref(), schedule(name, times, missed, first)).await;
    }

    async fn runs(&self, name: &str) -> u64 {
        runs(self.here.store().as_ref(), name).await
    }

    /// Advances the clock, and waits until all due schedules have fired.
    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.settle().await;
    }

    async fn set(&self, to: Timestamp) {
        self.clock.step_wall(to);
        self.settle().await;
    }

    async fn settle(&self) {
        let store = self.here.store();
        settle(&[store.as_ref()], self.clock.now()).await;
    }
}

/// Wakes the nodes until no schedule that can be fired is due.
async fn settle(stores: &[&dyn Store], now: Timestamp) {
    let until = Instant::now() + MAX_WAIT;
    loop {
        let all = stores[0].schedules().await.expect("the store answers");
        let due = |record: &ScheduleRecord| {
            let readable = ScheduleSpec::parse(&record.schedule.spec).is_ok();
            readable
                && record.activity == Activity::Active
                && record.schedule.next_at.is_some_and(|next| next <= now)
        };
        if !all.iter().any(due) {
            return;
        }
        assert!(Instant::now() < until, "no node fires {:?}", all.iter().find(|record| due(record)));
        for store in stores {
            store.change_schedule(BELL, ScheduleChange::Set(Activity::Paused)).await.expect("it answers");
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_fire_each_moment_once() {
    const SCHEDULES: usize = 40;
    const TICKS: u64 = 8;
    let world = World::new().await;
    let (one, other) = (world.here.store(), world.here.second());
    let second = node(Arc::clone(&other) as Arc<dyn Store>, Arc::new(world.clock.clone()), 2).await;
    let name = |number: usize| format!("s{number}");
    for number in 0..SCHEDULES {
        world.put(&name(number), &seconds(), Missed::All).await;
    }
    for _ in 0..TICKS {
        world.clock.advance(SECOND);
        settle(&[one.as_ref(), other.as_ref()], world.clock.now()).await;
    }
    for number in 0..SCHEDULES {
        assert_eq!(world.runs(&name(number)).await, TICKS, "{}", name(number));
    }
    second.drain(MAX_WAIT).await;
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_moments_are_left_out_or_made_up_for_as_asked() {
    let world = World::new().await;
    let hourly = ScheduleSpec::every(HOUR).expect("a step");
    for missed in Missed::ALL {
        world.put(missed.name(), &hourly, missed).await;
    }
    world.pass(HOUR).await;
    for missed in Missed::ALL {
        assert_eq!(world.runs(missed.name()).await, 1, "in time");
    }
    // No node looks for five and a half hours.
    world.pass(5 * HOUR + HOUR / 2).await;
    for (missed, count) in [(Missed::Skip, 1), (Missed::One, 2), (Missed::All, 6)] {
        assert_eq!(world.runs(missed.name()).await, count, "{}", missed.name());
    }
    // None of them has shifted.
    world.pass(HOUR / 2).await;
    for (missed, count) in [(Missed::Skip, 2), (Missed::One, 3), (Missed::All, 7)] {
        assert_eq!(world.runs(missed.name()).await, count, "{}", missed.name());
    }
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_stay_where_they_were_after_a_great_many_were_missed() {
    let world = World::new().await;
    world.put("often", &seconds(), Missed::One).await;
    world.pass(10_000 * SECOND + SECOND / 4).await;
    assert_eq!(world.runs("often").await, 1);
    let next = record(world.here.store().as_ref(), "often").await.schedule.next_at.expect("it goes on");
    assert_eq!(next.since(world.clock.now()), SECOND * 3 / 4);
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_fires_nothing_twice() {
    let world = World::new().await;
    let began = world.clock.now();
    let daily = ScheduleSpec::cron("0 3 * * *", "UTC").expect("a line");
    world.put("daily", &daily, Missed::All).await;
    world.put("hourly", &ScheduleSpec::every(HOUR).expect("a step"), Missed::All).await;
    world.pass(4 * HOUR).await;
    assert_eq!((world.runs("daily").await, world.runs("hourly").await), (1, 4));
    world.set(began).await;
    world.pass(4 * HOUR).await;
    assert_eq!((world.runs("daily").await, world.runs("hourly").await), (1, 4), "these hours were");
    world.pass(HOUR).await;
    assert_eq!((world.runs("daily").await, world.runs("hourly").await), (1, 5));
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_forward_loses_only_what_missed_says() {
    let world = World::new().await;
    let began = world.clock.now();
    for missed in Missed::ALL {
        world.put(missed.name(), &ScheduleSpec::every(HOUR).expect("a step"), missed).await;
    }
    world.set(began.after(3 * HOUR + HOUR / 2)).await;
    for (missed, count) in [(Missed::Skip, 0), (Missed::One, 1), (Missed::All, 3)] {
        assert_eq!(world.runs(missed.name()).await, count, "{}", missed.name());
    }
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_night_in_which_an_hour_comes_twice_has_one_run() {
    let world = World::new().await;
    // Midnight in Berlin before the clocks go back.
    world.set(Timestamp::from_millis(1_792_879_200_000)).await;
    world
        .put("nightly", &ScheduleSpec::cron("30 2 * * *", "Europe/Berlin").expect("a line"), Missed::One)
        .await;
    for half_hours in 1..=12 {
        world.pass(HOUR / 2).await;
        assert_eq!(world.runs("nightly").await, u64::from(half_hours >= 5), "after {half_hours} half hours");
    }
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_moment_comes_once_also_if_it_had_passed() {
    let world = World::new().await;
    let (past, ahead) = (world.clock.now().before(HOUR), world.clock.now().after(HOUR));
    world.put("past", &ScheduleSpec::at(past), Missed::One).await;
    world.put("ahead", &ScheduleSpec::at(ahead), Missed::One).await;
    world.settle().await;
    assert_eq!((world.runs("past").await, world.runs("ahead").await), (1, 0));
    world.pass(2 * HOUR).await;
    assert_eq!((world.runs("past").await, world.runs("ahead").await), (1, 1));
    assert_eq!(record(world.here.store().as_ref(), "ahead").await.schedule.next_at, None, "it is over");
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_or_unreadable_schedule_does_not_hold_up_others() {
    let world = World::new().await;
    let store = world.here.store();
    let strange = Schedule {
        spec: "lunar 3".to_owned(),
        ..schedule("strange", &seconds(), Missed::One, world.clock.now())
    };
    put(store.as_ref(), strange).await;
    world.put("paused", &seconds(), Missed::All).await;
    world.put("good", &seconds(), Missed::All).await;
    store.change_schedule("paused", ScheduleChange::Set(Activity::Paused)).await.expect("it is paused");
    world.pass(2 * SECOND).await;
    assert_eq!(
        (world.runs("strange").await, world.runs("paused").await, world.runs("good").await),
        (0, 0, 2)
    );
    store.change_schedule("paused", ScheduleChange::Set(Activity::Active)).await.expect("it is resumed");
    world.settle().await;
    assert_eq!(world.runs("paused").await, 2, "what was missed is made up for, as it says");
    world.node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_of_the_store_decides_whatever_that_of_a_node_shows() {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let ways: [fn(Timestamp, Duration) -> Timestamp; 2] = [Timestamp::after, Timestamp::before];
    for wrong in ways {
        let (here, clock) = TempStore::manual();
        let store = here.store();
        let node_clock = ManualClock::at(wrong(clock.now(), DAY));
        let ids = Ids::new(1);
        let parts = NodeDeps {
            store: Arc::clone(&store) as Arc<dyn Store>,
            clock: Arc::new(node_clock),
            ids: Arc::new(move || ids.task().0),
        };
        // One schedule configured in the node, and one already in the store.
        let task = schedule("brought", &seconds(), Missed::One, clock.now()).task;
        let brought = PlannedSchedule {
            name: "brought".to_owned(),
            times: seconds(),
            overlap: Overlap::Queue,
            missed: Missed::One,
            task,
        };
        put(store.as_ref(), schedule("tick", &seconds(), Missed::One, clock.now().after(SECOND))).await;
        put(store.as_ref(), schedule(BELL, &ScheduleSpec::at(Timestamp::ZERO), Missed::One, Timestamp::ZERO))
            .await;
        store.change_schedule(BELL, ScheduleChange::Set(Activity::Paused)).await.expect("it is paused");
        let config = NodeConfig { schedules: vec![brought], ..NodeConfig::new("node", Vec::new()) };
        let node = Node::start(parts, config).await.expect("it starts");
        for tick in 1..4 {
            clock.advance(SECOND);
            settle(&[store.as_ref()], clock.now()).await;
            for name in ["tick", "brought"] {
                let next = record(store.as_ref(), name).await.schedule.next_at;
                assert_eq!(next, Some(clock.now().after(SECOND)), "{name}");
                assert_eq!(runs(store.as_ref(), name).await, tick, "{name}");
            }
        }
        node.drain(MAX_WAIT).await;
    }
}
