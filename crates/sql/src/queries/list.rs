//! List: a page of tasks, along the index that fits the filter.
//!
//! Tasks that have ended are listed by the time of their end: by the index of their state or, where the queue or the kind
//! is given and the tasks have failed or were cancelled, by the index of their lane. Claimed and running ones are found by
//! the index of leases. All others are listed in the order of their arrival. Whatever the index does not decide is checked
//! row by row, and one call checks a bounded number of rows.

use ostler_core::{SessionId, State, StateName, Timestamp};
use ostler_store::views::{Cursor, Filter, LeaseFilter, ListOrder, Page};

use crate::phase::Phase;
use crate::task::{FoundTask, found_from};
use crate::tx::Snapshot;
use crate::value::Row;
use crate::{params, select_task};

/// Rows that one call scans, so that a rare match in a million rows does not occupy a connection.
const MAX_SCAN: usize = 20_000;
/// Rows read per statement.
const CHUNK: usize = 500;
/// Lanes whose lists are merged. A filter that selects more of them is checked row by row.
const MAX_LANES: usize = 64;

/// What to list.
#[derive(Debug)]
pub struct ListCall<'a> {
    pub filter: &'a Filter,
    pub after: Option<Cursor>,
    pub limit: usize,
}

/// The index that a list follows.
enum Source {
    /// The order of arrival, with the phases from the first to the last.
    Arrival(Phase, Phase),
    /// The tasks that a node holds.
    Leases(Phase),
    /// The tasks in a state, by the time of their end.
    Ends(Phase),
    /// The same, for failed and cancelled tasks of these lanes.
    Lanes(Phase, Vec<i64>),
}

/// Lists a page of tasks. `is_alive` says whether a session has renewed in time.
///
/// # Errors
/// When a statement fails.
pub async fn list<S: Snapshot>(
    snapshot: &S,
    call: &ListCall<'_>,
    is_alive: impl Fn(SessionId) -> bool,
) -> Result<Page, S::Error> {
    let ListCall { filter, after, limit } = *call;
    let source = Source::of(snapshot, filter).await?;
    let chunk = CHUNK.min(limit + 1);
    let mut tasks = Vec::new();
    // Where the list continues if it stops here, and how far this call has read.
    let (mut last, mut read_to) = (after, after);
    let mut scanned = 0;
    loop {
        let rows = source.read(snapshot, filter, read_to, chunk).await?;
        let full = rows.len() == chunk;
        for found in rows {
            if scanned == MAX_SCAN {
                return Ok(Page { tasks, next: last });
            }
            scanned += 1;
            let cursor = Cursor::of(filter, &found.task, found.slot);
            read_to = Some(cursor);
            let matches = filter.matches(&found.task) && is_wanted(filter.lease, &found, &is_alive);
            if matches && tasks.len() == limit {
                return Ok(Page { tasks, next: last });
            }
            if matches {
                tasks.push(found.task);
            }
            if matches || tasks.len() < limit {
                last = Some(cursor);
            }
        }
        if !full {
            return Ok(Page { tasks, next: None });
        }
    }
}

fn is_wanted(lease: LeaseFilter, found: &FoundTask, is_alive: impl Fn(SessionId) -> bool) -> bool {
    match (lease, found.task.state) {
        (LeaseFilter::Any, _) => true,
        (LeaseFilter::Stale, State::Claimed { session } | State::Running { session, .. }) => {
            !is_alive(session)
        }
        (
            LeaseFilter::Stale,
            State::Queued { .. } | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. },
        ) => false,
    }
}

impl Source {
    async fn of<S: Snapshot>(snapshot: &S, filter: &Filter) -> Result<Self, S::Error> {
        let phase = match filter.state {
            None => return Ok(Self::Arrival(Phase::Ready, Phase::Cancelled)),
            Some(StateName::Queued) => return Ok(Self::Arrival(Phase::Ready, Phase::Parked)),
            Some(StateName::Claimed) => return Ok(Self::Leases(Phase::Claimed)),
            Some(StateName::Running) => return Ok(Self::Leases(Phase::Running)),
            Some(StateName::Completed) => return Ok(Self::Ends(Phase::Completed)),
            Some(StateName::Failed) => Phase::Failed,
            Some(StateName::Cancelled) => Phase::Cancelled,
        };
        if filter.queue.is_none() && filter.kind.is_none() {
            return Ok(Self::Ends(phase));
        }
        let rows = snapshot
            .rows(
                "SELECT l.id FROM ostler.lane l JOIN ostler.queue q ON q.id = l.queue
                 WHERE (CAST($1 AS text) IS NULL OR q.name = CAST($1 AS text))
                    AND (CAST($2 AS text) IS NULL OR l.kind = CAST($2 AS text)) LIMIT $3",
                params![filter.queue, filter.kind, MAX_LANES + 1],
            )
            .await?;
        if rows.len() > MAX_LANES {
            return Ok(Self::Ends(phase));
        }
        Ok(Self::Lanes(phase, rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?))
    }

