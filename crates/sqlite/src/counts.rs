//! Task counts per lane: accumulated in memory and written once per transaction.

use std::time::Duration;

use ostler_core::StateName;
use ostler_store::RECENT_RUNS;
use ostler_store::views::{Counts, LaneTotals};
use rusqlite::params;

use crate::tx::{Sql, Tx};

/// The changes to a lane's counts during this transaction.
#[derive(Default)]
pub(crate) struct LaneChange {
    pub(crate) counts: [i64; 6],
    pruned: [i64; 6],
    tally: LaneTotals,
    recent_ms: Vec<u32>,
}

impl Tx<'_> {
    /// Counts a state transition; `None` means outside the store.
    pub(crate) fn count(&mut self, lane: i64, from: Option<StateName>, to: Option<StateName>) {
        let change = self.lanes.entry(lane).or_default();
        if let Some(from) = from {
            change.counts[from as usize] -= 1;
        }
        if let Some(to) = to {
            change.counts[to as usize] += 1;
        }
        if to.is_some_and(StateName::is_terminal) {
            self.changed();
        }
    }

    /// Counts a removed task; finished tasks stay in the lane's totals.
    pub(crate) fn count_pruned(&mut self, lane: i64, state: StateName) {
        self.lanes.entry(lane).or_default().pruned[state as usize] += 1;
    }

    /// The totals accumulated for a lane during this transaction.
    pub(crate) fn tally(&mut self, lane: i64) -> &mut LaneTotals {
        &mut self.lanes.entry(lane).or_default().tally
    }

    /// Records the duration of an attempt.
    pub(crate) fn count_run(&mut self, lane: i64, took: Duration) {
        let took = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        self.lanes.entry(lane).or_default().recent_ms.push(took);
    }

    /// Writes the counts accumulated so far.
    pub(crate) fn flush_lanes(&mut self) -> Sql<()> {
        let lanes = std::mem::take(&mut self.lanes);
        for (lane, change) in &lanes {
            let [queued, claimed, running, completed, failed, cancelled] = change.counts;
            let LaneTotals { attempts, retried, replayed_failed, replayed_cancelled } = change.tally;
            self.prepare(
                "UPDATE lane SET queued = queued + ?2, claimed = claimed + ?3, running = running + ?4,
                    completed = completed + ?5, failed = failed + ?6, cancelled = cancelled + ?7,
                    attempts = attempts + ?8, retried = retried + ?9, replayed_failed = replayed_failed + ?10,
                    replayed_cancelled = replayed_cancelled + ?11
                 WHERE id = ?1",
            )?
            .execute(params![
                lane,
                queued,
                claimed,
                running,
                completed,
                failed,
                cancelled,
                attempts,
                retried,
                replayed_failed,
                replayed_cancelled
            ])?;
            if change.pruned != [0; 6] {
                let [_, _, _, completed, failed, cancelled] = change.pruned;
                self.prepare(
                    "UPDATE lane SET pruned_completed = pruned_completed + ?2, pruned_failed = pruned_failed + ?3,
                        pruned_cancelled = pruned_cancelled + ?4 WHERE id = ?1",
                )?
                .execute(params![lane, completed, failed, cancelled])?;
            }
            if !change.recent_ms.is_empty() {
                self.keep_recent(*lane, &change.recent_ms)?;
            }
        }
        // A queue's length can only have risen if one of its lanes grew.
        for (lane, _) in lanes.iter().filter(|(_, change)| change.counts[StateName::Queued as usize] > 0) {
            self.prepare(
                "UPDATE lane SET high_water = level.waiting
                 FROM (SELECT sum(of.queued) AS waiting FROM lane of
                       WHERE of.queue = (SELECT queue FROM lane WHERE id = ?1)) AS level
                 WHERE id = ?1 AND high_water < level.waiting",
            )?
            .execute([lane])?;
        }
        Ok(())
    }

    fn keep_recent(&self, lane: i64, new: &[u32]) -> Sql<()> {
        let old: Vec<u8> =
            self.prepare("SELECT recent FROM lane WHERE id = ?1")?.query_row([lane], |row| row.get(0))?;
        let mut all = recent_from(&old);
        all.extend(new);
        let excess = all.len().saturating_sub(RECENT_RUNS);
        let bytes: Vec<u8> = all[excess..].iter().flat_map(|took| took.to_le_bytes()).collect();
        self.prepare("UPDATE lane SET recent = ?2 WHERE id = ?1")?.execute(params![lane, bytes])?;
        Ok(())
    }
}

/// Decodes the recent durations (ms) of a lane.
pub(crate) fn recent_from(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// Reads the counts of a lane from six consecutive columns.
pub(crate) fn counts_from(row: &rusqlite::Row<'_>, first: usize) -> Sql<Counts> {
    Ok(Counts {
        queued: row.get(first)?,
        claimed: row.get(first + 1)?,
        running: row.get(first + 2)?,
        completed: row.get(first + 3)?,
        failed: row.get(first + 4)?,
        cancelled: row.get(first + 5)?,
    })
}
