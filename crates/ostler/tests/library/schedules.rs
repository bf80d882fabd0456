//! Nodes killed with SIGKILL while they fire schedules: each run is enqueued once.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ostler_core::{Missed, Overlap, Overrides, Priority, Timestamp};
use ostler_runtime::ScheduleSpec;
use ostler_store::schedules::{Schedule, TaskTemplate};
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_testkit::{MAX_WAIT, TempStore, Twin, Voice};

const FILE: &str = "OSTLER_TEST_FILE";
const SCHEDULES: usize = 10;
/// Runs of each schedule that are overdue when the first node starts; it catches up with all of them.
const MISSED: u32 = 200;
const KILLS: usize = 6;
/// Runs that are fired before each kill.
const BETWEEN: u64 = 100;
const SECOND: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(2);

fn name(number: usize) -> String {
    format!("s{number}")
}

fn schedule(number: usize, first: Timestamp) -> Schedule {
    Schedule {
        name: name(number),
        spec: ScheduleSpec::every(SECOND).expect("a step").to_string(),
        overlap: Overlap::Queue,
        missed: Missed::All,
        task: TaskTemplate {
            queue: "no pool serves this".to_owned(),
            kind: name(number),
            payload: "null".to_owned(),
            priority: Priority::NORMAL,
            overrides: Overrides::NONE,
        },
        next_at: Some(first),
    }
}

/// How often each kind was enqueued.
async fn fired(store: &dyn Store) -> Vec<(String, u64)> {
    let lanes = store.survey().await.expect("it answers").lanes;
    lanes.into_iter().map(|lane| (lane.kind, lane.counts.submitted())).collect()
}

/// At the end, each schedule has as many runs as due times have passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_killed_fire_each_moment_once() {
    let here = TempStore::real();
    let store = here.store();
    let first = SystemClock.now().before(MISSED * SECOND);
    for number in 0..SCHEDULES {
        store.put_schedule(schedule(number, first)).await.expect("it is put");
    }
    let file = here.path();
    let start = || {
        let mut twin =
            Twin::start("schedules::the_part_of_a_node_that_fires", &[(FILE, file.as_os_str() as &OsStr)]);
        twin.expect("up");
        twin
    };
    let steady = start();
    for _ in 0..KILLS {
        let victim = start();
        let sum = async || fired(store.as_ref()).await.iter().map(|(_, runs)| runs).sum::<u64>();
        let (before, until) = (sum().await, Instant::now() + MAX_WAIT);
        while sum().await < before + BETWEEN {
            assert!(Instant::now() < until, "no node fires");
            tokio::time::sleep(LOOK).await;
        }
        victim.kill();
    }
    steady.kill();
    let runs = fired(store.as_ref()).await;
    assert_eq!(runs.len(), SCHEDULES);
    for record in store.schedules().await.expect("it answers") {
        let name = record.schedule.name;
        let behind = record.schedule.next_at.expect("it goes on").since(first).as_secs();
        assert!(runs.contains(&(name.clone(), behind)), "{name} left {behind} moments behind: {runs:?}");
    }
}

#[test]
#[ignore = "the other process of the test above"]
fn the_part_of_a_node_that_fires() {
    let file = PathBuf::from(std::env::var_os(FILE).expect("the file is named"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let pool = ostler::open(file).expect("the store opens").handle("none", |(): (), _| async { Ok(()) });
    let _pool = runtime.block_on(pool.start()).expect("it starts");
    Voice::say("up");
    // Fires until it is killed.
    let _ = Voice::hear();
}
