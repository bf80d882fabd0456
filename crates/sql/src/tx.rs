//! One write transaction, as the shared verbs see it, and what can be read without one.
//!
//! SQLite answers at once: its futures are ready when they are first polled, so its writer thread needs no executor
//! ([`poll_now`]). PostgreSQL's wait for the server.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ostler_core::{Gate, Id, SessionId, StateName, TaskId, Timestamp, VirtualTime};
use ostler_store::calls::{NewTask, Retention};
use ostler_store::views::{LaneTotals, QueueSettings};
use ostler_store::{Check, Checks};

use crate::outbox::NewEntry;
use crate::phase::Phase;
use crate::queue::{KeyRules, QueueRow};
use crate::task::FoundTask;
use crate::value::{Row, Unreadable, Value};

/// A consistent snapshot of the store that can be queried: a transaction, or a connection that only reads.
pub trait Snapshot {
    type Error;
    type Row: Row<Error = Self::Error> + Send + Sync;

    /// Runs a query, written as `dialect` says.
    fn rows(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Result<Vec<Self::Row>, Self::Error>> + Send;

    /// The first row, if there is one. Writes are complete even if they return more rows.
    fn row(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Result<Option<Self::Row>, Self::Error>> + Send;

    /// The driver's error for a value that Ostler never writes.
    fn unreadable(error: Unreadable) -> Self::Error {
        Self::Row::unreadable(error)
    }

    /// Whether an error says that a row holds what Ostler never writes.
    fn is_unreadable(error: &Self::Error) -> bool;
}

/// A write transaction. It commits all of a verb's writes, or none.
pub trait Tx: Snapshot {
    /// The time of the transaction, by the store's clock.
    fn now(&self) -> Timestamp;
    fn checks(&self) -> Checks;

    /// Runs a statement, written as `dialect` says. Returns the number of rows written.
    fn exec(
        &self,
        sql: &'static str,
        params: &[Value<'_>],
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    // ---- queues ----

    /// The queue of this name, if there is one.
    fn queue(
        &mut self,
        name: &str,
    ) -> impl Future<Output = Result<Option<&mut QueueRow>, Self::Error>> + Send;

    /// The queue of this name, inserted if it does not exist.
    fn queue_or_new(&mut self, name: &str)
    -> impl Future<Output = Result<&mut QueueRow, Self::Error>> + Send;

    /// The lane of a kind, inserted if it does not exist.
    fn lane(&mut self, queue: &str, kind: &str) -> impl Future<Output = Result<i64, Self::Error>> + Send;

    fn set_gate(&mut self, queue: &str, gate: Gate) -> impl Future<Output = Result<(), Self::Error>> + Send;

    fn set_clock(
        &mut self,
        queue: &str,
        clock: VirtualTime,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    fn set_settings(
        &mut self,
        queue: &str,
        settings: &QueueSettings,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The number of queued tasks, with what this transaction has changed.
    fn queued(&mut self, queue: &str) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// The number of leased tasks over all queues of an account, with what this transaction has changed.
    fn leased_of_account(&mut self, account: &str) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// Fails, to be tried again with that lock, unless this transaction has the queue to itself. SQLite's always does.
    ///
    /// # Errors
    /// When the queue is not locked exclusively.
    fn exclusive(&self, queue: &str) -> Result<(), Self::Error>;

    /// Fails, to be tried again with these locks, unless all these queues are locked. SQLite's always are.
    ///
    /// # Errors
    /// When one of them is not locked.
    fn locked(&self, queues: &BTreeSet<String>) -> Result<(), Self::Error>;

    // ---- sessions ----

    /// The number of a session, if it may still act.
    fn live_session(
        &mut self,
        session: SessionId,
        check: Check,
    ) -> impl Future<Output = Result<Option<i64>, Self::Error>> + Send;

    /// The id of a session, by its number.
    fn session_name(&mut self, id: i64) -> impl Future<Output = Result<SessionId, Self::Error>> + Send;

    // ---- tasks ----

    /// Locks the tasks with these ids, the oldest first. Returns those that exist, with where they are stored and their phases.
    fn lock_by_id(
        &self,
        ids: &[TaskId],
    ) -> impl Future<Output = Result<HashMap<TaskId, (i64, Phase)>, Self::Error>> + Send;

    /// A task waits for others: inserts the edges, and marks the others as awaited.
    fn insert_edges(
        &self,
        slot: i64,
        others: &[i64],
        on_failed: i16,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Locks the tasks with these ids, the oldest first. Returns where those that exist are stored.
    fn lock(&self, ids: &[TaskId]) -> impl Future<Output = Result<HashMap<TaskId, i64>, Self::Error>> + Send;

    /// Reads a task that is locked.
    fn read(&self, slot: i64) -> impl Future<Output = Result<Option<FoundTask>, Self::Error>> + Send;

    /// Whether there is a task with this id.
    fn has_task(&self, id: TaskId) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Enqueues a task, whatever the limit of its queue.
    fn enqueue(&mut self, task: &NewTask) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Locks a task and reads it.
    fn take(&self, slot: i64) -> impl Future<Output = Result<Option<FoundTask>, Self::Error>> + Send;

    /// The stored tasks that have completed, failed and were cancelled.
    fn stored(&self) -> impl Future<Output = Result<[u64; 3], Self::Error>> + Send;

    // ---- jobs ----

    /// Whether a queue has tasks, queued or ended, with what this transaction has changed.
    fn has_tasks(&mut self, queue: &str) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Jobs older than the retention time whose queues have no tasks, the oldest first, with the names of their queues.
    fn old_jobs(
        &mut self,
        keep: &Retention,
    ) -> impl Future<Output = Result<Vec<(Id, String)>, Self::Error>> + Send;

    /// Removes a queue that has no tasks. Its totals are added to those of former jobs.
    fn drop_queue(&mut self, name: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;

    // ---- what is written or sent with the commit ----

    /// Counts a task that moved from one state to another; `None` is outside of the store.
    fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>);

    /// Counts a task that was removed from the store in a final state.
    fn count_pruned(&mut self, lane: i64, state: StateName);

    /// Adds the duration of a run to the recent ones of a lane.
    fn count_run(&mut self, lane: i64, took: Duration);

    /// Writes an outbox entry, now or with the commit.
    fn add_to_outbox(&mut self, entry: NewEntry) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Totals of a lane, added to those in the store.
    fn tally(&mut self, lane: i64) -> &mut LaneTotals;

    /// Wakes claimers: tasks became ready.
    fn ring(&mut self);

    /// Wakes nodes: one of them should renew now, or look at the schedules.
    fn ring_control(&mut self);

    /// Wakes watchers: a task ended or moved, an event was written, or a node replied.
    fn changed(&mut self);

    /// A task that other tasks wait for has ended.
    fn frees(&mut self);

    /// Whether one has, since this was asked last.
    fn has_freed(&mut self) -> bool;
}

/// The one row of an answer that always has one.
///
/// # Errors
/// When the statement fails, or finds nothing.
pub async fn one<T: Snapshot>(tx: &T, sql: &'static str, params: &[Value<'_>]) -> Result<T::Row, T::Error> {
    tx.row(sql, params).await?.ok_or_else(|| T::unreadable(Unreadable(format!("no row from: {sql}"))))
}

/// Whether the statement finds anything.
///
/// # Errors
/// When the statement fails.
pub async fn exists<T: Snapshot>(tx: &T, sql: &'static str, params: &[Value<'_>]) -> Result<bool, T::Error> {
    Ok(tx.row(sql, params).await?.is_some())
}

/// The value that was read; `None` where a row cannot be understood, which must not block work on the others.
///
/// # Errors
/// Every other error.
pub fn readable<T: Snapshot, V>(read: Result<V, T::Error>) -> Result<Option<V>, T::Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if T::is_unreadable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The limits of a queue's keys.
///
/// # Errors
/// When the queue cannot be read.
pub async fn key_rules<T: Tx>(tx: &mut T, queue: &str) -> Result<KeyRules, T::Error> {
    Ok(tx.queue(queue).await?.map_or_else(|| KeyRules::none(queue), |queue| KeyRules::of(queue)))
}

/// The result of a future that never waits.
///
/// # Panics
/// When it does wait.
pub fn poll_now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a transaction of the embedded store has nothing to wait for"),
    }
}

/// Fails, to be tried again with that lock, unless the queue is locked.
///
/// # Errors
/// When it is not.
pub fn locked<T: Tx>(tx: &T, queue: &str) -> Result<(), T::Error> {
    tx.locked(&BTreeSet::from([queue.to_owned()]))
}
