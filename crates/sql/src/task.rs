//! A task read from its row, and the write of a new state.

use ostler_core::{
    CancelReason, FailReason, Id, Priority, Rank, Readiness, SessionId, State, Task, TaskId, Timestamp, Wait,
    end_event,
};

use crate::codec::{Extras, extras_from, failure_from};
use crate::events::append_one;
use crate::params;
use crate::phase::{Mishaps, Phase, from_ordinal, why_code};
use crate::tx::Tx;
use crate::value::Row;

/// A query for tasks, with the columns that [`found_from`] reads: the index that SQLite must use, or nothing, and the
/// condition.
#[macro_export]
macro_rules! select_task {
    ($index:literal, $condition:literal) => {
        concat!(
            "SELECT t.id, t.uid, q.name, l.kind, t.payload, t.output, t.priority, t.rank, t.phase, t.why,
    t.run_at, s.uid, t.started_at, t.finished_at, u.key, k.key, t.extras, t.late_at, t.token, t.runs, t.failures,
    t.trouble, t.created_at, t.cancel_at, t.failure, t.limit_id, t.lane, t.session
    FROM ostler.task t ",
            $index,
            " JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
    LEFT JOIN ostler.limits k ON k.id = t.limit_id LEFT JOIN ostler.session s ON s.id = t.session
    LEFT JOIN ostler.unique_key u ON u.task = t.id ",
            $condition
        )
    };
}

/// The task of an id.
pub const BY_ID: &str = select_task!("", "WHERE t.uid = $1");
/// The task in a row.
pub const BY_ROW: &str = select_task!("", "WHERE t.id = $1");
/// The task that has a unique key in a queue.
pub const BY_KEY: &str = select_task!(
    "",
    "WHERE t.id = (SELECT w.task FROM ostler.unique_key w JOIN ostler.queue p ON p.id = w.queue WHERE p.name = $1 AND w.key = $2)"
);

/// A task and where it is stored.
#[derive(Debug)]
pub struct FoundTask {
    pub slot: i64,
    pub task: Task,
    pub limit: Option<i64>,
    pub lane: i64,
    /// The number of the session that has it, or had it last.
    pub session: Option<i64>,
    /// Whether a task ever waited for it.
    pub awaited: bool,
    /// The unique key that it holds until its end, or held: another task may have it since.
    pub end_key: Option<String>,
    /// The token of its last lease before it began from scratch.
    pub scratch_token: u64,
}

/// A task from its row.
///
/// # Errors
/// When a column holds what Ostler never writes.
pub fn found_from<R: Row>(row: &R) -> Result<FoundTask, R::Error> {
    let time = |column: usize| Ok::<_, R::Error>(row.get::<Option<i64>>(column)?.map(Timestamp::from_millis));
    let at = |column: usize| Ok::<_, R::Error>(time(column)?.unwrap_or_default());
    let session = || row.get::<Id>(11).map(SessionId);
    let why: i64 = row.get(9)?;
    let wait = || from_ordinal(&Wait::ALL, why).map_err(R::unreadable);
    let run_at = at(10)?;
    let finished_at = at(13)?;
    let state = match row.get::<Phase>(8)? {
        Phase::Ready => State::Queued { readiness: Readiness::Ready, why: wait()?, run_at },
        Phase::Timed => State::Queued { readiness: Readiness::Waiting, why: wait()?, run_at },
        Phase::Parked => State::Queued { readiness: Readiness::Parked, why: wait()?, run_at },
        Phase::Claimed => State::Claimed { session: session()? },
        Phase::Running => State::Running { session: session()?, started_at: at(12)? },
        Phase::Completed => State::Completed { finished_at },
        Phase::Failed => {
            let reason = from_ordinal(&FailReason::ALL, why).map_err(R::unreadable)?;
            State::Failed { finished_at, reason }
        }
        Phase::Cancelled => {
            let reason = from_ordinal(&CancelReason::ALL, why).map_err(R::unreadable)?;
            State::Cancelled { finished_at, reason }
        }
    };
    let Extras { overrides, folder, traceparent, ends, cost, end_key, scratch_token } =
        extras_from(row.get(16)?, row.get(17)?).map_err(R::unreadable)?;
    let Mishaps { crashes, node_deaths, suspect, awaited } = Mishaps::from_code(row.get(21)?);
    let failed = failure_from(row.get(24)?).map_err(R::unreadable)?;
    let task = Task {
        id: TaskId(row.get(1)?),
        queue: row.get(2)?,
        kind: row.get(3)?,
        payload: row.get(4)?,
        output: row.get(5)?,
        priority: Priority::new(row.get(6)?).unwrap_or_default(),
        rank: Rank(row.get(7)?),
        state,
        unique_key: row.get(14)?,
        limit_key: row.get(15)?,
        overrides,
        not_after: ends.not_after,
        deadline: ends.deadline,
        folder,
        traceparent,
        cost,
        token: row.get(18)?,
        runs: row.get(19)?,
        failures: row.get(20)?,
        crashes,
        node_deaths,
        suspect,
        created_at: at(22)?,
        cancel_requested_at: time(23)?,
        first_failure_at: failed.as_ref().map(|failed| failed.first_at),
        last_failure_at: failed.as_ref().map(|failed| failed.last_at),
        last_failure: failed.map(|failed| failed.failure),
    };
    let (slot, limit, lane, session) = (row.get(0)?, row.get(25)?, row.get(26)?, row.get(27)?);
    Ok(FoundTask { slot, task, limit, lane, session, awaited, end_key, scratch_token })
}

/// Writes a task's new state, with an event if it ended without success, and counts it. Its limit key is not settled yet.
///
/// # Errors
/// When a statement fails.
pub async fn set_state<T: Tx>(
    tx: &mut T,
    slot: i64,
    lane: i64,
    limit: Option<i64>,
    from: Phase,
    to: &State,
) -> Result<(), T::Error> {
    let phase = Phase::of(to);
    let finished_at = to.finished_at().map(Timestamp::millis);
    let run_at = match to {
        State::Queued { run_at, .. } => Some(run_at.millis()),
        State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    tx.exec(
        "UPDATE ostler.task SET phase = $2, why = $3, finished_at = $4, run_at = coalesce($5, run_at) WHERE id = $1",
        params![slot, phase, why_code(to), finished_at, run_at],
    )
    .await?;
    if phase == Phase::Ready {
        tx.ring();
    }
    tx.changed();
    if let Some(event) = end_event(to) {
        append_one(tx, slot, &event).await?;
    }
    moved(tx, lane, limit, from, phase).await
}

/// Counts a task that went from one phase to another: in its lane, and in its limit key.
///
/// # Errors
/// When a statement fails.
pub async fn moved<T: Tx>(
    tx: &mut T,
    lane: i64,
    limit: Option<i64>,
    from: Phase,
    to: Phase,
) -> Result<(), T::Error> {
    if from.state() != to.state() {
        tx.count(lane, Some(from.state()), Some(to.state()));
    }
    let places = i64::from(to.takes_place()) - i64::from(from.takes_place());
    if let Some(limit) = limit
        && places != 0
    {
        tx.exec("UPDATE ostler.limits SET used = used + $2 WHERE id = $1", params![limit, places]).await?;
    }
    Ok(())
}
