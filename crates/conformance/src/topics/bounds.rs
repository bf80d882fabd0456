//! Bounds of the contract: a value at the bound is accepted, one above it is refused, and nothing of the call is written.

use ostler_core::{EventBody, MAX_NESTING, Outcome, TaskId, Worker, WorkerState};
use ostler_store::events::{EventQuery, TextRef};

use super::super::scene::{QUEUE, Scene, invalid, report};
use super::runner::cases;
use ostler_store::ErrorKind;
use ostler_store::calls::{
    Fenced, NewSession, NewStep, NewTask, Prune, QueueChange, Replay, Report, Retention, Start,
};
use ostler_store::unique::Unique;
use ostler_store::views::Filter;
use ostler_store::{
    Bounds, MAX_BATCH, MAX_CLAIM, MAX_EVENT_BYTES, MAX_EVENTS, MAX_KEY_BYTES, MAX_MAINTENANCE_BATCH,
    MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_PAGE, MAX_WORKERS,
};
use ostler_store::{Lease, LeaseRef};

cases![
    tasks_in_one_call,
    names,
    keys,
    a_payload,
    a_folder,
    a_claim,
    leases_in_one_call,
    a_refused_report_is_given_back,
    an_output,
    events,
    a_step,
    ids_in_one_call,
    batches,
    pages,
    workers,
    settings,
];

