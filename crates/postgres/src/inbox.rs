//! Inbox: tasks enqueued within a foreign transaction, from Rust by
//! [`Postgres::enqueue_in`](crate::Postgres::enqueue_in), from any language by the SQL function `ostler.enqueue`; and tasks
//! cancelled or retried by the functions of these names.
//!
//! Such a transaction may stay open for long, so it takes none of our locks: it only adds a row to the inbox, which
//! exists if and only if the transaction commits. The next call on the store, of any verb, first takes in the new rows.
//! So a task of the inbox is indistinguishable from one that was enqueued directly. A task for which a full queue has no
//! room stays in the inbox until it has.

use std::collections::HashSet;
use std::time::Duration;

use ostler_core::{BadId, KeyHold, OnConflict, OnFailed, Priority, TaskId, Timestamp};
use ostler_store::Error;
use ostler_store::calls::{Enqueued, NewTask, Replay};
use ostler_store::unique::Unique;
use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use crate::conn::{Conn, Names, get, most};
use crate::fault::{Abort, Sql};
use crate::locks::Locks;
use crate::row::Uid;
use crate::tx::Tx;
use crate::verbs::enqueue;
use ostler_sql::codec::{OverridesRow, overrides_of, overrides_row};

/// Rows taken in by one transaction.
const BITE: usize = 500;

const ADD: &str =
    "INSERT INTO ostler.inbox(queue, task) SELECT n.queue, n.task FROM unnest($1::text[], $2::text[])
        WITH ORDINALITY AS n(queue, task, place) ORDER BY n.place";

/// Whether there are rows that were not tried yet.
pub(crate) const ANY: &str = "SELECT EXISTS(SELECT 1 FROM ostler.inbox WHERE NOT waits)";

/// Adds tasks within the caller's transaction, and notifies listeners when it commits. There may be a pooler between the
/// caller and the server, so no statement is named.
pub(crate) async fn add(transaction: &Transaction<'_>, names: &Names, tasks: &[NewTask]) -> Sql<()> {
    let mut after: Vec<Uid> = tasks.iter().flat_map(|new| &new.after).map(|id| Uid::of(id.0)).collect();
    after.sort_unstable();
    after.dedup();
    let known = tasks.iter().map(|new| Uid::of(new.id.0)).collect::<HashSet<_>>();
    after.retain(|uid| !known.contains(uid));
    if !after.is_empty() {
        let row = transaction.query_typed_one(&names.text(COUNT), &[(&after, Type::UUID_ARRAY)]).await?;
        let found: i64 = row.try_get(0)?;
        if usize::try_from(found).is_ok_and(|found| found < after.len()) {
            let sentence = "after names a task that this transaction cannot see";
            return Err(Abort::Refused(Error::invalid(sentence)));
        }
    }
    let queues: Vec<&str> = tasks.iter().map(|new| new.queue.as_str()).collect();
    let texts: Vec<String> = tasks.iter().map(text).collect();
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&queues, Type::TEXT_ARRAY), (&texts, Type::TEXT_ARRAY)];
    transaction.execute_typed(&names.text(ADD), &params).await?;
    let notify = "SELECT pg_notify($1, 'sql ready')";
    transaction.query_typed(notify, &[(&channel(names.schema()), Type::TEXT)]).await?;
    Ok(())
}

/// The notification channel.
pub(crate) fn channel(schema: &str) -> String {
    format!("ostler {schema}")
}

const COUNT: &str = "SELECT count(*) FROM ostler.task WHERE uid = ANY($1)";

/// The serialized task in the inbox. The SQL function writes the same format.
#[derive(Serialize, Deserialize)]
struct InboxRow {
    id: String,
    queue: String,
    kind: String,
    payload: String,
    #[serde(default)]
    priority: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    run_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    unique_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    on_conflict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    limit_key: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    after: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    on_failed: Option<String>,
    #[serde(default)]
    overrides: OverridesRow,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    not_after_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    deadline_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    folder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    cost: Option<u32>,
}

