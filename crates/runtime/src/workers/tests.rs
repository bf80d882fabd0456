//! Which worker is woken for a task, and what happens to the task when that worker exits.

use std::pin::pin;

use async_trait::async_trait;
use ostler_core::{Id, Overrides, Priority, TaskId};
use ostler_exec::{AttemptResult, Control, Served, Work};
use ostler_store::{Lease, LeaseRef};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(0);

struct AlwaysSucceeds;

#[async_trait]
impl Executor for AlwaysSucceeds {
    fn served(&self) -> Served {
        Served::Any
    }

    async fn run(&self, _: Work, _: Control) -> AttemptResult {
        AttemptResult::success(None)
    }
}

fn task() -> ClaimedTask {
    let lease = LeaseRef { task: TaskId(Id::from_bits(9)), token: 1, row: 1 };
    let claimed = Claimed {
        lease: Lease::granted(lease),
        queue: "q".into(),
        kind: "k".into(),
        payload: "null".to_owned(),
        attempt: 1,
        priority: Priority::default(),
        suspect: false,
        node_deaths: 0,
        policy: Overrides::NONE.resolve(&Overrides::NONE),
        folder: None,
        created_at: NOW,
        not_after: None,
        deadline: None,
    };
    ClaimedTask { claimed, signals: StopSignals::default(), since: Instant::now() }
}

/// A worker set with one task and two idle workers: the second has been woken for the task.
fn workers() -> (WorkerSet, Arc<Notify>, WorkerId) {
    let workers = WorkerSet::new("q", Arc::new(AlwaysSucceeds), 2, watch::channel(NodeState::Running).1);
    let [first, second] = [1, 2].map(|number| WorkerId(Id::from_bits(number)));
    let bells = [(first, 1), (second, 0)].map(|(id, stage)| {
        let bell = workers.enlist(id, stage, NOW);
        workers.ready(id);
        assert!(matches!(workers.turn(id, None, NOW), NextTask::Wait));
        bell
    });
    let [bell, woken] = bells;
    workers.add(std::iter::once(task()), 0);
    assert!(rung(&woken) && !rung(&bell));
    (workers, bell, second)
}

fn rung(bell: &Notify) -> bool {
    let mut rung = pin!(bell.notified());
    rung.as_mut().enable()
}

#[test]
fn a_worker_that_goes_instead_of_taking_a_task_leaves_it_to_another() {
    let (workers, bell, woken) = workers();
    workers.set_max(1);
    assert!(matches!(workers.turn(woken, None, NOW), NextTask::Go));
    assert!(rung(&bell), "above the maximum");

    let (workers, bell, _) = self::workers();
    workers.retire(1);
    assert!(rung(&bell), "given up with its runtime");

    let (workers, bell, woken) = self::workers();
    workers.gone(woken);
    assert!(rung(&bell), "broken");
}

/// Four idle workers. They became idle in an order that is not that of their ids: the third, the first, the fourth, the second.
fn four() -> (WorkerSet, [WorkerId; 4], [Arc<Notify>; 4]) {
    let workers = WorkerSet::new("q", Arc::new(AlwaysSucceeds), 4, watch::channel(NodeState::Running).1);
    let ids = [1, 2, 3, 4].map(|number| WorkerId(Id::from_bits(number)));
    let bells = ids.map(|id| {
        let bell = workers.enlist(id, 0, NOW);
        workers.ready(id);
        bell
    });
    for at in [2, 0, 3, 1] {
        assert!(matches!(workers.turn(ids[at], None, NOW), NextTask::Wait));
    }
    (workers, ids, bells)
}

#[test]
fn tasks_go_to_the_workers_that_were_busy_last() {
    let (workers, ids, bells) = four();
    let all_rung = || bells.each_ref().map(|bell| rung(bell));
    workers.add(std::iter::once(task()), 0);
    assert_eq!(all_rung(), [false, true, false, false]);
    assert!(matches!(workers.turn(ids[1], None, NOW), NextTask::Run(_)));
    workers.add([task(), task()].into_iter(), 0);
    assert_eq!(all_rung(), [true, false, false, true]);
}

#[test]
fn the_worker_that_has_been_idle_longest_is_dismissed_first() {
    let (workers, ids, bells) = four();
    for at in [2, 0] {
        workers.dismiss_idlest();
        assert!(rung(&bells[at]), "it hears of it");
        assert!(matches!(workers.turn(ids[at], None, NOW), NextTask::Go));
        workers.gone(ids[at]);
    }
    assert_eq!(workers.workers().iter().map(|worker| worker.id).collect::<Vec<_>>(), [ids[1], ids[3]]);
}

#[test]
fn a_worker_counts_what_it_did_and_is_idle_without_a_task_after_it() {
    let (workers, ids, _) = four();
    let id = ids[1];
    let record = || workers.workers().into_iter().find(|worker| worker.id == id).expect("it is there");
    let failed = Ending::Failed(ostler_core::ErrorClass::Permanent);
    for (ending, counts) in [(Ending::Success, (1, 0)), (failed, (1, 1)), (Ending::HandedBack, (1, 1))] {
        workers.add(std::iter::once(task()), 0);
        assert!(matches!(workers.turn(id, None, NOW), NextTask::Run(_)));
        assert_eq!((record().state, record().task.is_some()), (WorkerState::Busy, true));
        assert_eq!(workers.running(), 1);
        let done =
            AttemptEnding { ending, slot: WorkerFate::Reusable, took: None, suspect: false, shortage: None };
        assert!(matches!(workers.turn(id, Some(done), NOW), NextTask::Wait));
        assert_eq!((record().state, record().task), (WorkerState::Idle, None));
        assert_eq!((record().done, record().failed), counts, "after {ending:?}");
    }
    assert_eq!(workers.running(), 0);
}

#[test]
fn a_worker_that_died_is_killed_until_it_is_gone_and_takes_no_task() {
    let (workers, bell, woken) = workers();
    let states = || workers.workers().into_iter().map(|worker| worker.state).collect::<Vec<_>>();
    assert_eq!(states(), [WorkerState::Idle, WorkerState::Idle]);
    workers.died(woken, Failure::new(ostler_core::ErrorClass::Crash, "it was killed"));
    assert_eq!(states(), [WorkerState::Idle, WorkerState::Killed]);
    assert!(rung(&bell), "its task is left to the other");
    assert!(matches!(workers.turn(woken, None, NOW), NextTask::Go));
    workers.gone(woken);
    assert_eq!(states(), [WorkerState::Idle]);
}