/// A lease of an unknown task.
fn unknown_lease(s: &Scene) -> LeaseRef {
    LeaseRef { task: s.task_id(), token: 1, row: 0 }
}

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// JSON with `levels` nested arrays.
fn deep(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

async fn tasks_in_one_call(s: &Scene) {
    let task = s.draft();
    let before = s.picture().await;
    invalid("too many tasks", s.store.enqueue(vec![task.clone(); MAX_BATCH + 1]).await);
    assert_eq!(s.picture().await, before);
    let answers = s.store.enqueue(vec![task; MAX_BATCH]).await.expect("what fits is taken");
    assert_eq!((answers.len(), s.counts().await.submitted()), (MAX_BATCH, 1));
}

async fn names(s: &Scene) {
    let named = |queue: usize, kind: usize| NewTask { queue: long(queue), kind: long(kind), ..s.draft() };
    invalid("a long queue", s.store.enqueue(vec![named(MAX_NAME_BYTES + 1, 1)]).await);
    invalid("a long kind", s.store.enqueue(vec![named(1, MAX_NAME_BYTES + 1)]).await);
    // Bytes, not characters.
    let wide = NewTask { queue: "\u{e9}".repeat(MAX_NAME_BYTES / 2 + 1), ..s.draft() };
    invalid("a queue of wide letters", s.store.enqueue(vec![wide]).await);
    let node = |bytes| NewSession { name: long(bytes), ..s.node(s.session_id()) };
    invalid("a long node", s.store.join(node(MAX_NAME_BYTES + 1)).await);
    assert!(s.picture().await.survey == ostler_store::views::Survey::default());
    s.enqueue(named(MAX_NAME_BYTES, MAX_NAME_BYTES)).await;
    assert_eq!(s.store.join(node(MAX_NAME_BYTES)).await, Ok(Fenced::Recorded));
}

async fn keys(s: &Scene) {
    let some = |bytes| Some(long(bytes));
    let over = MAX_KEY_BYTES + 1;
    invalid(
        "a long unique key",
        s.store.enqueue(vec![NewTask { unique: some(over).map(Unique::new), ..s.draft() }]).await,
    );
    invalid("a long limit key", s.store.enqueue(vec![NewTask { limit_key: some(over), ..s.draft() }]).await);
    assert_eq!(s.counts().await.submitted(), 0);
    s.add_with(|task| {
        task.unique = some(MAX_KEY_BYTES).map(Unique::new);
        task.limit_key = some(MAX_KEY_BYTES);
    })
    .await;
}

async fn a_payload(s: &Scene) {
    let most = Bounds::default().payload_bytes;
    invalid("a large payload", s.store.enqueue(vec![NewTask { payload: long(most + 1), ..s.draft() }]).await);
    let nested = |levels| NewTask { payload: deep(levels), ..s.draft() };
    invalid("a deep payload", s.store.enqueue(vec![nested(MAX_NESTING + 1)]).await);
    assert_eq!(s.counts().await.submitted(), 0);
    let id = s.enqueue(nested(MAX_NESTING)).await;
    s.cancel(id).await;
    let id = s.add_with(|task| task.payload = long(most)).await;
    s.cancel(id).await;
    let with = |bytes| Replay { payload: Some(long(bytes)), ..Replay::default() };
    let before = s.picture().await;
    invalid("a large payload in a replay", s.store.replay(vec![id], with(most + 1)).await);
    assert!(s.picture().await == before, "nothing was written");
    s.store.replay(vec![id], with(most)).await.expect("what fits is taken");
    assert_eq!(s.task(id).await.payload.len(), most);
}

async fn a_folder(s: &Scene) {
    let folder = |bytes| NewTask { folder: Some(long(bytes)), ..s.draft() };
    invalid("a long folder", s.store.enqueue(vec![folder(MAX_MESSAGE_BYTES + 1)]).await);
    s.enqueue(folder(MAX_MESSAGE_BYTES)).await;
    assert_eq!(s.counts().await.submitted(), 1);
}

async fn a_claim(s: &Scene) {
    let node = s.join().await;
    let id = s.add().await;
    invalid("a large claim", s.store.claim(s.asks(node, MAX_CLAIM + 1)).await);
    assert_eq!(s.task(id).await.token, 0);
    assert_eq!(s.claim_ids(node, MAX_CLAIM).await, vec![id]);
}

async fn leases_in_one_call(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await.as_ref();
    let before = s.picture().await;
    let worker = s.worker();
    let starts = |count| vec![Start { lease, worker }; count];
    invalid("too many starts", s.store.start(starts(MAX_BATCH + 1)).await);
    invalid("too many renewed leases", s.store.renew(node, &vec![lease; MAX_BATCH + 1]).await);
    let back = |count| (0..count).map(|_| Lease::granted(lease)).collect::<Vec<_>>();
    let refused = s.store.finish(Report::hand_backs(back(MAX_BATCH + 1))).await.expect_err("too many leases");
    assert_eq!((refused.error.kind(), refused.reports.len()), (ErrorKind::Invalid, MAX_BATCH + 1));
    assert_eq!(s.picture().await, before);
    assert_eq!(s.store.start(starts(MAX_BATCH)).await.map(|answers| answers.len()), Ok(MAX_BATCH));
    s.store.renew(node, &vec![lease; MAX_BATCH]).await.expect("what fits is taken");
    assert_eq!(
        s.store.finish(Report::hand_backs(back(MAX_BATCH))).await.expect("what fits is taken").len(),
        MAX_BATCH
    );
    let shown = s.show(lease.task).await;
    assert_eq!((shown.task.runs, shown.attempts.len(), s.counts().await.queued), (1, 1, 1));
}

async fn a_refused_report_is_given_back(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let kept = lease.as_ref();
    let before = s.picture().await;
    let most = Bounds::default().output_bytes;
    let good = report(Lease::granted(unknown_lease(s)), Outcome::Success);
    let bad = Report { output: Some(long(most + 1)), ..report(lease, Outcome::Success) };
    let mut refused = s.store.finish(vec![good, bad]).await.expect_err("a large output");
    assert_eq!(refused.error.kind(), ErrorKind::Invalid);
    assert_eq!(s.picture().await, before, "none was written");
    let back = refused.reports.pop().expect("all of them are given back");
    assert_eq!((back.lease.as_ref(), refused.reports.len()), (kept, 1));
    let nul = Report { output: Some("\0".to_owned()), ..back };
    let mut refused = s.store.finish(vec![nul]).await.expect_err("a NUL in the output");
    let again = refused.reports.pop().expect("it is given back");
    let nested = Report { output: Some(deep(MAX_NESTING + 1)), ..again };
    let mut refused = s.store.finish(vec![nested]).await.expect_err("a deep output");
    let again = refused.reports.pop().expect("it is given back");
    s.store.finish(vec![Report { output: None, ..again }]).await.expect("now it is right");
    assert_eq!(s.counts().await.completed, 1);
}

async fn an_output(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    let output = Some(long(Bounds::default().output_bytes));
    let size = output.as_ref().map(String::len);
    s.store
        .finish(vec![Report { output, ..report(lease, Outcome::Success) }])
        .await
        .expect("what fits is taken");
    assert_eq!(s.task(id).await.output.map(|output| output.len()), size);
}

async fn events(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let event = |bytes| EventBody::line(long(bytes));
    let nul = EventBody::line("\0");
    invalid("too many events", s.store.append(lease, vec![event(1); MAX_EVENTS + 1]).await);
    invalid("a large event", s.store.append(lease, vec![event(1), event(MAX_EVENT_BYTES + 1)]).await);
    invalid("a NUL in an event", s.store.append(lease, vec![event(1), nul]).await);
    assert!(s.events(lease.task).await.is_empty());
    s.store.append(lease, vec![event(1); MAX_EVENTS]).await.expect("what fits is taken");
    s.store.append(lease, vec![event(MAX_EVENT_BYTES)]).await.expect("what fits is taken");
    assert_eq!(s.events(lease.task).await.len(), MAX_EVENTS + 1);
}

async fn a_step(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let most = Bounds::default().step_bytes;
    let step = |name, value| NewStep { name: long(name), value: long(value) };
    invalid("a large step", s.store.save_step(lease, step(1, most + 1)).await);
    invalid("a long name", s.store.save_step(lease, step(MAX_NAME_BYTES + 1, 1)).await);
    let nul = NewStep { name: "a".to_owned(), value: "\0".to_owned() };
    invalid("a NUL in a step", s.store.save_step(lease, nul).await);
    let nested = NewStep { name: "a".to_owned(), value: deep(MAX_NESTING + 1) };
    invalid("a deep step", s.store.save_step(lease, nested).await);
    assert!(s.show(lease.task).await.steps.is_empty());
    s.store.save_step(lease, step(MAX_NAME_BYTES, most)).await.expect("what fits is taken");
    assert_eq!(s.show(lease.task).await.steps[0].value.len(), most);
}

async fn ids_in_one_call(s: &Scene) {
    let id = s.add().await;
    let before = s.picture().await;
    let many = |count| -> Vec<TaskId> { vec![id; count] };
    invalid("too many cancels", s.store.cancel(many(MAX_BATCH + 1)).await);
    invalid("too many replays", s.store.replay(many(MAX_BATCH + 1), Replay::default()).await);
    invalid("too many to prune", s.store.prune(Prune::Tasks(many(MAX_BATCH + 1))).await);
    assert_eq!(s.picture().await, before);
    assert_eq!(s.store.cancel(many(MAX_BATCH)).await.map(|answers| answers.len()), Ok(MAX_BATCH));
    let answers = s.store.replay(many(MAX_BATCH), Replay::default()).await;
    assert_eq!(answers.map(|answers| answers.len()), Ok(MAX_BATCH));
    s.cancel(id).await;
    let pruned = s.store.prune(Prune::Tasks(many(MAX_BATCH))).await.expect("what fits is taken");
    assert_eq!((pruned.tasks, pruned.more), (1, false));
}

async fn batches(s: &Scene) {
    let over = MAX_MAINTENANCE_BATCH + 1;
    let keep = |batch| Prune::Retention(Retention { batch, ..Retention::default() });
    invalid("a large batch", s.store.expire(over).await);
    invalid("a large batch", s.store.make_ready(over).await);
    invalid("a large batch", s.store.prune(keep(over)).await);
    s.store.expire(MAX_MAINTENANCE_BATCH).await.expect("what fits is taken");
    s.store.make_ready(MAX_MAINTENANCE_BATCH).await.expect("what fits is taken");
    s.store.prune(keep(MAX_MAINTENANCE_BATCH)).await.expect("what fits is taken");
}

async fn pages(s: &Scene) {
    let id = s.add().await;
    invalid("a large page", s.store.list(Filter::default(), None, MAX_PAGE + 1).await);
    invalid(
        "many events",
        s.store.read_events(id, EventQuery { limit: MAX_PAGE + 1, ..EventQuery::default() }).await,
    );
    invalid("many bytes", s.store.read_text(id, TextRef::Output, 0, MAX_EVENT_BYTES + 1).await);
    let page = s.store.list(Filter::default(), None, MAX_PAGE).await.expect("what fits is taken");
    assert_eq!(page.tasks.len(), 1);
    s.store.read_events(id, EventQuery::default()).await.expect("what fits is taken");
}

async fn workers(s: &Scene) {
    let node = s.join().await;
    let worker = |pool: &str| Worker {
        id: s.worker(),
        name: "w".to_owned(),
        pool: pool.to_owned(),
        pid: None,
        state: WorkerState::Idle,
        memory_bytes: None,
        started_at: s.now(),
        done: 0,
        failed: 0,
        task: None,
    };
    let many = |count: usize| (0..count).map(|_| worker("p")).collect::<Vec<_>>();
    invalid("too many workers", s.store.report(node, many(MAX_WORKERS + 1), Vec::new()).await);
    for pool in ["", "a\nb", &long(MAX_NAME_BYTES + 1)] {
        invalid("a pool's name", s.store.report(node, vec![worker("p"), worker(pool)], Vec::new()).await);
    }
    let named = Worker { name: long(2 * MAX_NAME_BYTES), ..worker("p") };
    invalid("a worker's name", s.store.report(node, vec![named], Vec::new()).await);
    assert!(s.picture().await.survey.workers.is_empty());
    s.store.report(node, many(MAX_WORKERS), Vec::new()).await.expect("what fits is taken");
    assert_eq!(s.picture().await.survey.workers.len(), MAX_WORKERS);
}

async fn settings(s: &Scene) {
    let before = s.picture().await;
    let pause = |bytes| QueueChange::Pause(long(bytes));
    invalid("a long reason", s.store.configure(QUEUE, vec![pause(MAX_MESSAGE_BYTES + 1)]).await);
    invalid("too many changes", s.store.configure(QUEUE, vec![QueueChange::Resume; MAX_BATCH + 1]).await);
    invalid("a long queue", s.store.configure(&long(MAX_NAME_BYTES + 1), vec![QueueChange::Resume]).await);
    assert_eq!(s.picture().await, before);
    let settings = s.store.configure(QUEUE, vec![pause(MAX_MESSAGE_BYTES); MAX_BATCH]).await;
    assert_eq!(
        settings.map(|settings| settings.paused.map(|reason| reason.len())),
        Ok(Some(MAX_MESSAGE_BYTES))
    );
}