    /// The next rows after a position.
    async fn read<S: Snapshot>(
        &self,
        snapshot: &S,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<FoundTask>, S::Error> {
        let order = filter.order;
        let first = match order {
            ListOrder::NewestFirst => i64::MAX,
            ListOrder::OldestFirst => i64::MIN,
        };
        let row = after.map_or(first, |cursor| cursor.row);
        let ended = after.and_then(|cursor| cursor.ended_at).map_or(first, Timestamp::millis);
        let since = filter.ended_since.map_or(i64::MIN, Timestamp::millis);
        let until = filter.ended_until.map_or(i64::MAX, Timestamp::millis);
        let rows = match self {
            Self::Arrival(from, to) => {
                snapshot.rows(ARRIVAL[order as usize], params![row, *from, *to, limit]).await?
            }
            Self::Leases(phase) => snapshot.rows(LEASES[order as usize], params![row, *phase, limit]).await?,
            Self::Ends(phase) => {
                let params = params![*phase, ended, row, since, until, limit];
                snapshot.rows(ENDS[order as usize], params).await?
            }
            Self::Lanes(phase, lanes) => {
                let mut found = Vec::new();
                for lane in lanes {
                    let params = params![*phase, ended, row, since, until, limit, *lane];
                    let rows = snapshot.rows(LANES[order as usize], params).await?;
                    found.extend(rows.iter().map(found_from).collect::<Result<Vec<_>, _>>()?);
                }
                found.sort_unstable_by_key(|found| (found.task.state.finished_at(), found.slot));
                if order == ListOrder::NewestFirst {
                    found.reverse();
                }
                found.truncate(limit);
                return Ok(found);
            }
        };
        rows.iter().map(found_from).collect()
    }
}

// Each pair has the newest first, then the oldest first. Conditions that seem to be said twice are those of the partial index.

const ARRIVAL: [&str; 2] = [
    select_task!("", "WHERE t.id < $1 AND t.phase BETWEEN $2 AND $3 ORDER BY t.id DESC LIMIT $4"),
    select_task!("", "WHERE t.id > $1 AND t.phase BETWEEN $2 AND $3 ORDER BY t.id LIMIT $4"),
];

// Sorted by an expression, so that no plan walks the whole table along its key.
const LEASES: [&str; 2] = [
    select_task!(
        "/*by leased*/",
        "WHERE t.phase IN (3, 4) AND t.phase = $2 AND t.id < $1 ORDER BY t.id + 0 DESC LIMIT $3"
    ),
    select_task!(
        "/*by leased*/",
        "WHERE t.phase IN (3, 4) AND t.phase = $2 AND t.id > $1 ORDER BY t.id + 0 LIMIT $3"
    ),
];

const ENDS: [&str; 2] = [
    select_task!(
        "/*by ended*/",
        "WHERE t.phase > 4 AND t.phase = $1 AND (t.finished_at, t.id) < ($2, $3) AND t.finished_at >= $4
            AND t.finished_at < $5 ORDER BY t.finished_at DESC, t.id DESC LIMIT $6"
    ),
    select_task!(
        "/*by ended*/",
        "WHERE t.phase > 4 AND t.phase = $1 AND (t.finished_at, t.id) > ($2, $3) AND t.finished_at >= $4
            AND t.finished_at < $5 ORDER BY t.finished_at, t.id LIMIT $6"
    ),
];

const LANES: [&str; 2] = [
    select_task!(
        "/*by dead*/",
        "WHERE t.phase IN (6, 7) AND t.lane = $7 AND t.phase = $1 AND (t.finished_at, t.id) < ($2, $3)
            AND t.finished_at >= $4 AND t.finished_at < $5 ORDER BY t.finished_at DESC, t.id DESC LIMIT $6"
    ),
    select_task!(
        "/*by dead*/",
        "WHERE t.phase IN (6, 7) AND t.lane = $7 AND t.phase = $1 AND (t.finished_at, t.id) > ($2, $3)
            AND t.finished_at >= $4 AND t.finished_at < $5 ORDER BY t.finished_at, t.id LIMIT $6"
    ),
];
