//! Sessions: a node's liveness, and the workers it reports.

use std::time::Duration;

use ostler_core::{Ending, Outcome, Readiness, SessionId, StateName, Wait, Worker, WorkerId, WorkerState};

use super::super::scene::{Scene, TICK, TTL, invalid, with_token};
use super::runner::cases;
use ostler_store::calls::{ClaimAnswer, Fenced, NewSession, Renewed, Report, Start};
use ostler_store::views::{GoneWorker, Liveness, WorkerEnd};
use ostler_store::{Lease, LeaseRef, MAX_GONE_WORKERS, MAX_PAGE, MAX_UNNAMED};

cases![
    a_node_that_joined_is_shown,
    nodes_are_shown_in_the_order_they_came_up,
    a_session_joins_once,
    a_node_needs_a_name,
    a_renewal_holds_for_another_ttl,
    each_node_has_its_own_ttl,
    a_session_past_its_time_is_never_renewed,
    an_unknown_session_is_not_renewed,
    a_session_that_left_is_not_renewed,
    a_killed_node_is_shown_as_overdue,
    a_renewal_tells_what_was_lost,
    a_renewal_tells_what_was_cancelled,
    a_renewal_tells_what_the_node_did_not_name,
    what_the_node_did_not_name_can_be_handed_back,
    a_renewal_tells_of_so_many_leases_that_were_not_named,
    a_node_that_leaves_hands_back_what_it_holds,
    an_unknown_session_cannot_leave,
    workers_are_shown_as_reported,
    a_worker_is_shown_with_the_number_of_its_attempts,
    a_report_replaces_the_one_before,
    workers_of_an_ended_session_are_gone,
    workers_that_are_gone_leave_a_last_record,
    the_newest_records_of_gone_workers_are_kept,
    a_session_that_is_over_reports_nothing,
];

fn held(lost: &[LeaseRef]) -> Renewed {
    Renewed::Held {
        cancelled: Vec::new(),
        lost: lost.iter().map(|lease| lease.task).collect(),
        unnamed: Vec::new(),
        commands: Vec::new(),
    }
}

/// The leases that a renewal returns because the node did not name them.
async fn unnamed(s: &Scene, node: SessionId, named: &[LeaseRef]) -> Vec<LeaseRef> {
    match s.store.renew(node, named).await.expect("renew answers") {
        Renewed::Held { unnamed, .. } => unnamed,
        Renewed::Ended => panic!("{node} is over, and should not be"),
    }
}

fn worker(s: &Scene, state: WorkerState) -> Worker {
    Worker {
        id: s.worker(),
        name: format!("letters-{}", state.name()),
        pool: "letters".to_owned(),
        pid: Some(u32::MAX),
        state,
        memory_bytes: Some(1 << 40),
        started_at: s.now(),
        done: 3,
        failed: 1,
        task: Some((s.task_id(), s.now())),
    }
}

async fn life(s: &Scene) -> Vec<Liveness> {
    s.store.survey().await.expect("survey answers").nodes.iter().map(|node| node.liveness).collect()
}

async fn a_node_that_joined_is_shown(s: &Scene) {
    s.pass(TICK);
    let node = s.node(s.session_id());
    assert_eq!(s.store.join(node.clone()).await, Ok(Fenced::Recorded));
    let joined_at = s.now();
    s.pass(TICK);
    let nodes = s.store.survey().await.expect("survey answers").nodes;
    assert_eq!(nodes.len(), 1);
    let shown = &nodes[0];
    assert_eq!((shown.session, shown.pid, shown.ttl), (node.id, node.pid, node.ttl));
    assert_eq!((&shown.name, &shown.version, &shown.settings), (&node.name, &node.version, &node.settings));
    assert_eq!((shown.joined_at, shown.liveness), (joined_at, Liveness::Alive));
}

async fn nodes_are_shown_in_the_order_they_came_up(s: &Scene) {
    // Ids fall while the nodes join: the order is not the id order.
    let mut ids = vec![s.session_id(), s.session_id(), s.session_id()];
    ids.reverse();
    for id in &ids {
        s.store.join(s.node(*id)).await.expect("join answers");
    }
    let nodes = s.store.survey().await.expect("survey answers").nodes;
    assert_eq!(nodes.iter().map(|node| node.session).collect::<Vec<_>>(), ids);
}

async fn a_session_joins_once(s: &Scene) {
    let id = s.join().await;
    let before = s.picture().await;
    let again = NewSession { name: "other".to_owned(), ..s.node(id) };
    assert_eq!(s.store.join(again.clone()).await, Ok(Fenced::Lost));
    assert_eq!(s.picture().await, before);
    s.store.leave(id).await.expect("leave answers");
    assert_eq!(s.store.join(again).await, Ok(Fenced::Lost), "an ended session never comes back");
    assert!(life(s).await.is_empty());
}

