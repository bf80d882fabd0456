//! A task as a row, and back.

use std::time::Duration;

use crate::codec::{Extras, extras_from, failure_from};
use ostler_core::{
    CancelReason, FailReason, Id, Priority, Rank, Readiness, SessionId, State, StateName, Task, TaskId,
    Timestamp, Wait, WorkerId,
};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row};

/// The TTL of a session, in milliseconds.
pub(crate) fn ttl_from(row: &Row<'_>, at: usize) -> rusqlite::Result<Duration> {
    Ok(Duration::from_millis(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0)))
}

/// The state of a task, with the readiness of queued ones folded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Ready = 0,
    Timed = 1,
    Parked = 2,
    Claimed = 3,
    Running = 4,
    Completed = 5,
    Failed = 6,
    Cancelled = 7,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Ready,
        Self::Timed,
        Self::Parked,
        Self::Claimed,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    pub(crate) const fn state(self) -> StateName {
        match self {
            Self::Ready | Self::Timed | Self::Parked => StateName::Queued,
            Self::Claimed => StateName::Claimed,
            Self::Running => StateName::Running,
            Self::Completed => StateName::Completed,
            Self::Failed => StateName::Failed,
            Self::Cancelled => StateName::Cancelled,
        }
    }

    /// Whether a task in this phase takes one of the places of its limit key.
    pub(crate) const fn takes_place(self) -> bool {
        match self {
            Self::Ready | Self::Claimed | Self::Running => true,
            Self::Timed | Self::Parked | Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// The phase of a state.
    pub(crate) const fn of(state: &State) -> Self {
        match state {
            State::Queued { readiness: Readiness::Ready, .. } => Self::Ready,
            State::Queued { readiness: Readiness::Parked, .. } => Self::Parked,
            State::Queued { readiness: Readiness::Waiting, .. } => Self::Timed,
            State::Claimed { .. } => Self::Claimed,
            State::Running { .. } => Self::Running,
            State::Completed { .. } => Self::Completed,
            State::Failed { .. } => Self::Failed,
            State::Cancelled { .. } => Self::Cancelled,
        }
    }
}

impl ToSql for Phase {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok((*self as i64).into())
    }
}

impl FromSql for Phase {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        from_ordinal(&Self::ALL, i64::column_result(value)?)
    }
}

/// The entry at a place that a row names. A row may have been edited by hand.
pub(crate) fn from_ordinal<T: Copy>(all: &[T], at: i64) -> FromSqlResult<T> {
    usize::try_from(at).ok().and_then(|at| all.get(at)).copied().ok_or(FromSqlError::OutOfRange(at))
}

/// Where a reason stands in the list of its kind.
pub(crate) fn ordinal<T: PartialEq>(all: &[T], reason: &T) -> i64 {
    all.iter().position(|known| known == reason).map_or(-1, |at| at as i64)
}

/// What stands in `why` for a state.
pub(crate) fn why_code(state: &State) -> i64 {
    match state {
        State::Queued { why, .. } => ordinal(&Wait::ALL, why),
        State::Failed { reason, .. } => ordinal(&FailReason::ALL, reason),
        State::Cancelled { reason, .. } => ordinal(&CancelReason::ALL, reason),
        State::Claimed { .. } | State::Running { .. } | State::Completed { .. } => 0,
    }
}

/// The sixteen bytes of an id.
pub(crate) struct Uid([u8; 16]);

impl Uid {
    pub(crate) const fn of(id: Id) -> Self {
        Self(id.to_bytes())
    }

    pub(crate) const fn id(&self) -> Id {
        Id::from_bytes(self.0)
    }
}

impl ToSql for Uid {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for Uid {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        <[u8; 16]>::column_result(value).map(Self)
    }
}

/// Every column of a task that a [`Task`] has, with the names that its numbers stand for.
const SELECT: &str = "SELECT t.id, t.uid, q.name, l.kind, t.payload, t.output, t.priority, t.rank, t.phase, t.why,
    t.run_at, s.uid, t.started_at, t.finished_at, u.key, k.key, t.extras, t.late_at, t.token, t.runs, t.failures,
    t.trouble, t.created_at, t.cancel_at, t.failure, t.limit_id, t.lane
    FROM task t JOIN lane l ON l.id = t.lane JOIN queue q ON q.id = l.queue
    LEFT JOIN limits k ON k.id = t.limit_id LEFT JOIN session s ON s.id = t.session
    LEFT JOIN unique_key u ON u.task = t.id ";

/// A task and where it is.
pub(crate) struct FoundTask {
    pub(crate) slot: i64,
    pub(crate) task: Task,
    pub(crate) limit: Option<i64>,
    pub(crate) lane: i64,
    /// Whether a task ever waited for it.
    pub(crate) awaited: bool,
}

/// The one task that satisfies a condition.
pub(crate) fn find(
    conn: &Connection,
    condition: &str,
    params: impl Params,
) -> rusqlite::Result<Option<FoundTask>> {
    conn.prepare_cached(&format!("{SELECT}{condition}"))?.query_row(params, found).optional()
}

