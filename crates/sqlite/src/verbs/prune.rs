//! Prune: removes finished tasks with all their rows.

use ostler_core::{StateName, TaskId};
use ostler_sql::poll_now;
use ostler_store::MAX_CASCADE;
use ostler_store::calls::{Pruned, Retention};
use rusqlite::{OptionalExtension, params};

use crate::row::phase_at;
use crate::row::{Phase, Uid};
use crate::tx::{Sql, Tx};
use ostler_sql::dependents::let_go;
use ostler_sql::gates;
use ostler_sql::limit_keys;

/// Retention of ended sessions.
const SESSION_DAYS_MS: i64 = 7 * 24 * 60 * 60 * 1000;

pub(crate) fn tasks(tx: &mut Tx<'_>, ids: &[TaskId]) -> Sql<Pruned> {
    let (mut removed, mut left) = (0, MAX_CASCADE);
    for id in ids {
        let slot: Option<i64> = tx
            .prepare("SELECT id FROM task WHERE uid = ?1 AND phase > 4")?
            .query_row([Uid::of(id.0)], |row| row.get(0))
            .optional()?;
        if let Some(slot) = slot {
            removed += usize::from(remove(tx, slot, &mut left)?);
        }
    }
    Ok(Pruned { tasks: removed, more: false })
}

pub(crate) fn by_age_and_count(tx: &mut Tx<'_>, keep: &Retention) -> Sql<Pruned> {
    let (mut left, mut removed, mut cascade) = (keep.batch, 0, MAX_CASCADE);
    for (phase, age, kept) in [
        (Phase::Completed, keep.completed, "sum(completed - pruned_completed)"),
        (Phase::Failed, keep.failed, "sum(failed - pruned_failed)"),
        (Phase::Cancelled, keep.completed, "sum(cancelled - pruned_cancelled)"),
    ] {
        let stored: u64 =
            tx.prepare(&format!("SELECT coalesce({kept}, 0) FROM lane"))?.query_row([], |row| row.get(0))?;
        let excess = usize::try_from(stored.saturating_sub(keep.most)).unwrap_or(usize::MAX).min(left);
        let cutoff = tx.now.before(age).millis();
        let old: Vec<(i64, bool)> = {
            let mut statement = tx.prepare(
                "SELECT id, finished_at < ?2 FROM task INDEXED BY ended WHERE phase = ?1 AND phase > 4 ORDER BY finished_at, id LIMIT ?3",
            )?;
            let limit = i64::try_from(left).unwrap_or(i64::MAX);
            statement
                .query_map(params![phase.code(), cutoff, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Sql<_>>()?
        };
        let go: Vec<i64> = old
            .iter()
            .enumerate()
            .take_while(|(place, (_, old))| *old || *place < excess)
            .map(|(_, (slot, _))| *slot)
            .collect();
        left -= go.len();
        for slot in go {
            removed += usize::from(remove(tx, slot, &mut cascade)?);
        }
    }
    poll_now(gates::sweep(tx, keep.batch))?;
    poll_now(ostler_sql::jobs::prune(tx, keep))?;
    tx.prepare("DELETE FROM session WHERE swept = 1 AND ended_at < ?1")?
        .execute([tx.now.millis().saturating_sub(SESSION_DAYS_MS)])?;
    tx.forget_sessions();
    Ok(Pruned { tasks: removed, more: left == 0 && removed > 0 })
}

/// Removes a task, unless too many tasks still wait for it: then the next call continues.
fn remove(tx: &mut Tx<'_>, slot: i64, cascade: &mut usize) -> Sql<bool> {
    if !poll_now(let_go(tx, slot, cascade))? {
        return Ok(false);
    }
    let (lane, phase, limit): (i64, Phase, Option<i64>) = tx
        .prepare("DELETE FROM task WHERE id = ?1 RETURNING lane, phase, limit_id")?
        .query_row([slot], |row| Ok((row.get(0)?, phase_at(row, 1)?, row.get(2)?)))?;
    for table in ["attempt", "step", "event", "telling"] {
        tx.prepare(&format!("DELETE FROM {table} WHERE task = ?1"))?.execute([slot])?;
    }
    tx.prepare("DELETE FROM unique_key WHERE task = ?1")?.execute([slot])?;
    if let Some(limit) = limit {
        poll_now(limit_keys::leave(tx, limit))?;
    }
    let state: StateName = phase.state();
    tx.count_pruned(lane, state);
    Ok(true)
}