async fn a_node_needs_a_name(s: &Scene) {
    for name in ["", "a\nb", "a\0b"] {
        let node = NewSession { name: name.to_owned(), ..s.node(s.session_id()) };
        invalid("a node's name", s.store.join(node).await);
    }
    assert!(life(s).await.is_empty());
}

async fn a_renewal_holds_for_another_ttl(s: &Scene) {
    let node = s.join().await;
    for _ in 0..3 {
        s.pass(TTL);
        assert_eq!(s.store.renew(node, &[]).await, Ok(held(&[])), "its time is just not over");
    }
    s.pass(TTL);
    assert_eq!(life(s).await, [Liveness::Alive]);
    s.pass(TICK);
    assert_eq!(life(s).await, [Liveness::Overdue]);
}

async fn each_node_has_its_own_ttl(s: &Scene) {
    let short = NewSession { ttl: Duration::from_secs(1), ..s.node(s.session_id()) };
    s.store.join(short).await.expect("join answers");
    s.join().await;
    s.pass(Duration::from_secs(2));
    assert_eq!(life(s).await, [Liveness::Overdue, Liveness::Alive]);
}

async fn a_session_past_its_time_is_never_renewed(s: &Scene) {
    let node = s.join().await;
    s.pass(TTL + TICK);
    for _ in 0..2 {
        assert_eq!(s.store.renew(node, &[]).await, Ok(Renewed::Ended));
        assert_eq!(life(s).await, [Liveness::Overdue], "the refused renewal renewed nothing");
    }
    s.store.expire(10).await.expect("expire answers");
    assert_eq!(s.store.renew(node, &[]).await, Ok(Renewed::Ended));
}

async fn an_unknown_session_is_not_renewed(s: &Scene) {
    assert_eq!(s.store.renew(s.session_id(), &[]).await, Ok(Renewed::Ended));
    assert!(life(s).await.is_empty());
}

async fn a_session_that_left_is_not_renewed(s: &Scene) {
    let node = s.join().await;
    s.store.leave(node).await.expect("leave answers");
    assert_eq!(s.store.renew(node, &[]).await, Ok(Renewed::Ended));
    assert_eq!(s.store.claim(s.asks(node, 1)).await, Ok(ClaimAnswer::SessionEnded));
}

async fn a_killed_node_is_shown_as_overdue(s: &Scene) {
    let [one, _other] = [s.join().await, s.join().await];
    s.fixture.kill(one).await;
    assert_eq!(life(s).await, [Liveness::Overdue, Liveness::Alive]);
}

async fn a_renewal_tells_what_was_lost(s: &Scene) {
    let [node, other] = [s.join().await, s.join().await];
    let mine = s.leased(node).await.as_ref();
    let theirs = s.leased(other).await.as_ref();
    let lease = s.running(node).await;
    let done = lease.as_ref();
    s.finish(lease, Outcome::Success).await;
    let unknown = LeaseRef { task: s.task_id(), ..mine };
    let answer = s.store.renew(node, &[done, mine, theirs, unknown]).await;
    assert_eq!(answer, Ok(held(&[done, theirs, unknown])), "in the order they were named");
    for token in [0, mine.token + 1] {
        let wrong = with_token(mine, token);
        let expected = Renewed::Held {
            cancelled: Vec::new(),
            lost: vec![wrong.task],
            unnamed: vec![mine],
            commands: Vec::new(),
        };
        assert_eq!(s.store.renew(node, &[wrong]).await, Ok(expected));
    }
    assert_eq!(s.store.renew(node, &[mine]).await, Ok(held(&[])));
}

async fn a_renewal_tells_what_was_cancelled(s: &Scene) {
    let [node, other] = [s.join().await, s.join().await];
    let mine = s.leased(node).await.as_ref();
    let theirs = s.leased(other).await.as_ref();
    s.store.cancel(vec![mine.task, theirs.task]).await.expect("cancel answers");
    for (held, unnamed) in [(vec![mine], Vec::new()), (Vec::new(), vec![mine])] {
        let answer = s.store.renew(node, &held).await;
        let expected =
            Renewed::Held { cancelled: vec![mine.task], lost: Vec::new(), unnamed, commands: Vec::new() };
        assert_eq!(answer, Ok(expected), "told until it ends, named or not");
    }
    s.finish(Lease::granted(mine), Outcome::Cancelled).await;
    assert_eq!(s.store.renew(node, &[mine]).await, Ok(held(&[mine])));
}

