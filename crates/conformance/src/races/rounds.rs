//! The races. Each checks the record, whichever side won.

use std::sync::Arc;

use ostler_core::{
    BreakerPolicy, BreakerState, Ending, ErrorClass, Outcome, Readiness, SessionId, State, StateName, TaskId,
    Timestamp, Trip, Wait,
};

use super::super::scene::{QUEUE, Scene, TICK, TTL, failure, one, report};
use super::plans::{finish_and_enqueue_after, two_firings, two_tasks_at_the_limit, two_tasks_with_one_key};
use super::run::{Race, Side, Stage, Stagger, both};
use ostler_store::Lease;
use ostler_store::Store;
use ostler_store::calls::{
    CancelAnswer, ClaimAnswer, Expired, Finished, Prune, QueueChange, Renewed, Replay, ReplayAnswer, Report,
};
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::outbox::{OutboxAnswer, OutboxFilter, Subscription};
use ostler_store::views::TaskDetail;

macro_rules! races {
    ($($name:literal: $round:ident),* $(,)?) => { &[$(($name, |stage, stagger| Box::pin($round(stage, stagger)))),*] };
}

pub(super) const RACES: &[Race] = races![
    "expire and finish": expire_and_finish,
    "cancel and finish": cancel_and_finish,
    "time-out and success": time_out_and_success,
    "release and expire": release_and_expire,
    "two claims of one task": two_claims,
    "two hearings of one telling": two_hearings,
    "two replays of one dead letter": two_replays,
    "renew and expire": renew_and_expire,
    "prune and replay": prune_and_replay,
    "two claims at a half-open breaker": two_claims_at_a_half_open_breaker,
    "two tasks with one key": two_tasks_with_one_key,
    "two tasks at the limit of a queue": two_tasks_at_the_limit,
    "finish and enqueue after it": finish_and_enqueue_after,
    "two firings of one moment": two_firings,
];

// ---- the calls of each side ----

pub(super) async fn finish(store: Arc<dyn Store>, lease: Lease, outcome: Outcome) -> Finished {
    one(store.finish(vec![report(lease, outcome)]).await.expect("finish answers"))
}

async fn expire(store: Arc<dyn Store>) -> Expired {
    store.expire(100).await.expect("expire answers")
}

async fn replay(store: Arc<dyn Store>, id: TaskId) -> ReplayAnswer {
    one(store.replay(vec![id], Replay::default()).await.expect("replay answers"))
}

async fn claim(store: Arc<dyn Store>, scene: Arc<Scene>, session: SessionId) -> Option<Lease> {
    match store.claim(scene.asks(session, 10)).await.expect("claim answers") {
        ClaimAnswer::Tasks { mut tasks, .. } => {
            assert!(tasks.len() <= 1, "one task was there, and {} were given", tasks.len());
            tasks.pop().map(|claimed| claimed.lease)
        }
        ClaimAnswer::SessionEnded => panic!("the session is alive"),
    }
}

async fn hear(store: Arc<dyn Store>, session: SessionId) -> Vec<TaskId> {
    match store.take_outbox(session, QUEUE, "callbacks", 10).await.expect("hear answers") {
        OutboxAnswer::Entries(tellings) => tellings.into_iter().map(|telling| telling.task).collect(),
        OutboxAnswer::SessionEnded => panic!("the session is alive"),
    }
}

// ---- setup and checks ----

/// One connection for each side.
pub(super) fn connections(stage: &Stage) -> [Arc<dyn Store>; 2] {
    [Arc::clone(&stage.scene.store), Arc::clone(&stage.second)]
}

/// Asserts that the task ran once, and how that attempt ended.
fn assert_one_attempt(shown: &TaskDetail, ending: Ending) {
    assert_eq!((shown.task.runs, shown.task.token, shown.attempts.len()), (1, 1, 1), "it ran once");
    assert_eq!(shown.attempts[0].end.as_ref().map(|end| end.ending), Some(ending));
}

/// Cleans up for the next round.
pub(super) async fn clear(s: &Scene, id: TaskId, sessions: &[SessionId]) {
    s.cancel(id).await;
    for session in sessions {
        s.store.leave(*session).await.expect("leave answers");
    }
    s.store.expire(100).await.expect("expire answers");
    s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
    assert!(s.find(id).await.is_none(), "the round leaves nothing behind");
}

// ---- the rounds ----

async fn expire_and_finish(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.pass(TTL + TICK);
    let [one, other] = connections(stage);
    let (expired, finished) = both(stagger, expire(one), finish(other, lease, Outcome::Success)).await;
    let shown = s.show(id).await;
    let winner = match finished {
        Finished::Recorded(state) => {
            assert_eq!((state, shown.task.state.name()), (StateName::Completed, StateName::Completed));
            assert_eq!(expired.tasks, 0, "nothing was left to take");
            assert_one_attempt(&shown, Ending::Success);
            Side::Right
        }
        Finished::LeaseLost => {
            assert_eq!(expired.tasks, 1);
            assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::LeaseExpired));
            assert_one_attempt(&shown, Ending::NodeDied);
            Side::Left
        }
    };
    clear(s, id, &[node]).await;
    winner
}