/// The tasks that satisfy a condition, as long as `each` wants more.
pub(crate) fn for_each(
    conn: &Connection,
    condition: &str,
    params: impl Params,
    mut each: impl FnMut(FoundTask) -> std::ops::ControlFlow<()>,
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached(&format!("{SELECT}{condition}"))?;
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        if each(found(row)?).is_break() {
            break;
        }
    }
    Ok(())
}

fn found(row: &Row<'_>) -> rusqlite::Result<FoundTask> {
    let time = |column: usize| {
        Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
    };
    let at = |column: usize| Ok::<_, rusqlite::Error>(time(column)?.unwrap_or_default());
    let session = || row.get::<_, Uid>(11).map(|uid| SessionId(uid.id()));
    let why: i64 = row.get(9)?;
    let run_at = at(10)?;
    let finished_at = at(13)?;
    let state = match row.get::<_, Phase>(8)? {
        Phase::Ready => {
            State::Queued { readiness: Readiness::Ready, why: from_ordinal(&Wait::ALL, why)?, run_at }
        }
        Phase::Timed => {
            State::Queued { readiness: Readiness::Waiting, why: from_ordinal(&Wait::ALL, why)?, run_at }
        }
        Phase::Parked => {
            State::Queued { readiness: Readiness::Parked, why: from_ordinal(&Wait::ALL, why)?, run_at }
        }
        Phase::Claimed => State::Claimed { session: session()? },
        Phase::Running => State::Running { session: session()?, started_at: at(12)? },
        Phase::Completed => State::Completed { finished_at },
        Phase::Failed => State::Failed { finished_at, reason: from_ordinal(&FailReason::ALL, why)? },
        Phase::Cancelled => State::Cancelled { finished_at, reason: from_ordinal(&CancelReason::ALL, why)? },
    };
    let Extras { overrides, folder, ends, cost } = extras_from(row.get(16)?, row.get(17)?)?;
    let Mishaps { crashes, node_deaths, suspect, awaited } = Mishaps::from_code(row.get(21)?);
    let failed = failure_from(row.get(24)?)?;
    let task = Task {
        id: TaskId(row.get::<_, Uid>(1)?.id()),
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
    Ok(FoundTask { slot: row.get(0)?, task, limit: row.get(25)?, lane: row.get(26)?, awaited })
}

/// Who ran an attempt, where it has no row of its own: the worker, then the session.
pub(crate) fn ran_bytes(worker: WorkerId, session: SessionId) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&worker.0.to_bytes());
    bytes[16..].copy_from_slice(&session.0.to_bytes());
    bytes
}

/// The two halves of [`ran_bytes`].
pub(crate) fn ran_from(bytes: [u8; 32]) -> (WorkerId, SessionId) {
    let half =
        |at: usize| Id::from_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes are sixteen bytes"));
    (WorkerId(half(0)), SessionId(half(16)))
}

/// What went wrong with a task besides its failures, and whether others waited for it, as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mishaps {
    pub(crate) crashes: u32,
    pub(crate) node_deaths: u32,
    pub(crate) suspect: bool,
    pub(crate) awaited: bool,
}

impl Mishaps {
    /// Set for a task that others wait for. It is the sign, so that a statement can ask for it in a few letters.
    pub(crate) const AWAITED: i64 = i64::MIN;
    /// Room for each count; no policy allows as many.
    const BITS: u32 = 20;
    const MOST: u32 = (1 << Self::BITS) - 1;

    pub(crate) fn code(self) -> i64 {
        let awaited = if self.awaited { Self::AWAITED } else { 0 };
        awaited
            | i64::from(self.suspect)
            | i64::from(self.crashes.min(Self::MOST)) << 1
            | i64::from(self.node_deaths.min(Self::MOST)) << (1 + Self::BITS)
    }

    pub(crate) fn from_code(code: i64) -> Self {
        let count = |shift: u32| ((code >> shift) as u32) & Self::MOST;
        let (crashes, node_deaths) = (count(1), count(1 + Self::BITS));
        Self { crashes, node_deaths, suspect: code & 1 == 1, awaited: code < 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_for_trouble_keeps_all_of_it() {
        for (crashes, node_deaths) in [(0, 0), (1, 0), (0, 1), (7, 9), (Mishaps::MOST, Mishaps::MOST)] {
            for suspect in [false, true] {
                for awaited in [false, true] {
                    let trouble = Mishaps { crashes, node_deaths, suspect, awaited };
                    assert_eq!(Mishaps::from_code(trouble.code()), trouble);
                    assert_eq!(trouble.code() < 0, awaited, "the sign alone tells who is awaited");
                }
            }
        }
    }

    #[test]
    fn the_numbers_in_the_statements_are_those_of_the_lists() {
        assert_eq!(ordinal(&Wait::ALL, &Wait::Dependency), 7, "the index of due tasks leaves it out");
    }
}
