//! What the views for people must show: a store with a row for each of them, queries, and their answers.

use std::time::Duration;

use ostler_core::{
    Cost, ErrorClass, EventBody, Failure, JobId, Missed, Outcome, Overlap, Overrides, Priority, State, Task,
    TaskId, Timestamp, Usage, Worker, WorkerState,
};
use ostler_store::Store;
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, NewTask, Ran, Report, Start};
use ostler_store::jobs::NewJob;
use ostler_store::schedules::{Schedule, TaskTemplate};
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;

use crate::Ids;

/// A query on the views, and its rows. Nothing is an empty text; every number is its text.
#[derive(Debug)]
pub struct ViewCase {
    /// The views are named without a schema.
    pub sql: &'static str,
    pub rows: Vec<Vec<String>>,
}

/// Characters of an output that is too long for a row.
const LONG: usize = 70_000;

/// Fills an empty store, and returns what its views must show.
///
/// # Panics
/// If the store refuses something.
pub async fn view_cases(store: &dyn Store, ids: &Ids) -> Vec<ViewCase> {
    let node = ids.new_session("here", Duration::from_secs(60));
    let session = node.id;
    let worker = ids.worker();
    store.join(node).await.expect("it joins");
    let add = async |change: &dyn Fn(&mut NewTask)| {
        let mut task = ids.new_task("mail", "send");
        change(&mut task);
        let id = task.id;
        store.enqueue(vec![task]).await.expect("it is enqueued");
        id
    };
    let claim = async || {
        let claim = Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 1 };
        match store.claim(claim).await.expect("claim answers") {
            ClaimAnswer::Tasks { mut tasks, .. } => tasks.pop().expect("a task is ready").lease,
            ClaimAnswer::SessionEnded => panic!("the node is alive"),
        }
    };
    let report = async |report: Report| {
        store.finish(vec![report]).await.expect("finish answers");
    };
    let mut all: Vec<TaskId> = Vec::new();
    // A success whose start and finish are one write, and one with a record of its own.
    all.push(add(&|task| task.unique = Some(Unique::new("it's \"one\""))).await);
    let ran = Some(Ran { worker, took: Duration::from_millis(7) });
    report(Report {
        lease: claim().await,
        ran,
        outcome: Outcome::Success,
        output: Some("[1]".to_owned()),
        reading: None,
    })
    .await;
    all.push(add(&|task| task.cost = Some(3)).await);
    let lease = claim().await;
    store.start(vec![Start { lease: lease.as_ref(), worker }]).await.expect("it starts");
    let long = format!("\"{}\"", "é".repeat(LONG));
    report(Report { lease, ran: None, outcome: Outcome::Success, output: Some(long), reading: None }).await;
    all.push(add(&|task| task.folder = Some("/srv".to_owned())).await);
    let failure = Failure {
        details: Some("line 1\nline 2".to_owned()),
        step: Some("second".to_owned()),
        exit_code: Some(9),
        ..Failure::new(ErrorClass::Permanent, "no\u{0} \"such\" thing")
    };
    report(Report {
        lease: claim().await,
        ran,
        outcome: Outcome::Failed(failure),
        output: None,
        reading: None,
    })
    .await;
    all.push(add(&|task| task.limit_key = Some("tenant".to_owned())).await);
    store.cancel(all[3..].to_vec()).await.expect("it is cancelled");
    all.push(add(&|_| {}).await);
    let lease = claim().await;
    store.start(vec![Start { lease: lease.as_ref(), worker }]).await.expect("it starts");
    let usage =
        Usage { model: Some("m".to_owned()), cost: Some(Cost::from_nanos(250_000_000)), ..Usage::default() };
    let conversation = vec![EventBody::Session { id: "s-1".to_owned() }, EventBody::Usage(usage)];
    store.append(lease.as_ref(), conversation).await.expect("events are stored");
    all.push(add(&|_| {}).await);
    claim().await;
    let later = Timestamp::from_millis(9_000_000_000_000);
    all.push(
        add(&|task| {
            (task.run_at, task.not_after, task.deadline) = (Some(later), Some(later), Some(later));
            task.priority = Priority::new(-5).expect("in range");
        })
        .await,
    );
    all.push(add(&|task| task.after = vec![all[4]]).await);
    let name = |text: &str| text.to_owned();
    let (id, spec) = (JobId(ids.task().0), name("{}"));
    let job = NewJob { id, name: name("job"), fingerprint: name("f"), spec, items: 2 };
    store.put_job(job).await.expect("the job is stored");
    let (queue, kind, payload) = (name("mail"), name("send"), name("{}"));
    let task =
        TaskTemplate { queue, kind, payload, priority: Priority::default(), overrides: Overrides::NONE };
    let (overlap, missed, next_at) = (Overlap::Queue, Missed::One, Some(later));
    let schedule =
        Schedule { name: name("nightly"), spec: name("0 3 * * *"), overlap, missed, task, next_at };
    store.put_schedule(schedule).await.expect("the schedule is stored");
    let at = Timestamp::from_millis(1_700_000_000_000);
    let (pid, state, busy) = (Some(42), WorkerState::Busy, Some((all[4], at)));
    let pool = name("mail");
    let reported = Worker {
        id: worker,
        name: "docs-1".to_owned(),
        pool,
        pid,
        state,
        memory_bytes: Some(5),
        started_at: at,
        done: 2,
        failed: 1,
        task: busy,
    };
    store.report(session, vec![reported], Vec::new()).await.expect("the worker is reported");
    let mut tasks = Vec::new();
    for id in &all {
        let shown = store.show(TaskRef::Id(*id)).await.expect("show answers").expect("it is there");
        tasks.push(shown.task);
    }
    let texts = |parts: &[&dyn ToString]| parts.iter().map(|part| part.to_string()).collect::<Vec<String>>();
    let failed = "no\u{fffd} \"such\" thing";
    vec![
        ViewCase {
            sql: "SELECT id, queue, kind, state, waits_for, reason, priority, payload, output, key, limit_key, cost, runs, failures,
                crashes, node_deaths, error_class, folder, node, node_name, token FROM tasks ORDER BY id",
            rows: tasks.iter().map(task_row).collect(),
        },
        ViewCase {
            sql: "SELECT task, queue, kind, number, state, worker, node, token, error_class, error_details, failed_step, hint, exit_code
                FROM attempts ORDER BY task",
            rows: vec![
                texts(&[&all[0], &"mail", &"send", &1, &"completed", &worker, &session, &1, &"", &"", &"", &"", &""]),
                texts(&[&all[1], &"mail", &"send", &1, &"completed", &worker, &session, &1, &"", &"", &"", &"", &""]),
                texts(&[
                    &all[2], &"mail", &"send", &1, &"failed", &worker, &session, &1, &"permanent", &"line 1\nline 2", &"second", &"", &9,
                ]),
                texts(&[&all[4], &"mail", &"send", &1, &"running", &worker, &session, &1, &"", &"", &"", &"", &""]),
            ],
        },
        ViewCase {
            sql: "SELECT id, output_bytes FROM tasks WHERE output_bytes > 0 ORDER BY id",
            rows: vec![texts(&[&all[0], &3]), texts(&[&all[1], &(2 * LONG + 2)])],
        },
        ViewCase {
            sql: "SELECT task, session_id, CAST(cost_usd * 1000 AS integer) FROM attempts WHERE usage IS NOT NULL",
            rows: vec![texts(&[&all[4], &"s-1", &250])],
        },
        ViewCase {
            sql: "SELECT id, queue, kind, payload, key, reason, failures, error_class, replace(error, '\u{fffd}', '?') FROM dead_letters",
            rows: vec![texts(&[
                &all[2], &"mail", &"send", &"{}", &"", &"permanent", &1, &"permanent", &failed.replace('\u{fffd}', "?"),
            ])],
        },
        ViewCase {
            sql: "SELECT name, paused, queued, claimed, running, completed, failed, cancelled FROM queues",
            rows: vec![texts(&[&"mail", &"", &2, &1, &1, &2, &1, &1])],
        },
        ViewCase {
            sql: "SELECT id, name, host, pid, version, leases FROM nodes",
            rows: vec![texts(&[&session, &"here", &"stable-1", &std::process::id(), &"0.1.0", &2])],
        },
        ViewCase {
            sql: "SELECT id, queue, node, node_name, pid, state, memory_bytes, done, failed, task FROM workers",
            rows: vec![texts(&[&worker, &"mail", &session, &"here", &42, &"busy", &5, &2, &1, &all[4]])],
        },
        ViewCase {
            sql: "SELECT id, name, items, cancelled_at, queued, completed FROM jobs",
            rows: vec![texts(&[&id, &"job", &2, &"", &0, &0])],
        },
        ViewCase {
            sql: "SELECT name, spec, queue, kind, payload, priority, overlap, missed, state, last_task FROM schedules",
            rows: vec![texts(&[
                &"nightly", &"0 3 * * *", &"mail", &"send", &"{}", &0, &"queue", &"one", &"active", &"",
            ])],
        },
    ]
}

