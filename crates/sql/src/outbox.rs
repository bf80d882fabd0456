//! The outbox: which ends of attempts are stored for hooks and callbacks, and how an entry is read.

use ostler_core::{EndKind, Outcome, State, TaskId, Timestamp, end_kind};
use ostler_store::outbox::{OutboxEntry, Subscribers};

use crate::codec::{failure_from, failure_text};
use crate::params;
use crate::phase::from_ordinal;
use crate::tx::Tx;
use crate::value::Row;

/// A task whose state was just written.
pub struct OutboxInput<'a> {
    pub lane: i64,
    pub slot: i64,
    /// The number of attempts started.
    pub attempt: u32,
    pub state: &'a State,
    /// How the attempt ended, if one did.
    pub outcome: Option<&'a Outcome>,
}

/// An entry that is not written yet.
pub struct NewEntry {
    pub subscriber: String,
    pub lane: i64,
    pub slot: i64,
    pub attempt: u32,
    pub what: EndKind,
    pub at: Timestamp,
    pub failure: Option<String>,
    pub run_at: Option<i64>,
}

/// Adds an entry for each subscriber that wants it.
///
/// # Errors
/// When a statement fails.
pub async fn note<T: Tx>(
    tx: &mut T,
    subscribers: &Subscribers,
    end: &OutboxInput<'_>,
) -> Result<(), T::Error> {
    if subscribers.is_empty() {
        return Ok(());
    }
    let Some(what) = end_kind(end.state, end.outcome) else { return Ok(()) };
    let run_at = match end.state {
        State::Queued { run_at, .. } => Some(run_at.millis()),
        State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    let at = tx.now();
    let failure = end.outcome.and_then(Outcome::failure).map(|failure| failure_text(failure, at, at));
    let OutboxInput { lane, slot, attempt, .. } = *end;
    for name in subscribers.wanting(what) {
        let (subscriber, failure) = (name.to_owned(), failure.clone());
        tx.add_to_outbox(NewEntry { subscriber, lane, slot, attempt, what, at, failure, run_at }).await?;
    }
    Ok(())
}

/// Removes the entries of a subscriber of a queue.
///
/// # Errors
/// When the statement fails.
pub async fn drop_entries<T: Tx>(tx: &T, queue: i64, subscriber: &str) -> Result<(), T::Error> {
    let sql = "DELETE FROM ostler.outbox WHERE queue = $1 AND subscriber = $2";
    tx.exec(sql, params![queue, subscriber]).await?;
    Ok(())
}

/// An entry from its row: number, id of the task, kind, attempt, what, time, failure, time of the next attempt, how often it was
/// taken before.
///
/// # Errors
/// When a column holds what Ostler never writes.
pub fn entry_from<R: Row>(row: &R, queue: &str) -> Result<OutboxEntry, R::Error> {
    Ok(OutboxEntry {
        number: row.get(0)?,
        queue: queue.to_owned(),
        task: TaskId(row.get(1)?),
        kind: row.get(2)?,
        attempt: row.get(3)?,
        what: from_ordinal(&EndKind::ALL, row.get(4)?).map_err(R::unreadable)?,
        at: Timestamp::from_millis(row.get(5)?),
        failure: failure_from(row.get(6)?).map_err(R::unreadable)?.map(|failed| failed.failure),
        run_at: row.get::<Option<i64>>(7)?.map(Timestamp::from_millis),
        earlier: row.get(8)?,
    })
}

/// A session ends: the entries that it took and did not acknowledge are free again.
///
/// # Errors
/// When a statement fails.
pub async fn free<T: Tx>(tx: &mut T, session: i64) -> Result<(), T::Error> {
    let freed = tx
        .exec("UPDATE ostler.outbox /*by taken*/ SET session = NULL WHERE session = $1", params![session])
        .await?;
    if freed > 0 {
        tx.ring();
    }
    Ok(())
}