/// Serializes a task.
pub(crate) fn text(new: &NewTask) -> String {
    let millis = |hold: Duration| u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
    let unique = new.unique.as_ref();
    let hold = unique.and_then(|unique| unique.hold);
    let hold_ms = match hold {
        Some(KeyHold::For(hold)) => Some(millis(hold)),
        Some(KeyHold::Removed | KeyHold::End) | None => None,
    };
    let row = InboxRow {
        id: new.id.0.to_string(),
        queue: new.queue.clone(),
        kind: new.kind.clone(),
        payload: new.payload.clone(),
        priority: new.priority.points(),
        run_at_ms: new.run_at.map(Timestamp::millis),
        unique_key: unique.map(|unique| unique.key.clone()),
        hold_ms,
        key_until: hold.and_then(KeyHold::name).map(str::to_owned),
        on_conflict: unique.map(|unique| unique.on_conflict.name().to_owned()),
        limit_key: new.limit_key.clone(),
        after: new.after.iter().map(|id| id.0.to_string()).collect(),
        on_failed: Some(new.on_failed.name().to_owned()),
        overrides: overrides_row(&new.overrides),
        not_after_ms: new.not_after.map(Timestamp::millis),
        deadline_ms: new.deadline.map(Timestamp::millis),
        folder: new.folder.clone(),
        cost: new.cost,
    };
    serde_json::to_string(&row).expect("a task has only texts and numbers")
}

/// An entry of the inbox.
enum Entry {
    New(Box<NewTask>),
    Request(Request, TaskId),
}

/// A request for a task that exists, or is in the inbox before it.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Request {
    Cancel,
    Retry,
}

#[derive(Deserialize)]
struct RequestRow {
    request: Request,
    task: String,
}

fn entry(text: &str) -> Sql<Entry> {
    match serde_json::from_str::<RequestRow>(text) {
        Ok(row) => {
            let id = row.task.parse().map_err(|error: BadId| Abort::Foreign(error.to_string()))?;
            Ok(Entry::Request(row.request, TaskId(id)))
        }
        Err(_) => Ok(Entry::New(Box::new(task(text)?))),
    }
}

/// Parses a serialized task.
fn task(text: &str) -> Sql<NewTask> {
    let foreign = |error: &dyn std::fmt::Display| Abort::Foreign(error.to_string());
    let row: InboxRow = serde_json::from_str(text).map_err(|error| foreign(&error))?;
    let id = |text: &str| text.parse().map(TaskId).map_err(|error| foreign(&error));
    let word = |name: &Option<String>, known: &[&str]| {
        known.iter().position(|word| Some(*word) == name.as_deref()).unwrap_or(0)
    };
    let on_conflict = OnConflict::ALL[word(&row.on_conflict, &OnConflict::ALL.map(OnConflict::name))];
    let on_failed = OnFailed::ALL[word(&row.on_failed, &OnFailed::ALL.map(OnFailed::name))];
    let hold = row.hold_ms.map(|ms| KeyHold::For(Duration::from_millis(ms)));
    let hold = hold.or_else(|| row.key_until.as_deref().and_then(KeyHold::named));
    let mut new = NewTask::new(id(&row.id)?, row.queue, row.kind, row.payload);
    new.priority = Priority::new(row.priority).unwrap_or_default();
    new.run_at = row.run_at_ms.map(Timestamp::from_millis);
    new.unique = row.unique_key.map(|key| Unique { key, hold, on_conflict });
    new.limit_key = row.limit_key;
    new.after = row.after.iter().map(|text| id(text)).collect::<Sql<_>>()?;
    new.on_failed = on_failed;
    new.overrides = overrides_of(&row.overrides);
    new.not_after = row.not_after_ms.map(Timestamp::from_millis);
    new.deadline = row.deadline_ms.map(Timestamp::from_millis);
    new.folder = row.folder;
    new.cost = row.cost;
    Ok(new)
}

/// The rows to take in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Rows that were not tried yet.
    New,
    /// Rows for which a full queue had no room.
    Waiting,
}

impl Which {
    const fn waits(self) -> bool {
        match self {
            Self::New => false,
            Self::Waiting => true,
        }
    }
}

/// Whether any row waits for room.
pub(crate) async fn any_waits(conn: &Conn) -> Sql<bool> {
    conn.exists("SELECT 1 FROM ostler.inbox WHERE waits LIMIT 1", &[]).await
}

/// The locks needed for a batch.
pub(crate) async fn locks(conn: &Conn, which: Which) -> Sql<Locks> {
    let rows = conn
        .rows(
            "SELECT queue, task FROM ostler.inbox WHERE waits = $1 ORDER BY seq LIMIT $2",
            &[&which.waits(), &most(BITE)],
        )
        .await?;
    let mut locks = Locks::none();
    for row in &rows {
        locks = match entry(&get::<String>(row, 1)?) {
            Ok(Entry::New(new)) => locks.with(enqueue::locks(std::slice::from_ref(&*new))),
            Ok(Entry::Request(..)) => locks.queue(&get::<String>(row, 0)?),
            Err(_) => locks,
        };
    }
    Ok(locks)
}

