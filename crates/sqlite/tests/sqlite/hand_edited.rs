//! Rows edited by hand: reading such a row is an error, nothing panics, and other tasks continue.

use std::path::Path;
use std::time::Duration;

use ostler_core::{Missed, Outcome, Overlap, Overrides, Priority, SessionId, StateName, TaskId};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Fenced, Finished, Kinds, Renewed, Report};
use ostler_store::node_commands::{CommandAnswer, NodeCommand, NumberedCommand};
use ostler_store::schedules::{Fired, Firing, PutAnswer, Schedule, Skipped, TaskTemplate};
use ostler_store::views::TaskRef;
use ostler_store::{Clock, Error, ErrorKind, Store};
use ostler_testkit::{Ids, TempStore};
use rusqlite::Connection;

/// Edits that Ostler never makes. None of them makes a task ready.
const EDITS: [(&str, &str); 7] = [
    ("a phase that there is not", "phase = 99"),
    ("a negative phase", "phase = -1"),
    ("overrides that are not JSON", "phase = 1, run_at = 9000000000000000, extras = '{\"attempts\":'"),
    (
        "overrides of another shape",
        "phase = 1, run_at = 9000000000000000, extras = '{\"attempts\":\"many\"}'",
    ),
    ("a failure that is not JSON", "phase = 6, finished_at = 1, failure = 'oops'"),
    ("a reason that there is not", "phase = 6, finished_at = 1, why = 77"),
    ("a lease without a session", "phase = 3, session = NULL"),
];

fn edit(path: &Path, id: TaskId, change: &str) {
    let conn = Connection::open(path).expect("the file opens");
    let edited =
        conn.execute(&format!("UPDATE task SET {change} WHERE uid = ?1"), [id.0.to_bytes().to_vec()]);
    assert_eq!(edited, Ok(1), "{change}");
}

async fn node(store: &dyn Store, ids: &Ids) -> SessionId {
    let node = ids.new_session("here", Duration::from_secs(60));
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

async fn claim(store: &dyn Store, session: SessionId) -> Result<Vec<Claimed>, Error> {
    let asks = Claim { session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 10 };
    match store.claim(asks).await? {
        ClaimAnswer::Tasks { tasks, .. } => Ok(tasks),
        ClaimAnswer::SessionEnded => panic!("the session is over, and should not be"),
    }
}

async fn complete(store: &dyn Store, claimed: Claimed) {
    let report =
        Report { lease: claimed.lease, ran: None, outcome: Outcome::Success, output: None, reading: None };
    let finished = store.finish(vec![report]).await.expect("finish answers");
    assert_eq!(finished, [Finished::Recorded(StateName::Completed)]);
}

#[tokio::test]
async fn an_edited_row_is_an_error_only_for_calls_that_read_it() {
    for (what, change) in EDITS {
        let (here, _clock) = TempStore::manual();
        let store = here.store();
        let ids = Ids::new(1);
        let tasks = ids.new_tasks(3, "mail", "send");
        let (edited, other) = (tasks[0].id, tasks[1].id);
        store.enqueue(tasks).await.expect("enqueue answers");
        edit(&here.path(), edited, change);

        let error = store.show(TaskRef::Id(edited)).await.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::BadRow, "{what}: {error}");
        assert!(error.to_string().len() > 20, "{what}: {error}");
        assert!(store.show(TaskRef::Id(other)).await.expect("show answers").is_some(), "{what}");

        // Requests for the edited task fail; a concurrent request for another one does not.
        let (one, both) = tokio::join!(store.cancel(vec![edited]), store.cancel(vec![other]));
        assert_eq!(one.expect_err(what).kind(), ErrorKind::BadRow, "{what}");
        assert!(both.is_ok(), "{what}");

        let session = node(&*store, &ids).await;
        let mut claimed = claim(&*store, session).await.expect("claim answers");
        assert_eq!(claimed.len(), 1, "{what}: the one that is ready");
        complete(&*store, claimed.remove(0)).await;
        assert!(store.survey().await.is_ok(), "{what}");
        assert!(store.make_ready(100).await.is_ok(), "{what}");
        assert_eq!(store.leave(session).await, Ok(Fenced::Recorded), "{what}");
    }
}

