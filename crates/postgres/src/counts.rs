//! The counts of lanes. Each transaction adds a row for each lane whose tasks it moved, so that no transaction has to wait for
//! another; from time to time these are summed up. What a lane counts is its own row and all rows that were added.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ostler_core::StateName;
use ostler_store::RECENT_RUNS;
use ostler_store::views::Counts;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::commit_mark::CommitMark;
use crate::conn::{Conn, get};
use crate::fault::Sql;
use crate::herald::Notice;

/// Rows are summed up when so many were added.
const FOLD_EVERY: i64 = 256;

/// What changed in a lane during a transaction.
#[derive(Default)]
pub(crate) struct LaneChange {
    pub(crate) counts: [i64; 6],
    pruned: [i64; 6],
    recent_ms: Vec<i64>,
}

/// What changed in all lanes.
#[derive(Default)]
pub(crate) struct LaneChanges(HashMap<i64, LaneChange>);

impl LaneChanges {
    /// Counts a task that moved from one state to another; `None` is outside of the store.
    pub(crate) fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>) {
        let change = self.0.entry(lane).or_default();
        if let Some(from) = from {
            change.counts[from as usize] -= 1;
        }
        if let Some(to) = to {
            change.counts[to as usize] += 1;
        }
    }

    /// Counts a task that was removed; what has ended stays counted.
    pub(crate) fn count_pruned(&mut self, lane: i64, state: StateName) {
        self.0.entry(lane).or_default().pruned[state as usize] += 1;
    }

    /// Keeps how long a run took.
    pub(crate) fn count_run(&mut self, lane: i64, took: Duration) {
        let took = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        self.0.entry(lane).or_default().recent_ms.push(i64::from(took));
    }

    /// How many tasks of these lanes came to stand, or ceased to stand, like this.
    pub(crate) fn sum(&self, lanes: &[i64], states: &[StateName]) -> i64 {
        let changes = lanes.iter().filter_map(|lane| self.0.get(lane));
        changes.flat_map(|change| states.iter().map(|state| change.counts[*state as usize])).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn forget(&mut self, lane: i64) {
        self.0.remove(&lane);
    }

    /// Writes what was counted.
    pub(crate) async fn write(&mut self, conn: &Conn) -> Sql<()> {
        conn.rows(ADD, &self.take().params()).await?;
        Ok(())
    }

    /// Writes what was counted, if anything was, and commits; whoever listens hears the notice then.
    pub(crate) async fn write_with_commit(
        &mut self,
        conn: &mut Conn,
        notice: Option<&Notice>,
        mark: &CommitMark,
    ) -> Sql<Written> {
        if self.is_empty() {
            let (_, marked) = conn.commit_marked(mark, None).await?;
            return Ok(Written { fold: false, marked });
        }
        let columns = self.take();
        let mut params = columns.params();
        let sql = match notice {
            None => Cow::Borrowed(ADD),
            Some(notice) => {
                params.push(&notice.channel);
                params.push(&notice.text);
                Cow::Owned(format!("{ADD}, pg_notify($12, $13)"))
            }
        };
        let (rows, marked) = conn.commit_marked(mark, Some((&sql, &params))).await?;
        Ok(Written { fold: is_due(&rows)?, marked })
    }

    fn take(&mut self) -> Columns {
        let changes: BTreeMap<i64, LaneChange> = std::mem::take(&mut self.0).into_iter().collect();
        let column = |of: fn(&LaneChange) -> i64| changes.values().map(of).collect::<Vec<i64>>();
        let lanes: Vec<i64> = changes.keys().copied().collect();
        // Arrays of arrays must have one length, so what a lane's runs took goes as text.
        let recent = |change: &LaneChange| {
            let last = change.recent_ms.len().saturating_sub(RECENT_RUNS);
            let texts: Vec<String> = change.recent_ms[last..].iter().map(i64::to_string).collect();
            format!("{{{}}}", texts.join(","))
        };
        let recent: Vec<String> = changes.values().map(recent).collect();
        let numbers = [
            lanes,
            column(|change| change.counts[0]),
            column(|change| change.counts[1]),
            column(|change| change.counts[2]),
            column(|change| change.counts[3]),
            column(|change| change.counts[4]),
            column(|change| change.counts[5]),
            column(|change| change.pruned[3]),
            column(|change| change.pruned[4]),
            column(|change| change.pruned[5]),
        ];
        Columns { numbers, recent }
    }
}

/// Adds a row for each lane.
const ADD: &str = "INSERT INTO ostler.lane_delta(lane, queued, claimed, running, completed, failed, cancelled, pruned_completed,
        pruned_failed, pruned_cancelled, recent)
     SELECT a, b, c, d, e, f, g, h, i, j, k::bigint[]
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::text[]) AS n(a, b, c, d, e, f, g, h, i, j, k)
     RETURNING seq";

/// What [`ADD`] is given.
struct Columns {
    numbers: [Vec<i64>; 10],
    recent: Vec<String>,
}

