//! Which worker is woken for a task, and what happens to the task when that worker exits.

use std::pin::pin;

use async_trait::async_trait;
use ostler_core::{Charging, Ending, Id, Overrides, Priority, TaskId};
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
    numbered(9, 0)
}

fn done(task: u128, ending: Ending) -> AttemptEnding {
    let task = TaskId(Id::from_bits(task));
    AttemptEnding { task, ending, slot: WorkerFate::Reusable, took: None, suspect: false, shortage: None }
}

/// A task that this many workers or nodes have died of.
fn numbered(task: u128, node_deaths: u32) -> ClaimedTask {
    let lease = LeaseRef { task: TaskId(Id::from_bits(task)), token: 1, row: 1 };
    let claimed = Claimed {
        lease: Lease::granted(lease),
        queue: "q".into(),
        kind: "k".into(),
        payload: "null".to_owned(),
        attempt: 1,
        failures: 0,
        priority: Priority::default(),
        suspect: false,
        node_deaths,
        policy: Overrides::NONE.resolve(&Overrides::NONE),
        folder: None,
        traceparent: None,
        created_at: NOW,
        not_after: None,
        deadline: None,
        charging: Charging::Free,
    };
    ClaimedTask { claimed, signals: StopSignals::default(), since: Instant::now() }
}

/// A worker set with one task and two idle workers: the second has been woken for the task.
fn workers() -> (WorkerSet, Arc<Notify>, WorkerId) {
    let workers = WorkerSet::new("q", "w", Arc::new(AlwaysSucceeds), 2, watch::channel(NodeState::Running).1);
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
    workers.retire(1, |_| true);
    assert!(rung(&bell), "given up with its runtime");

    let (workers, bell, woken) = self::workers();
    workers.gone(woken);
    assert!(rung(&bell), "broken");
}

#[test]
fn a_busy_worker_on_a_runtime_that_was_left_makes_room_unless_an_attempt_of_it_runs() {
    let (workers, ids, bells) = four();
    let begun = TaskId(Id::from_bits(1));
    workers.add([numbered(1, 0), numbered(2, 0)].into_iter(), 0);
    for at in [1, 3] {
        assert!(rung(&bells[at]) && matches!(workers.turn(ids[at], None, NOW), NextTask::Run(_)));
    }
    assert_eq!((workers.load().total, workers.running()), (4, 2));
    workers.retire(1, |task| task == begun);
    assert_eq!((workers.load().total, workers.running()), (1, 1));
    assert!(rung(&bells[3]) && !rung(&bells[1]));
    // The runtime came back.
    assert!(matches!(workers.turn(ids[3], Some(done(2, Ending::HandedBack)), NOW), NextTask::Go));
    assert!(matches!(workers.turn(ids[1], Some(done(1, Ending::Success)), NOW), NextTask::Wait));
}

#[test]
fn a_worker_has_the_lowest_number_that_is_free_in_its_name() {
    let (workers, ids, _) = four();
    workers.gone(ids[1]);
    workers.enlist(WorkerId(Id::from_bits(9)), 0, NOW);
    workers.enlist(WorkerId(Id::from_bits(8)), 0, NOW);
    let mut names: Vec<String> = workers.workers().into_iter().map(|worker| worker.name).collect();
    names.sort();
    assert_eq!(names, ["w-1", "w-2", "w-3", "w-4", "w-5"]);
}