// ---- one such row does not block the others -----------------------------------------------------------

#[tokio::test]
async fn a_claim_goes_past_a_row_that_cannot_be_understood() {
    for change in ["extras = 'oops'", "token = -1", "runs = -1"] {
        let (here, _clock) = TempStore::manual();
        let store = here.store();
        let ids = Ids::new(1);
        let tasks = ids.new_tasks(3, "mail", "send");
        let edited = tasks[0].id;
        store.enqueue(tasks).await.expect("enqueue answers");
        edit(&here.path(), edited, change);
        let session = node(&*store, &ids).await;
        let claimed = claim(&*store, session).await.unwrap_or_else(|error| panic!("{change}: {error}"));
        assert_eq!(claimed.len(), 2, "{change}");
        assert!(claimed.iter().all(|claimed| claimed.lease.task() != edited), "{change}");
    }
}

#[tokio::test]
async fn expiring_goes_past_a_row_that_cannot_be_understood() {
    let (here, clock) = TempStore::manual();
    let store = here.store();
    let ids = Ids::new(1);
    let tasks = ids.new_tasks(3, "mail", "send");
    let edited = tasks[1].id;
    store.enqueue(tasks).await.expect("enqueue answers");
    let session = node(&*store, &ids).await;
    assert_eq!(claim(&*store, session).await.expect("claim answers").len(), 3);
    edit(&here.path(), edited, "failure = 'oops'");
    clock.advance(Duration::from_secs(61));
    let expired = store.expire(100).await.expect("expire answers");
    assert_eq!((expired.sessions, expired.more), (vec![session], false));
    let counts = store.survey().await.expect("survey answers").lanes[0].counts;
    assert_eq!((counts.queued, counts.claimed), (2, 1), "only the edited one is left");
    assert!(!store.expire(100).await.expect("expire answers").more, "and no call is asked for soon");
}

#[tokio::test]
async fn making_ready_goes_past_a_row_that_cannot_be_understood() {
    let (here, clock) = TempStore::manual();
    let store = here.store();
    let ids = Ids::new(1);
    let mut tasks = ids.new_tasks(3, "mail", "send");
    tasks.iter_mut().for_each(|task| task.run_at = Some(clock.now().after(Duration::from_secs(5))));
    let edited = tasks[0].id;
    store.enqueue(tasks).await.expect("enqueue answers");
    edit(&here.path(), edited, "extras = 'oops'");
    clock.advance(Duration::from_secs(6));
    let ready = store.make_ready(100).await.expect("make_ready answers");
    assert!(ready.next.is_some_and(|next| next > clock.now()), "no call is asked for soon: {ready:?}");
    let session = node(&*store, &ids).await;
    assert_eq!(claim(&*store, session).await.expect("claim answers").len(), 2);
}

#[tokio::test]
async fn who_waits_with_others_is_freed_though_one_of_them_cannot_be_understood() {
    let (here, _clock) = TempStore::manual();
    let store = here.store();
    let ids = Ids::new(1);
    let mut tasks = ids.new_tasks(4, "mail", "send");
    let (first, edited) = (tasks[0].id, tasks[2].id);
    tasks.iter_mut().skip(1).for_each(|task| task.after = vec![first]);
    store.enqueue(tasks).await.expect("enqueue answers");
    edit(&here.path(), edited, "extras = 'oops'");
    let session = node(&*store, &ids).await;
    let mut claimed = claim(&*store, session).await.expect("claim answers");
    complete(&*store, claimed.remove(0)).await;
    let freed = claim(&*store, session).await.expect("claim answers");
    assert_eq!(freed.len(), 2, "the others");
    assert_eq!(store.make_ready(100).await.map(|made| made.next), Ok(None), "and no call is asked for soon");
}

