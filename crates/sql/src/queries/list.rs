//! List: a page of tasks, along the index that fits the filter.
//!
//! Tasks that have ended are listed by the time of their end: by the index of their state or, where the queue or the kind
//! is given and the tasks have failed or were cancelled, by the index of their lane. Claimed and running ones are found by
//! the index of leases, queued ones by the indexes of what is ready and of what waits. All others, and queued ones where
//! these are very many, are listed in the order of their arrival. A queue or kind without a lane has no tasks. Whatever
//! the index does not decide is checked row by row, and one call checks a bounded number of rows and bytes.

use ostler_core::{SessionId, State, StateName, Task, Timestamp};
use ostler_store::views::{Cursor, Filter, LeaseFilter, ListOrder, Page};

use crate::phase::Phase;
use crate::task::{FoundTask, found_from};
use crate::tx::Snapshot;
use crate::value::Row;
use crate::{params, select_task};

/// Rows that one call scans, so that a rare match in a million rows does not occupy a connection.
const MAX_SCAN: usize = 5_000;
/// Bytes of payloads and outputs after which a call scans no further row, however few it has read.
const MAX_SCAN_BYTES: usize = 8 << 20;
/// Rows read by the first statement, before the size of rows is known.
const FIRST_CHUNK: usize = 64;
/// Rows read per statement.
const CHUNK: usize = 500;
/// Lanes whose lists are merged. A filter that selects more of them is checked row by row.
const MAX_LANES: usize = 64;
/// Queued tasks that a statement finds by their indexes and sorts by arrival. If there are more, the order of arrival is read.
const MAX_SORTED: usize = 10_000;

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
    /// The queued tasks, by their own indexes.
    Queued,
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
    let Some(source) = Source::of(snapshot, filter).await? else {
        return Ok(Page { tasks: Vec::new(), next: None });
    };
    let mut tasks = Vec::new();
    // Where the list continues if it stops here, and how far this call has read.
    let (mut last, mut read_to) = (after, after);
    let mut scanned = Scanned::default();
    loop {
        let only_matches = tasks.len() == scanned.rows;
        let chunk = scanned.chunk(if only_matches { limit + 1 - tasks.len() } else { CHUNK });
        let rows = source.read(snapshot, filter, read_to, chunk).await?;
        let full = rows.len() == chunk;
        for found in rows {
            if scanned.is_over() {
                return Ok(Page { tasks, next: last });
            }
            scanned.add(&found.task);
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

/// How much a call has scanned.
#[derive(Clone, Copy, Debug, Default)]
struct Scanned {
    rows: usize,
    bytes: usize,
}

impl Scanned {
    fn add(&mut self, task: &Task) {
        self.rows += 1;
        self.bytes += task.payload.len() + task.output.as_ref().map_or(0, String::len);
    }

    const fn is_over(self) -> bool {
        self.rows >= MAX_SCAN || self.bytes >= MAX_SCAN_BYTES
    }

    /// How many rows to read next: no more than fit within the bound on bytes, if they are as large as those before.
    fn chunk(self, wanted: usize) -> usize {
        let fit = match self.rows {
            0 => FIRST_CHUNK,
            rows => MAX_SCAN_BYTES.saturating_sub(self.bytes) / (self.bytes / rows).max(1),
        };
        wanted.min(CHUNK).min(fit + 1)
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
    /// `None`: nothing can match, because there is no such queue or kind.
    async fn of<S: Snapshot>(snapshot: &S, filter: &Filter) -> Result<Option<Self>, S::Error> {
        let lanes = Lanes::of(snapshot, filter).await?;
        if matches!(&lanes, Lanes::These(lanes) if lanes.is_empty()) {
            return Ok(None);
        }
        let dead = match filter.state {
            None => return Ok(Some(Self::Arrival(Phase::Ready, Phase::Cancelled))),
            Some(StateName::Queued) => return queued(snapshot).await.map(Some),
            Some(StateName::Claimed) => return Ok(Some(Self::Leases(Phase::Claimed))),
            Some(StateName::Running) => return Ok(Some(Self::Leases(Phase::Running))),
            Some(StateName::Completed) => return Ok(Some(Self::Ends(Phase::Completed))),
            Some(StateName::Failed) => Phase::Failed,
            Some(StateName::Cancelled) => Phase::Cancelled,
        };
        Ok(Some(match lanes {
            Lanes::These(lanes) => Self::Lanes(dead, lanes),
            Lanes::Any => Self::Ends(dead),
        }))
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
            Self::Queued => snapshot.rows(QUEUED[order as usize], params![row, limit]).await?,
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

/// The lanes that a filter selects.
enum Lanes {
    /// All, or more than [`MAX_LANES`].
    Any,
    These(Vec<i64>),
}

impl Lanes {
    async fn of<S: Snapshot>(snapshot: &S, filter: &Filter) -> Result<Self, S::Error> {
        if filter.queue.is_none() && filter.kind.is_none() {
            return Ok(Self::Any);
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
            return Ok(Self::Any);
        }
        Ok(Self::These(rows.iter().map(|row| row.get(0)).collect::<Result<_, _>>()?))
    }
}

/// The source of queued tasks: behind a million finished ones, a few of them would be found slowly in the order of arrival.
async fn queued<S: Snapshot>(snapshot: &S) -> Result<Source, S::Error> {
    let found = snapshot.row(HOW_MANY_QUEUED, params![MAX_SORTED + 1]).await?;
    let count: u64 = found.map_or(Ok(0), |row| row.get(0))?;
    Ok(if count > MAX_SORTED as u64 { Source::Arrival(Phase::Ready, Phase::Parked) } else { Source::Queued })
}

// Each pair has the newest first, then the oldest first. Conditions that seem to be said twice are those of the partial index.

const ARRIVAL: [&str; 2] = [
    select_task!("", "WHERE t.id < $1 AND t.phase BETWEEN $2 AND $3 ORDER BY t.id DESC LIMIT $4"),
    select_task!("", "WHERE t.id > $1 AND t.phase BETWEEN $2 AND $3 ORDER BY t.id LIMIT $4"),
];

/// The rows of queued tasks: ready ones, those that wait for a time, for a place or gate of their limit key, and for other
/// tasks.
macro_rules! queued_rows {
    ($and:literal) => {
        concat!(
            "SELECT w.id FROM ostler.task w /*by ready*/ WHERE w.phase = 0",
            $and,
            " UNION ALL SELECT w.id FROM ostler.task w /*by due*/ WHERE w.phase = 1 AND w.why <> 7",
            $and,
            " UNION ALL SELECT w.id FROM ostler.task w /*by keyed*/
                WHERE w.limit_id IS NOT NULL AND w.phase IN (0, 2) AND w.phase = 2",
            $and,
            " UNION ALL SELECT w.id FROM (SELECT DISTINCT e.task FROM ostler.edge e) e JOIN ostler.task w ON w.id = e.task
                WHERE w.phase = 1 AND w.why = 7",
            $and
        )
    };
}

const HOW_MANY_QUEUED: &str =
    concat!("SELECT count(*) FROM (SELECT id FROM (", queued_rows!(""), ") waiting LIMIT $1) counted");

const QUEUED: [&str; 2] = [
    concat!(
        select_task!("", "WHERE t.id IN (SELECT id FROM ("),
        queued_rows!(" AND w.id < $1"),
        ") waiting ORDER BY id DESC LIMIT $2) ORDER BY t.id DESC"
    ),
    concat!(
        select_task!("", "WHERE t.id IN (SELECT id FROM ("),
        queued_rows!(" AND w.id > $1"),
        ") waiting ORDER BY id LIMIT $2) ORDER BY t.id"
    ),
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