fn task_row(task: &Task) -> Vec<String> {
    let (waits_for, reason, node) = match task.state {
        State::Queued { why, .. } => (why.name(), "", None),
        State::Claimed { session } | State::Running { session, .. } => ("", "", Some(session)),
        State::Completed { .. } => ("", "", None),
        State::Failed { reason, .. } => ("", reason.name(), None),
        State::Cancelled { reason, .. } => ("", reason.name(), None),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![
        task.id.to_string(),
        task.queue.clone(),
        task.kind.clone(),
        task.state.name().name().to_owned(),
        waits_for.to_owned(),
        reason.to_owned(),
        task.priority.points().to_string(),
        task.payload.clone(),
        task.output.clone().filter(|output| output.len() < LONG).unwrap_or_default(),
        text(&task.unique_key),
        text(&task.limit_key),
        task.cost.to_string(),
        task.runs.to_string(),
        task.failures.to_string(),
        task.crashes.to_string(),
        task.node_deaths.to_string(),
        task.last_failure.as_ref().map_or("", |failure| failure.class.name()).to_owned(),
        text(&task.folder),
        node.map(|node| node.to_string()).unwrap_or_default(),
        node.map(|_| "here".to_owned()).unwrap_or_default(),
        task.token.to_string(),
    ]
}