async fn a_renewal_tells_what_the_node_did_not_name(s: &Scene) {
    let [node, other] = [s.join().await, s.join().await];
    let [one, two] = [s.leased(node).await, s.running(node).await];
    s.leased(other).await;
    let (first, second) = (one.as_ref(), two.as_ref());
    for (named, expected) in [
        (vec![], vec![first, second]),
        (vec![second], vec![first]),
        (vec![first], vec![second]),
        (vec![first, second], vec![]),
    ] {
        assert_eq!(unnamed(s, node, &named).await, expected, "the oldest first, and only its own");
    }
    s.finish(one, Outcome::Success).await;
    assert_eq!(unnamed(s, node, &[]).await, [second], "what has ended is not leased");
}

async fn what_the_node_did_not_name_can_be_handed_back(s: &Scene) {
    let node = s.join().await;
    let [claimed, running] = [s.leased(node).await.as_ref(), s.running(node).await.as_ref()];
    let leases: Vec<Lease> = unnamed(s, node, &[]).await.into_iter().map(Lease::granted).collect();
    assert_eq!(s.store.finish(Report::hand_backs(leases)).await.expect("finish answers").len(), 2);
    for lease in [claimed, running] {
        assert_eq!(s.waits(lease.task).await, (Readiness::Ready, Wait::HandedBack));
        let task = s.task(lease.task).await;
        assert_eq!((task.failures, task.node_deaths, task.suspect), (0, 0, false), "no failure counts");
    }
    assert_eq!(unnamed(s, node, &[]).await, []);
}

async fn a_renewal_tells_of_so_many_leases_that_were_not_named(s: &Scene) {
    let node = s.join().await;
    for _ in 0..=MAX_UNNAMED {
        s.add().await;
    }
    let tasks = s.claim(node, MAX_UNNAMED + 1).await;
    let leases: Vec<LeaseRef> = tasks.iter().map(|task| task.lease.as_ref()).collect();
    assert_eq!(leases.len(), MAX_UNNAMED + 1);
    assert_eq!(unnamed(s, node, &[]).await, leases[..MAX_UNNAMED]);
}

async fn a_node_that_leaves_hands_back_what_it_holds(s: &Scene) {
    let [node, other] = [s.join().await, s.join().await];
    let claimed = s.leased(node).await.task();
    let running = s.running(node).await.task();
    let theirs = s.leased(other).await.task();
    assert_eq!(s.store.leave(node).await, Ok(Fenced::Recorded));
    for id in [claimed, running] {
        assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::HandedBack));
        let task = s.task(id).await;
        assert_eq!((task.failures, task.node_deaths, task.suspect), (0, 0, false), "no death counts");
    }
    let ending = s.show(running).await.attempts[0].end.as_ref().map(|end| end.ending);
    assert_eq!(ending, Some(Ending::HandedBack));
    assert_eq!(s.state(theirs).await, StateName::Claimed);
    assert_eq!(life(s).await.len(), 1);
    assert_eq!(s.store.leave(node).await, Ok(Fenced::Lost), "it left before");
}

async fn an_unknown_session_cannot_leave(s: &Scene) {
    assert_eq!(s.store.leave(s.session_id()).await, Ok(Fenced::Lost));
}

async fn workers_are_shown_as_reported(s: &Scene) {
    let node = s.join().await;
    let mut workers: Vec<Worker> = WorkerState::ALL.into_iter().map(|state| worker(s, state)).collect();
    workers[0] = Worker { pid: None, memory_bytes: None, task: None, ..workers[0].clone() };
    assert_eq!(s.store.report(node, workers.clone(), Vec::new()).await, Ok(Fenced::Recorded));
    let seen = s.now();
    s.pass(TICK);
    let shown = s.picture().await.survey.workers;
    assert!(shown.iter().all(|record| record.session == node && record.last_seen == seen));
    assert_eq!(shown.into_iter().map(|record| record.worker).collect::<Vec<_>>(), workers);
}

async fn a_worker_is_shown_with_the_number_of_its_attempts(s: &Scene) {
    let node = s.join().await;
    let [crowded, idle] = [WorkerState::Busy, WorkerState::Idle].map(|state| worker(s, state));
    s.store.report(node, vec![crowded.clone(), idle], Vec::new()).await.expect("report answers");
    let (first, second, _claimed) = (s.leased(node).await, s.leased(node).await, s.leased(node).await);
    for lease in [&first, &second] {
        let start = Start { lease: lease.as_ref(), worker: crowded.id };
        assert_eq!(s.store.start(vec![start]).await, Ok(vec![Fenced::Recorded]));
    }
    let counts = async || {
        let workers = s.picture().await.survey.workers;
        workers.iter().map(|record| record.tasks).collect::<Vec<_>>()
    };
    assert_eq!(counts().await, [2, 0], "one is only claimed");
    s.finish(first, Outcome::Success).await;
    assert_eq!(counts().await, [1, 0]);
}