/// Takes in a batch of the inbox. Returns how many rows there were.
pub(crate) async fn take_in(tx: &mut Tx, which: Which) -> Sql<usize> {
    // Wait for a concurrent `take_in`: its tasks must be visible afterwards.
    let rows = tx
        .conn
        .rows(
            "SELECT seq, task FROM ostler.inbox WHERE waits = $1 ORDER BY seq LIMIT $2 FOR UPDATE",
            &[&which.waits(), &most(BITE)],
        )
        .await?;
    let (mut done, mut full) = (Vec::new(), Vec::new());
    for row in &rows {
        let seq: i64 = get(row, 0)?;
        // An unreadable row was not written by this program; leave it for one that can read it.
        let taken = match entry(&get::<String>(row, 1)?) {
            Ok(Entry::New(new)) => !is_full(enqueue_one(tx, *new).await?),
            Ok(Entry::Request(request, task)) => {
                carry_out(tx, request, task).await?;
                true
            }
            Err(_) => false,
        };
        if taken { done.push(seq) } else { full.push(seq) }
    }
    tx.conn.exec("DELETE FROM ostler.inbox WHERE seq = ANY($1)", &[&done]).await?;
    if which == Which::New {
        tx.conn.exec("UPDATE ostler.inbox SET waits = true WHERE seq = ANY($1)", &[&full]).await?;
    }
    Ok(rows.len())
}

/// Carries out a request. A task that has ended in the meantime, or was pruned, stays as it is.
async fn carry_out(tx: &mut Tx, request: Request, task: TaskId) -> Sql<()> {
    match request {
        Request::Cancel => ostler_sql::cancel::run(tx, &[task]).await.map(drop),
        Request::Retry => ostler_sql::replay::run(tx, &[task], &Replay::default()).await.map(drop),
    }
}

/// Takes in one task. Prerequisites that were pruned in the meantime do not block it.
async fn enqueue_one(tx: &mut Tx, mut new: NewTask) -> Sql<Enqueued> {
    loop {
        let answer = enqueue::run(tx, std::slice::from_ref(&new)).await?.pop();
        match answer {
            Some(Enqueued::NoSuchTask(gone)) => new.after.retain(|id| *id != gone),
            Some(answer) => return Ok(answer),
            None => return Ok(Enqueued::Existing(new.id)),
        }
    }
}

const fn is_full(answer: Enqueued) -> bool {
    match answer {
        Enqueued::QueueFull { .. } => true,
        Enqueued::Created(_)
        | Enqueued::Existing(_)
        | Enqueued::Replaced(_)
        | Enqueued::Rejected { .. }
        | Enqueued::NoSuchTask(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, Overrides};

    use super::*;

    #[test]
    fn a_task_comes_out_of_the_inbox_as_it_went_in() {
        let id = |bits: u128| TaskId(Id::from_bits(bits));
        let plain = NewTask::new(id(7), "mail", "send", "{\"to\":\"ä\"}");
        let mut rich = NewTask::new(id(u128::MAX >> 3), "mail", "send", "null");
        rich.priority = Priority::new(-100).expect("in range");
        rich.run_at = Some(Timestamp::from_millis(5));
        let hold = Some(KeyHold::For(Duration::from_millis(9)));
        rich.unique = Some(Unique { key: "k".to_owned(), hold, on_conflict: OnConflict::Replace });
        let mut until_end = NewTask::new(id(8), "mail", "send", "[]");
        until_end.unique = Some(Unique { hold: Some(KeyHold::End), ..Unique::new("k") });
        rich.limit_key = Some("tenant".to_owned());
        rich.after = vec![id(1), id(2)];
        rich.on_failed = OnFailed::Wait;
        rich.overrides = Overrides { attempts: Some(3), ..Overrides::NONE };
        rich.not_after = Some(Timestamp::from_millis(6));
        rich.deadline = Some(Timestamp::from_millis(7));
        rich.folder = Some("/srv".to_owned());
        rich.cost = Some(12);
        for new in [plain, rich, until_end] {
            assert_eq!(task(&text(&new)).expect("it can be read"), new);
        }
    }
}