impl Columns {
    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let numbers = self.numbers.iter().map(|column| column as &(dyn ToSql + Sync));
        numbers.chain([&self.recent as &(dyn ToSql + Sync)]).collect()
    }
}

/// Whether it is time to sum up, now that these rows were added.
fn is_due(rows: &[Row]) -> Sql<bool> {
    let mut due = false;
    for row in rows {
        due |= get::<i64>(row, 0)? % FOLD_EVERY == 0;
    }
    Ok(due)
}

/// What a transaction learns when it is committed.
pub(crate) struct Written {
    /// Whether it is time to sum up.
    pub(crate) fold: bool,
    /// Whether it has written anything, and set its mark.
    pub(crate) marked: bool,
}

/// Sums up what was added, unless somebody else is at it.
pub(crate) async fn fold(conn: &Conn, lock: &str) -> Sql<()> {
    conn.exec(
        "WITH mine AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AS yes),
         gone AS (DELETE FROM ostler.lane_delta WHERE (SELECT yes FROM mine) RETURNING *),
         levels AS (SELECT *, sum(queued) OVER (PARTITION BY lane ORDER BY seq) AS level FROM gone),
         runs AS (SELECT g.lane, array_agg(r.took ORDER BY g.seq, r.at) AS recent
                  FROM gone g CROSS JOIN LATERAL unnest(g.recent) WITH ORDINALITY AS r(took, at) GROUP BY g.lane),
         sums AS (SELECT lane, sum(queued) AS queued, sum(claimed) AS claimed, sum(running) AS running,
                    sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled,
                    sum(pruned_completed) AS pruned_completed, sum(pruned_failed) AS pruned_failed,
                    sum(pruned_cancelled) AS pruned_cancelled, max(level) AS level
                  FROM levels GROUP BY lane)
         UPDATE ostler.lane l SET queued = l.queued + s.queued, claimed = l.claimed + s.claimed, running = l.running + s.running,
            completed = l.completed + s.completed, failed = l.failed + s.failed, cancelled = l.cancelled + s.cancelled,
            pruned_completed = l.pruned_completed + s.pruned_completed, pruned_failed = l.pruned_failed + s.pruned_failed,
            pruned_cancelled = l.pruned_cancelled + s.pruned_cancelled,
            high_water = greatest(l.high_water, l.queued + s.level),
            recent = coalesce((l.recent || r.recent)[greatest(1, cardinality(l.recent) + cardinality(r.recent) - 99):], l.recent)
         FROM sums s LEFT JOIN runs r ON r.lane = s.lane WHERE l.id = s.lane",
        &[&lock],
    )
    .await?;
    Ok(())
}

/// What a lane has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) counts: Counts,
    /// Tasks that were pruned: completed, failed, cancelled.
    pub(crate) pruned: [u64; 3],
    pub(crate) high_water: u64,
    pub(crate) recent_ms: Vec<u32>,
}

/// What all lanes have counted, on one view of the store. Of one queue, if it is named.
pub(crate) async fn counted(conn: &Conn, queue: Option<i64>) -> Sql<HashMap<i64, Counted>> {
    let columns = "queued, claimed, running, completed, failed, cancelled, pruned_completed, pruned_failed, pruned_cancelled";
    let sql = format!(
        "SELECT id, 0::bigint, {columns}, high_water, recent FROM ostler.lane WHERE $1::bigint IS NULL OR queue = $1
         UNION ALL
         SELECT lane, seq, {columns}, 0, recent FROM ostler.lane_delta
         WHERE $1::bigint IS NULL OR lane IN (SELECT id FROM ostler.lane WHERE queue = $1)
         ORDER BY 1, 2"
    );
    let mut sums: HashMap<i64, ([i64; 9], i64, Vec<i64>)> = HashMap::new();
    for row in &conn.rows(&sql, &[&queue]).await? {
        let (sum, high_water, recent) = sums.entry(get(row, 0)?).or_default();
        for (at, sum) in sum.iter_mut().enumerate() {
            *sum += get::<i64>(row, 2 + at)?;
        }
        *high_water = (*high_water).max(get(row, 11)?).max(sum[0]);
        recent.extend(get::<Vec<i64>>(row, 12)?);
    }
    Ok(sums
        .into_iter()
        .map(|(lane, (sum, high_water, recent))| (lane, of(sum, high_water, &recent)))
        .collect())
}

fn of(sum: [i64; 9], high_water: i64, recent: &[i64]) -> Counted {
    let [queued, claimed, running, completed, failed, cancelled, gone @ ..] =
        sum.map(|count| u64::try_from(count).unwrap_or(0));
    let last = recent.len().saturating_sub(RECENT_RUNS);
    Counted {
        counts: Counts { queued, claimed, running, completed, failed, cancelled },
        pruned: gone,
        high_water: u64::try_from(high_water).unwrap_or(0),
        recent_ms: recent[last..].iter().map(|took| u32::try_from(*took).unwrap_or(u32::MAX)).collect(),
    }
}
