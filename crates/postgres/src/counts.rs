//! Task counts per lane. Each transaction adds a delta row for each lane whose tasks it moved, so that no transaction
//! waits for another; the deltas are folded into the lane from time to time. A lane's counts are its own row plus all its
//! deltas.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ostler_core::StateName;
use ostler_store::RECENT_RUNS;
use ostler_store::views::{Counts, LaneTotals};

use tokio_postgres::Row;

use crate::commit_mark::CommitMark;
use crate::conn::{Conn, big, get};
use crate::fault::Sql;
use crate::notifier::Notification;
use crate::param::Param;

/// Deltas are folded once this many were added.
const FOLD_EVERY: i64 = 256;

/// The changes to a lane's counts during a transaction.
#[derive(Default)]
pub(crate) struct LaneChange {
    pub(crate) counts: [i64; 6],
    pruned: [i64; 6],
    tally: LaneTotals,
    recent_ms: Vec<i64>,
}

#[derive(Default)]
pub(crate) struct LaneChanges(HashMap<i64, LaneChange>);

impl LaneChanges {
    /// Counts a state transition; `None` means outside the store.
    pub(crate) fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>) {
        let change = self.0.entry(lane).or_default();
        if let Some(from) = from {
            change.counts[from as usize] -= 1;
        }
        if let Some(to) = to {
            change.counts[to as usize] += 1;
        }
    }

    /// Counts a removed task; finished tasks stay in the lane's totals.
    pub(crate) fn count_pruned(&mut self, lane: i64, state: StateName) {
        self.0.entry(lane).or_default().pruned[state as usize] += 1;
    }

    /// The totals accumulated for a lane.
    pub(crate) fn tally(&mut self, lane: i64) -> &mut LaneTotals {
        &mut self.0.entry(lane).or_default().tally
    }

    /// Records the duration of an attempt.
    pub(crate) fn count_run(&mut self, lane: i64, took: Duration) {
        let took = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        self.0.entry(lane).or_default().recent_ms.push(i64::from(took));
    }

    /// The net change of tasks in these states, over these lanes.
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

    /// Writes the accumulated counts.
    pub(crate) async fn write(&mut self, conn: &Conn) -> Sql<()> {
        conn.rows(ADD, &self.take().params()).await?;
        Ok(())
    }

    /// Writes the accumulated counts, if there are any, and commits; listeners receive the notification then.
    pub(crate) async fn write_with_commit(
        &mut self,
        conn: &mut Conn,
        notice: Option<&Notification>,
        mark: &CommitMark,
    ) -> Sql<CommittedCounts> {
        if self.is_empty() {
            let (_, marked) = conn.commit_marked(mark, None).await?;
            return Ok(CommittedCounts { fold: false, marked });
        }
        let columns = self.take();
        let mut params = columns.params();
        let sql = match notice {
            None => Cow::Borrowed(ADD),
            Some(notice) => {
                params.push(&notice.channel);
                params.push(&notice.text);
                Cow::Owned(format!("{ADD}, pg_notify($16, $17)"))
            }
        };
        let (rows, marked) = conn.commit_marked(mark, Some((&sql, &params))).await?;
        Ok(CommittedCounts { fold: is_due(&rows)?, marked })
    }

    fn take(&mut self) -> Columns {
        let changes: BTreeMap<i64, LaneChange> = std::mem::take(&mut self.0).into_iter().collect();
        let column = |of: fn(&LaneChange) -> i64| changes.values().map(of).collect::<Vec<i64>>();
        let lanes: Vec<i64> = changes.keys().copied().collect();
        // Arrays of arrays must have one length, so a lane's durations are sent as text.
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
            column(|change| big(change.tally.attempts)),
            column(|change| big(change.tally.retried)),
            column(|change| big(change.tally.replayed_failed)),
            column(|change| big(change.tally.replayed_cancelled)),
        ];
        Columns { numbers, recent }
    }
}