async fn a_report_replaces_the_one_before(s: &Scene) {
    let [node, other] = [s.join().await, s.join().await];
    let [old, new, theirs] = [0; 3].map(|_| worker(s, WorkerState::Idle));
    s.store.report(node, vec![old], Vec::new()).await.expect("report answers");
    s.store.report(other, vec![theirs.clone()], Vec::new()).await.expect("report answers");
    s.store.report(node, vec![new.clone()], Vec::new()).await.expect("report answers");
    let ids = |workers: &[ostler_store::views::WorkerRecord]| {
        workers.iter().map(|record| record.worker.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&s.picture().await.survey.workers), [new.id, theirs.id]);
    s.store.report(node, Vec::new(), Vec::new()).await.expect("report answers");
    assert_eq!(ids(&s.picture().await.survey.workers), [theirs.id]);
}

async fn workers_of_an_ended_session_are_gone(s: &Scene) {
    let [gone, dead] = [s.join().await, s.join().await];
    for node in [gone, dead] {
        s.store.report(node, vec![worker(s, WorkerState::Busy)], Vec::new()).await.expect("report answers");
    }
    s.store.leave(gone).await.expect("leave answers");
    assert_eq!(s.picture().await.survey.workers.len(), 1);
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    assert!(s.picture().await.survey.workers.is_empty());
}

async fn workers_that_are_gone_leave_a_last_record(s: &Scene) {
    let [one, other, dead] = [s.join().await, s.join().await, s.join().await];
    let gone = |session, worker: &Worker, end| GoneWorker {
        session,
        node: "stable".to_owned(),
        worker: Worker { task: None, ..worker.clone() },
        end,
        gone_at: s.now(),
    };
    let [closed, left, died] =
        [WorkerState::Killed, WorkerState::Idle, WorkerState::Busy].map(|state| worker(s, state));
    let closed = Worker { pid: None, memory_bytes: None, ..closed };
    s.store.report(one, Vec::new(), vec![closed.clone()]).await.expect("report answers");
    let first = gone(one, &closed, WorkerEnd::Closed);
    assert_eq!(s.store.gone_workers(10).await, Ok(vec![first.clone()]));
    s.store.report(other, vec![left.clone()], Vec::new()).await.expect("report answers");
    s.store.report(dead, vec![died.clone()], Vec::new()).await.expect("report answers");
    assert_eq!(s.store.gone_workers(10).await, Ok(vec![first.clone()]), "the others are there");
    s.pass(TICK);
    s.store.leave(other).await.expect("leave answers");
    let second = gone(other, &left, WorkerEnd::Closed);
    s.fixture.kill(dead).await;
    s.store.expire(10).await.expect("expire answers");
    let third = gone(dead, &died, WorkerEnd::NodeDied);
    assert_eq!(s.store.gone_workers(10).await, Ok(vec![third.clone(), second, first]));
    assert_eq!(s.fixture.second().await.gone_workers(1).await, Ok(vec![third]));
    invalid("a large page", s.store.gone_workers(MAX_PAGE + 1).await);
}

async fn the_newest_records_of_gone_workers_are_kept(s: &Scene) {
    let node = s.join().await;
    let some = |count: usize| (0..count).map(|_| worker(s, WorkerState::Draining)).collect::<Vec<_>>();
    let (all, last) = (some(MAX_GONE_WORKERS), some(3));
    invalid("too many", s.store.report(node, Vec::new(), some(MAX_GONE_WORKERS + 1)).await);
    for closed in [all.clone(), last.clone()] {
        s.store.report(node, Vec::new(), closed).await.expect("report answers");
    }
    let kept = s.store.gone_workers(MAX_PAGE).await.expect("gone_workers answers");
    let kept: Vec<WorkerId> = kept.into_iter().map(|gone| gone.worker.id).collect();
    let expected: Vec<WorkerId> = all[3..].iter().chain(&last).rev().map(|worker| worker.id).collect();
    assert_eq!(kept, expected);
}

async fn a_session_that_is_over_reports_nothing(s: &Scene) {
    let [late, gone] = [s.join().await, s.join().await];
    s.store.leave(gone).await.expect("leave answers");
    s.pass(TTL + TICK);
    for node in [late, gone, s.session_id()] {
        let report = vec![worker(s, WorkerState::Idle)];
        assert_eq!(s.store.report(node, report, Vec::new()).await, Ok(Fenced::Lost));
    }
    assert!(s.picture().await.survey.workers.is_empty());
}