/// Four idle workers. They became idle in an order that is not that of their ids: the third, the first, the fourth, the second.
fn four() -> (WorkerSet, [WorkerId; 4], [Arc<Notify>; 4]) {
    let workers = WorkerSet::new("q", "w", Arc::new(AlwaysSucceeds), 4, watch::channel(NodeState::Running).1);
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
        assert!(matches!(workers.turn(id, Some(done(9, ending)), NOW), NextTask::Wait));
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

/// Workers that run three tasks at once.
struct InThrees;

#[async_trait]
impl Executor for InThrees {
    fn served(&self) -> Served {
        Served::Any
    }

    fn per_worker(&self) -> usize {
        3
    }

    fn slots(&self, _: WorkerId) -> usize {
        3
    }

    async fn run(&self, _: Work, _: Control) -> AttemptResult {
        AttemptResult::success(None)
    }
}

/// Two idle workers with three slots each.
fn shared() -> (WorkerSet, [WorkerId; 2], [Arc<Notify>; 2]) {
    let workers = WorkerSet::new("q", "w", Arc::new(InThrees), 2, watch::channel(NodeState::Running).1);
    let ids = [1, 2].map(|number| WorkerId(Id::from_bits(number)));
    let bells = ids.map(|id| {
        let bell = workers.enlist(id, 0, NOW);
        workers.ready(id);
        assert!(matches!(workers.turn(id, None, NOW), NextTask::Wait));
        bell
    });
    (workers, ids, bells)
}

/// The number of the task that the worker takes, if any.
fn takes(workers: &WorkerSet, id: WorkerId, ended: Option<u128>) -> Option<u128> {
    match workers.turn(id, ended.map(|task| done(task, Ending::Success)), NOW) {
        NextTask::Run(waiting) => Some(waiting.claimed.lease.task().0.bits()),
        NextTask::Wait => None,
        NextTask::Go => panic!("it goes"),
    }
}

#[test]
fn a_worker_takes_as_many_tasks_as_it_has_slots_and_the_load_counts_slots() {
    let (workers, [first, second], bells) = shared();
    assert_eq!((workers.load().open, workers.load().free()), (6, 6));
    workers.add((10..15).map(|number| numbered(number, 0)), 0);
    assert!(bells.iter().all(|bell| rung(bell)), "five tasks need both");
    assert_eq!([(); 4].map(|()| takes(&workers, first, None)), [Some(10), Some(11), Some(12), None]);
    assert_eq!([(); 3].map(|()| takes(&workers, second, None)), [Some(13), Some(14), None]);
    let load = workers.load();
    assert_eq!((load.open, load.idle, load.backlog), (1, 0, 0));
    assert_eq!(workers.tasks().len(), 5);
    assert_eq!(takes(&workers, first, Some(11)), None);
    assert_eq!(workers.load().open, 2);
    workers.add(std::iter::once(numbered(20, 0)), 0);
    assert!(bells.iter().any(|bell| rung(bell)), "a busy one with a free slot is woken");
    let record = |id| workers.workers().into_iter().find(|worker| worker.id == id).expect("it is there");
    let oldest = record(first).task.expect("it runs two").0;
    assert_eq!((record(first).state, oldest), (WorkerState::Busy, TaskId(Id::from_bits(10))));
    assert_eq!((takes(&workers, second, Some(13)), takes(&workers, second, Some(14))), (Some(20), None));
    assert_eq!(takes(&workers, second, Some(20)), None);
    assert_eq!(record(second).state, WorkerState::Idle);
}

#[test]
fn a_task_that_was_there_at_two_deaths_gets_a_worker_of_its_own() {
    let (workers, [first, second], _) = shared();
    workers.add([numbered(10, 0), numbered(11, 0)].into_iter(), 0);
    assert_eq!((takes(&workers, first, None), takes(&workers, second, None)), (Some(10), Some(11)));
    workers.add([numbered(20, 2), numbered(21, 0), numbered(22, 1)].into_iter(), 0);
    assert_eq!(takes(&workers, first, None), None, "it waits until this one is free");
    assert_eq!(workers.load().excess(), 0, "and is not handed back");
    assert_eq!([(); 3].map(|()| takes(&workers, second, None)), [Some(21), Some(22), None]);
    assert_eq!(takes(&workers, first, Some(10)), Some(20));
    workers.add(std::iter::once(numbered(30, 0)), 0);
    assert_eq!(takes(&workers, first, None), None, "nothing runs beside it");
    assert_eq!(takes(&workers, first, Some(20)), Some(30));
}
