//! A task as a row, and back.

use bytes::BytesMut;
use ostler_core::{
    CancelReason, FailReason, Id, Priority, Rank, Readiness, SessionId, State, StateName, Task, TaskId,
    Timestamp, Wait, WorkerId,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::codec::{Extras, extras_from, failure_from};
use crate::conn::{Conn, Params, get, get_u32, get_u64};
use crate::fault::{Abort, Sql};

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

impl Phase {
    /// The number that stands in the column.
    pub(crate) const fn ordinal(self) -> i16 {
        self as i16
    }

    /// The phase of a number.
    pub(crate) fn from_code(code: i16) -> Sql<Self> {
        from_ordinal(&Self::ALL, code)
    }
}

/// The entry at a place that a row names. A row may have been edited by hand.
pub(crate) fn from_ordinal<T: Copy>(all: &[T], at: i16) -> Sql<T> {
    let found = usize::try_from(at).ok().and_then(|at| all.get(at)).copied();
    found.ok_or_else(|| Abort::Foreign(format!("{at} is not one of {} known numbers", all.len())))
}

/// Where a reason stands in the list of its kind.
pub(crate) fn code<T: PartialEq>(all: &[T], reason: &T) -> i16 {
    all.iter().position(|known| known == reason).map_or(-1, |at| at as i16)
}

/// What stands in `why` for a state.
pub(crate) fn why_code(state: &State) -> i16 {
    match state {
        State::Queued { why, .. } => code(&Wait::ALL, why),
        State::Failed { reason, .. } => code(&FailReason::ALL, reason),
        State::Cancelled { reason, .. } => code(&CancelReason::ALL, reason),
        State::Claimed { .. } | State::Running { .. } | State::Completed { .. } => 0,
    }
}

/// The sixteen bytes of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

/// Every column of a task that a [`Task`] has, with the names that its numbers stand for.
const SELECT: &str = "SELECT t.id, t.uid, q.name, l.kind, t.payload, t.output, t.priority, t.rank, t.phase, t.why,
    t.run_at, s.uid, t.started_at, t.finished_at, u.key, k.key, t.extras, t.late_at, t.token, t.runs, t.failures,
    t.trouble, t.created_at, t.cancel_at, t.failure, t.limit_id, t.lane, t.session
    FROM ostler.task t JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = t.queue
    LEFT JOIN ostler.limits k ON k.id = t.limit_id LEFT JOIN ostler.session s ON s.id = t.session
    LEFT JOIN ostler.unique_key u ON u.task = t.id ";

/// A task and where it is.
pub(crate) struct FoundTask {
    pub(crate) slot: i64,
    pub(crate) task: Task,
    pub(crate) limit: Option<i64>,
    pub(crate) lane: i64,
    /// The number of the session that has it, or had it last.
    pub(crate) session: Option<i64>,
    /// Whether a task ever waited for it.
    pub(crate) awaited: bool,
}

/// The task at a slot.
pub(crate) const BY_SLOT: &str = "WHERE t.id = $1";

/// The statement that finds the tasks that satisfy a condition.
pub(crate) fn find_text(condition: &str) -> String {
    format!("{SELECT}{condition}")
}

/// The one task that satisfies a condition.
pub(crate) async fn find(conn: &Conn, condition: &str, params: Params<'_>) -> Sql<Option<FoundTask>> {
    conn.row(&find_text(condition), params).await?.map(|row| found_from(&row)).transpose()
}

/// A task from its row.
pub(crate) fn found_from(row: &Row) -> Sql<FoundTask> {
    let time = |column: usize| Ok::<_, Abort>(get::<Option<i64>>(row, column)?.map(Timestamp::from_millis));
    let at = |column: usize| Ok::<_, Abort>(time(column)?.unwrap_or_default());
    let session = || get::<Uid>(row, 11).map(|uid| SessionId(uid.id()));
    let why: i16 = get(row, 9)?;
    let run_at = at(10)?;
    let finished_at = at(13)?;
    let state = match Phase::from_code(get(row, 8)?)? {
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
    let Extras { overrides, folder, ends, cost } = extras_from(get(row, 16)?, get(row, 17)?)?;
    let Mishaps { crashes, node_deaths, suspect, awaited } = Mishaps::from_code(get(row, 21)?);
    let failed = failure_from(get(row, 24)?)?;
    let task = Task {
        id: TaskId(get::<Uid>(row, 1)?.id()),
        queue: get(row, 2)?,
        kind: get(row, 3)?,
        payload: get(row, 4)?,
        output: get(row, 5)?,
        priority: priority(get(row, 6)?),
        rank: Rank(get(row, 7)?),
        state,
        unique_key: get(row, 14)?,
        limit_key: get(row, 15)?,
        overrides,
        not_after: ends.not_after,
        deadline: ends.deadline,
        folder,
        cost,
        token: get_u64(row, 18)?,
        runs: get_u32(row, 19)?,
        failures: get_u32(row, 20)?,
        crashes,
        node_deaths,
        suspect,
        created_at: at(22)?,
        cancel_requested_at: time(23)?,
        first_failure_at: failed.as_ref().map(|failed| failed.first_at),
        last_failure_at: failed.as_ref().map(|failed| failed.last_at),
        last_failure: failed.map(|failed| failed.failure),
    };
    let (slot, limit, lane, session) = (get(row, 0)?, get(row, 25)?, get(row, 26)?, get(row, 27)?);
    Ok(FoundTask { slot, task, limit, lane, session, awaited })
}

/// The head start that a column keeps.
pub(crate) fn priority(points: i16) -> Priority {
    Priority::new(i64::from(points)).unwrap_or_default()
}

/// The head start as a column keeps it.
pub(crate) fn points(priority: Priority) -> i16 {
    i16::try_from(priority.points()).unwrap_or_default()
}

/// Who ran an attempt, where it has no row of its own: the worker, then the session.
pub(crate) fn ran_bytes(worker: WorkerId, session: SessionId) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&worker.0.to_bytes());
    bytes[16..].copy_from_slice(&session.0.to_bytes());
    bytes
}

/// The two halves of [`ran_bytes`].
pub(crate) fn ran_from(bytes: &[u8]) -> Sql<(WorkerId, SessionId)> {
    let half = |at: usize| bytes.get(at..at + 16)?.try_into().ok().map(Id::from_bytes);
    let halves = half(0).zip(half(16)).map(|(worker, session)| (WorkerId(worker), SessionId(session)));
    halves.ok_or_else(|| Abort::Foreign("who ran an attempt takes 32 bytes".to_owned()))
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
        assert_eq!(code(&Wait::ALL, &Wait::Dependency), 7, "the index of due tasks leaves it out");
    }
}