async fn cancel_and_finish(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    let [cancelling, finishing] = connections(stage);
    let cancel = async move { one(cancelling.cancel(vec![id]).await.expect("cancel answers")) };
    let (cancelled, finished) = both(stagger, cancel, finish(finishing, lease, Outcome::HandedBack)).await;
    let shown = s.show(id).await;
    assert_eq!(shown.task.state.name(), StateName::Cancelled, "whichever call was first, it runs no more");
    assert_one_attempt(&shown, Ending::HandedBack);
    let winner = match finished {
        Finished::Recorded(StateName::Cancelled) => {
            assert_eq!(cancelled, CancelAnswer::Requested, "the mark was there when the attempt ended");
            assert!(shown.task.cancel_requested_at.is_some());
            Side::Left
        }
        Finished::Recorded(state) => {
            assert_eq!(state, StateName::Queued);
            assert_eq!(cancelled, CancelAnswer::Cancelled, "it was queued when the request came");
            assert!(shown.task.cancel_requested_at.is_none());
            Side::Right
        }
        Finished::LeaseLost => panic!("no other node had the lease"),
    };
    clear(s, id, &[node]).await;
    winner
}

async fn time_out_and_success(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let lease = s.running(node).await;
    let (id, kept) = (lease.task(), lease.as_ref());
    let [one, other] = connections(stage);
    let timed_out = finish(one, lease, failure(ErrorClass::Timeout));
    let succeeded = finish(other, Lease::granted(kept), Outcome::Success);
    let answers = both(stagger, timed_out, succeeded).await;
    let shown = s.show(id).await;
    let winner = match answers {
        (Finished::Recorded(StateName::Queued), Finished::LeaseLost) => {
            assert_eq!((s.waits(id).await, shown.task.failures), ((Readiness::Waiting, Wait::Retry), 1));
            assert_one_attempt(&shown, Ending::Failed(ErrorClass::Timeout));
            Side::Left
        }
        (Finished::LeaseLost, Finished::Recorded(StateName::Completed)) => {
            assert_eq!((shown.task.state.name(), shown.task.failures), (StateName::Completed, 0));
            assert_one_attempt(&shown, Ending::Success);
            Side::Right
        }
        other => panic!("exactly one report counts, and the answers are {other:?}"),
    };
    clear(s, id, &[node]).await;
    winner
}

async fn release_and_expire(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let lease = s.leased(node).await;
    let id = lease.task();
    s.pass(TTL + TICK);
    let [releasing, expiring] = connections(stage);
    let release =
        async move { one(releasing.finish(Report::hand_backs(vec![lease])).await.expect("finish answers")) };
    let (released, expired) = both(stagger, release, expire(expiring)).await;
    let shown = s.show(id).await;
    assert_eq!((shown.task.runs, shown.task.token, shown.attempts.len()), (0, 1, 0), "it never ran");
    let winner = match released {
        Finished::Recorded(state) => {
            assert_eq!((state, expired.tasks), (StateName::Queued, 0));
            assert_eq!((s.waits(id).await.1, shown.task.suspect), (Wait::HandedBack, false));
            Side::Left
        }
        Finished::LeaseLost => {
            assert_eq!(expired.tasks, 1);
            assert_eq!((s.waits(id).await.1, shown.task.suspect), (Wait::LeaseExpired, true));
            Side::Right
        }
    };
    clear(s, id, &[node]).await;
    winner
}

async fn two_claims(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let nodes = [s.join().await, s.join().await];
    let id = s.add().await;
    let [one, other] = connections(stage);
    let left = claim(one, Arc::clone(s), nodes[0]);
    let right = claim(other, Arc::clone(s), nodes[1]);
    let answers = both(stagger, left, right).await;
    let (winner, lease) = match answers {
        (Some(lease), None) => (Side::Left, lease),
        (None, Some(lease)) => (Side::Right, lease),
        other => panic!("one claim gets the task, and the answers are {other:?}"),
    };
    let task = s.task(id).await;
    assert_eq!(task.state, State::Claimed { session: nodes[winner as usize] });
    assert_eq!((lease.as_ref().token, task.token, task.runs), (1, 1, 0));
    clear(s, id, &nodes).await;
    winner
}