/// Adds a row for each lane.
const ADD: &str = "INSERT INTO ostler.lane_delta(lane, queued, claimed, running, completed, failed, cancelled, pruned_completed,
        pruned_failed, pruned_cancelled, attempts, retried, replayed_failed, replayed_cancelled, recent)
     SELECT a, b, c, d, e, f, g, h, i, j, k, l, m, o, p::bigint[]
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[])
        AS n(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
     RETURNING seq";

/// The parameters of [`ADD`].
struct Columns {
    numbers: [Vec<i64>; 14],
    recent: Vec<String>,
}

impl Columns {
    fn params(&self) -> Vec<&(dyn Param + Sync)> {
        let numbers = self.numbers.iter().map(|column| column as &(dyn Param + Sync));
        numbers.chain([&self.recent as &(dyn Param + Sync)]).collect()
    }
}

/// Whether a fold is due, now that these rows were added.
fn is_due(rows: &[Row]) -> Sql<bool> {
    let mut due = false;
    for row in rows {
        due |= get::<i64>(row, 0)? % FOLD_EVERY == 0;
    }
    Ok(due)
}

/// The result of a committed transaction.
pub(crate) struct CommittedCounts {
    /// Whether a fold is due.
    pub(crate) fold: bool,
    /// Whether it has written anything, and set its mark.
    pub(crate) marked: bool,
}

/// Folds the deltas, unless another transaction is doing so. The length of a queue is evaluated after each transaction,
/// identified by its `xmin`: a task that it moves from one lane to another is not counted twice.
pub(crate) async fn fold(conn: &Conn, lock: &str) -> Sql<()> {
    conn.exec(
        "WITH mine AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AS yes),
         gone AS (DELETE FROM ostler.lane_delta WHERE (SELECT yes FROM mine) RETURNING *, xmin::text AS made_by),
         bases AS MATERIALIZED (SELECT id, queue, queued FROM ostler.lane
                  WHERE queue IN (SELECT l.queue FROM ostler.lane l JOIN gone g ON g.lane = l.id) FOR NO KEY UPDATE),
         moves AS (SELECT b.queue, max(g.seq) AS seq, sum(g.queued) AS queued
                  FROM gone g JOIN bases b ON b.id = g.lane GROUP BY b.queue, g.made_by),
         levels AS (SELECT queue, sum(queued) OVER (PARTITION BY queue ORDER BY seq) AS level FROM moves),
         highs AS (SELECT v.queue, max(v.level) + (SELECT sum(b.queued) FROM bases b WHERE b.queue = v.queue) AS high
                  FROM levels v GROUP BY v.queue),
         runs AS (SELECT g.lane, array_agg(r.took ORDER BY g.seq, r.at) AS recent
                  FROM gone g CROSS JOIN LATERAL unnest(g.recent) WITH ORDINALITY AS r(took, at) GROUP BY g.lane),
         sums AS (SELECT lane, sum(queued) AS queued, sum(claimed) AS claimed, sum(running) AS running,
                    sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled,
                    sum(pruned_completed) AS pruned_completed, sum(pruned_failed) AS pruned_failed,
                    sum(pruned_cancelled) AS pruned_cancelled, sum(attempts) AS attempts, sum(retried) AS retried,
                    sum(replayed_failed) AS replayed_failed, sum(replayed_cancelled) AS replayed_cancelled
                  FROM gone GROUP BY lane)
         UPDATE ostler.lane l SET queued = l.queued + s.queued, claimed = l.claimed + s.claimed, running = l.running + s.running,
            completed = l.completed + s.completed, failed = l.failed + s.failed, cancelled = l.cancelled + s.cancelled,
            pruned_completed = l.pruned_completed + s.pruned_completed, pruned_failed = l.pruned_failed + s.pruned_failed,
            pruned_cancelled = l.pruned_cancelled + s.pruned_cancelled,
            attempts = l.attempts + s.attempts, retried = l.retried + s.retried,
            replayed_failed = l.replayed_failed + s.replayed_failed,
            replayed_cancelled = l.replayed_cancelled + s.replayed_cancelled,
            high_water = greatest(l.high_water, h.high),
            recent = coalesce((l.recent || r.recent)[greatest(1, cardinality(l.recent) + cardinality(r.recent) - 99):], l.recent)
         FROM sums s LEFT JOIN runs r ON r.lane = s.lane CROSS JOIN highs h WHERE l.id = s.lane AND h.queue = l.queue",
        &[&lock],
    )
    .await?;
    Ok(())
}

/// The counts of a lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) counts: Counts,
    /// Pruned tasks: completed, failed, cancelled.
    pub(crate) pruned: [u64; 3],
    pub(crate) tally: LaneTotals,
    /// The largest length that the lane's queue ever had.
    pub(crate) high_water: u64,
    pub(crate) recent_ms: Vec<u32>,
}