#[tokio::test]
async fn an_unreadable_end_frees_no_dependent_and_holds_up_no_other_task() {
    let (here, _clock) = TempStore::manual();
    let store = here.store();
    let ids = Ids::new(1);
    let mut tasks = ids.new_tasks(4, "mail", "send");
    let edited = tasks[0].id;
    tasks[2].after = vec![edited];
    tasks[3].after = vec![tasks[1].id];
    let freed = tasks[3].id;
    store.enqueue(tasks).await.expect("enqueue answers");
    edit(&here.path(), edited, "phase = 99");
    let conn = Connection::open(here.path()).expect("the file opens");
    conn.execute("INSERT INTO freed(task, reached) SELECT id, 0 FROM task WHERE phase = 99", [])
        .expect("the file is written");
    drop(conn);
    let session = node(&*store, &ids).await;
    let mut claimed = claim(&*store, session).await.expect("claim answers");
    complete(&*store, claimed.remove(0)).await;
    let next = claim(&*store, session).await.expect("claim answers");
    assert_eq!(next.iter().map(|claimed| claimed.lease.task()).collect::<Vec<_>>(), [freed]);
}

#[tokio::test]
async fn a_schedule_that_cannot_be_understood_is_passed_over() {
    let (here, clock) = TempStore::manual();
    let store = here.store();
    let task = TaskTemplate {
        queue: "mail".to_owned(),
        kind: "send".to_owned(),
        payload: "{}".to_owned(),
        priority: Priority::NORMAL,
        overrides: Overrides::NONE,
    };
    for name in ["broken", "whole"] {
        let (name, spec, next_at) = (name.to_owned(), "every 1h".to_owned(), Some(clock.now()));
        let (overlap, missed) = (Overlap::Skip, Missed::One);
        let schedule = Schedule { name, spec, overlap, missed, task: task.clone(), next_at };
        assert_eq!(store.put_schedule(schedule).await, Ok(PutAnswer::Created));
    }
    let conn = Connection::open(here.path()).expect("the file opens");
    let edited = conn.execute("UPDATE schedule SET overlap = 77 WHERE name = 'broken'", []);
    assert_eq!(edited, Ok(1));
    let all = store.schedules().await.expect("schedules answers");
    assert_eq!(all.iter().map(|kept| kept.schedule.name.as_str()).collect::<Vec<_>>(), ["whole"]);
    let firing =
        |name: &str| Firing { schedule: name.to_owned(), expected: clock.now(), next: None, task: None };
    let error = store.fire(firing("broken")).await.expect_err("it cannot be understood");
    assert_eq!(error.kind(), ErrorKind::BadRow, "{error}");
    assert_eq!(store.fire(firing("whole")).await, Ok(Fired::Skipped(Skipped::Missed)));
}

/// A newer program may have issued a node command that this one does not know.
#[tokio::test]
async fn an_order_of_a_later_version_is_passed_over() {
    let (here, _clock) = TempStore::manual();
    let store = here.store();
    let session = node(&*store, &Ids::new(1)).await;
    for number in 1..=4 {
        assert_eq!(store.command(session, NodeCommand::Drain).await, Ok(CommandAnswer::Given { number }));
    }
    let conn = Connection::open(here.path()).expect("the file opens");
    for (number, said) in
        [(1, "{\"v\":2,\"order\":\"drain\"}"), (2, "{\"v\":1,\"order\":\"dance\"}"), (3, "oops")]
    {
        let edited = conn.execute("UPDATE orders SET said = ?2 WHERE number = ?1", (number, said));
        assert_eq!(edited, Ok(1), "{said}");
    }
    let commands = vec![NumberedCommand { number: 4, command: NodeCommand::Drain }];
    let expected = Renewed::Held { cancelled: vec![], lost: vec![], unnamed: vec![], commands };
    assert_eq!(store.renew(session, &[]).await, Ok(expected), "the node lives, and hears what it knows");
}