async fn two_hearings(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    s.configure(QueueChange::Subscribe(Subscription {
        name: "callbacks".to_owned(),
        wants: OutboxFilter::ALL,
    }))
    .await;
    let nodes = [s.join().await, s.join().await];
    let id = s.completed(nodes[0]).await;
    let [one, other] = connections(stage);
    let winner = match both(stagger, hear(one, nodes[0]), hear(other, nodes[1])).await {
        (left, right) if left == [id] && right.is_empty() => Side::Left,
        (left, right) if left.is_empty() && right == [id] => Side::Right,
        other => panic!("one of both tells it, and the answers are {other:?}"),
    };
    clear(s, id, &nodes).await;
    winner
}

async fn two_replays(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    let [one, other] = connections(stage);
    let answers = both(stagger, replay(one, id), replay(other, id)).await;
    let refused = ReplayAnswer::Refused(StateName::Queued);
    let winner = match answers {
        (ReplayAnswer::Requeued, second) if second == refused => Side::Left,
        (second, ReplayAnswer::Requeued) if second == refused => Side::Right,
        other => panic!("one replay counts, and the answers are {other:?}"),
    };
    assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::Replayed));
    assert_eq!((s.counts().await.queued, s.task(id).await.runs), (1, 1));
    clear(s, id, &[node]).await;
    winner
}

/// The last millisecond of a lease: one side renews it; for the other side, one more millisecond has passed.
async fn renew_and_expire(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let lease = s.running(node).await;
    let (id, kept) = (lease.task(), lease.as_ref());
    s.pass(TTL);
    let [renewing, expiring] = connections(stage);
    let renew = async move { renewing.renew(node, &[kept]).await.expect("renew answers") };
    let clock = Arc::clone(s);
    let expire = async move {
        clock.pass(TICK);
        expire(expiring).await
    };
    let (renewed, expired) = both(stagger, renew, expire).await;
    let alive =
        s.store.survey().await.expect("survey answers").nodes.iter().any(|shown| shown.session == node);
    let shown = s.show(id).await;
    let winner = match renewed {
        Renewed::Held { lost, .. } => {
            assert_eq!((lost, expired), (Vec::new(), Expired::default()), "what was renewed is not expired");
            assert!(alive && shown.task.state.name() == StateName::Running);
            Side::Left
        }
        Renewed::Ended => {
            assert_eq!(expired, Expired { sessions: vec![node], tasks: 1, more: false });
            assert!(!alive);
            assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::LeaseExpired));
            assert_one_attempt(&shown, Ending::NodeDied);
            Side::Right
        }
    };
    clear(s, id, &[node]).await;
    winner
}

async fn prune_and_replay(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    let before = s.counts().await.submitted();
    let [pruning, replaying] = connections(stage);
    let prune = async move { pruning.prune(Prune::Tasks(vec![id])).await.expect("prune answers").tasks };
    let answers = both(stagger, prune, replay(replaying, id)).await;
    let winner = match answers {
        (1, ReplayAnswer::NotFound) => {
            assert!(s.find(id).await.is_none());
            Side::Left
        }
        (0, ReplayAnswer::Requeued) => {
            assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::Replayed));
            Side::Right
        }
        other => panic!("one of both counts, and the answers are {other:?}"),
    };
    assert_eq!(s.counts().await.submitted(), before, "what was submitted stays counted");
    clear(s, id, &[node]).await;
    winner
}

/// Two tasks wait and either side could take one; the first claim gets the probe, and the other gets nothing.
async fn two_claims_at_a_half_open_breaker(stage: &Stage, stagger: Stagger) -> Side {
    let s = &stage.scene;
    let policy = BreakerPolicy { trip: Trip::Consecutive(1), reset: TTL };
    let setting = BreakerSetting { policy, scope: BreakerScope::Queue };
    s.configure(QueueChange::Breaker(Some(setting))).await;
    s.configure(QueueChange::OpenBreaker(Some(Timestamp::ZERO))).await;
    let nodes = [s.join().await, s.join().await];
    let ids = [s.add().await, s.add().await];
    let [one, other] = connections(stage);
    let left = claim(one, Arc::clone(s), nodes[0]);
    let right = claim(other, Arc::clone(s), nodes[1]);
    let (winner, probe) = match both(stagger, left, right).await {
        (Some(probe), None) => (Side::Left, probe),
        (None, Some(probe)) => (Side::Right, probe),
        other => panic!("one probe goes, and the answers are {other:?}"),
    };
    let breaker = s.store.survey().await.expect("survey answers").queues[0].breaker;
    assert!(matches!(breaker, Some(BreakerState::HalfOpen { .. })), "{breaker:?}");
    assert_eq!((probe.task(), s.state(ids[1]).await), (ids[0], StateName::Queued));
    s.finish(probe, Outcome::Success).await;
    clear(s, ids[0], &[]).await;
    clear(s, ids[1], &nodes).await;
    winner
}