/// The columns that are folded.
const NUMBERS: &str = "queued, claimed, running, completed, failed, cancelled, pruned_completed, pruned_failed, pruned_cancelled,
    attempts, retried, replayed_failed, replayed_cancelled";

/// The sum of a lane's row and its deltas.
#[derive(Default)]
struct Sum {
    queue: i64,
    numbers: [i64; 13],
    recent: Vec<i64>,
}

/// The length of a queue over time, transaction by transaction.
#[derive(Default)]
struct Level {
    high_water: i64,
    summed_up: i64,
    /// The sequence number and the change of each transaction, by its id.
    added: HashMap<String, (i64, i64)>,
}

impl Level {
    /// The largest length.
    fn highest(self) -> i64 {
        let mut added: Vec<(i64, i64)> = self.added.into_values().collect();
        added.sort_unstable();
        let (mut level, mut highest) = (self.summed_up, self.high_water.max(self.summed_up));
        for (_, waiting) in added {
            level += waiting;
            highest = highest.max(level);
        }
        highest
    }
}

/// Returns the counts of all lanes, or of one queue's lanes, on one snapshot of the store.
pub(crate) async fn counted(conn: &Conn, queue: Option<i64>) -> Sql<HashMap<i64, Counted>> {
    let sql = format!(
        "SELECT id, queue, 0::bigint, NULL::text, high_water, recent, {NUMBERS}
         FROM ostler.lane WHERE $1::bigint IS NULL OR queue = $1
         UNION ALL
         SELECT d.lane, l.queue, d.seq, d.made_by, 0, d.recent, {NUMBERS}
         FROM (SELECT *, xmin::text AS made_by FROM ostler.lane_delta) d JOIN (SELECT id, queue FROM ostler.lane) l ON l.id = d.lane
         WHERE $1::bigint IS NULL OR l.queue = $1
         ORDER BY 1, 3"
    );
    let mut sums: HashMap<i64, Sum> = HashMap::new();
    let mut levels: HashMap<i64, Level> = HashMap::new();
    for row in &conn.rows(&sql, &[&queue]).await? {
        let sum = sums.entry(get(row, 0)?).or_default();
        sum.queue = get(row, 1)?;
        sum.recent.extend(get::<Vec<i64>>(row, 5)?);
        for (at, sum) in sum.numbers.iter_mut().enumerate() {
            *sum += get::<i64>(row, 6 + at)?;
        }
        let (level, seq, queued): (_, i64, i64) =
            (levels.entry(sum.queue).or_default(), get(row, 2)?, get(row, 6)?);
        level.high_water = level.high_water.max(get(row, 4)?);
        match get::<Option<String>>(row, 3)? {
            None => level.summed_up += queued,
            Some(transaction) => {
                let (last, waiting) = level.added.entry(transaction).or_default();
                *last = seq.max(*last);
                *waiting += queued;
            }
        }
    }
    let highs: HashMap<i64, i64> =
        levels.into_iter().map(|(queue, level)| (queue, level.highest())).collect();
    let high_water = |sum: &Sum| highs.get(&sum.queue).copied().unwrap_or(0);
    Ok(sums.into_iter().map(|(lane, sum)| (lane, of(&sum, high_water(&sum)))).collect())
}

fn of(sum: &Sum, high_water: i64) -> Counted {
    let natural = |number: i64| u64::try_from(number).unwrap_or(0);
    let [queued, claimed, running, completed, failed, cancelled, rest @ ..] = sum.numbers.map(natural);
    let [pruned @ .., attempts, retried, replayed_failed, replayed_cancelled] = rest;
    let last = sum.recent.len().saturating_sub(RECENT_RUNS);
    Counted {
        counts: Counts { queued, claimed, running, completed, failed, cancelled },
        pruned,
        tally: LaneTotals { attempts, retried, replayed_failed, replayed_cancelled },
        high_water: natural(high_water),
        recent_ms: sum.recent[last..].iter().map(|took| u32::try_from(*took).unwrap_or(u32::MAX)).collect(),
    }
}
