//! Ids by their beginning or end, and whether they exist.

use std::collections::BTreeSet;

use ostler_core::{Id, IdPart, TaskId};
use ostler_store::MAX_ID_SCAN;
use ostler_store::views::{FoundIds, IdScan};

use crate::params;
use crate::tx::Snapshot;
use crate::value::Row;

/// Ids read by one statement of a scan.
const CHUNK: usize = 5_000;

/// Those of these tasks that exist.
///
/// # Errors
/// When a statement fails.
pub async fn existing<S: Snapshot>(snapshot: &S, tasks: &[TaskId]) -> Result<Vec<TaskId>, S::Error> {
    let mut found = Vec::with_capacity(tasks.len());
    for task in tasks {
        let row = snapshot.row("SELECT uid FROM ostler.task WHERE uid = $1", params![task]).await?;
        found.extend(row.map(|_| *task));
    }
    Ok(found)
}

/// Tasks whose id begins or ends with this, the highest first. The end of an id is random: an index on it would cost every insert, so
/// the highest ids are scanned instead, which are those of the newest tasks.
///
/// # Errors
/// When a statement fails.
pub async fn find_ids<S: Snapshot>(snapshot: &S, part: IdPart, limit: usize) -> Result<FoundIds, S::Error> {
    let mut found = BTreeSet::new();
    if let Some(range) = part.beginning() {
        let rows = snapshot
            .rows(
                "SELECT uid FROM ostler.task WHERE uid BETWEEN $1 AND $2 ORDER BY uid DESC LIMIT $3",
                params![*range.start(), *range.end(), limit + 1],
            )
            .await?;
        for row in &rows {
            found.insert(row.get::<Id>(0)?);
        }
    }
    let mut scan = IdScan::Whole;
    let (mut scanned, mut ends) = (0, 0);
    let mut from = Some(Id::from_bits(u128::MAX));
    while let Some(highest) = from
        && ends <= limit
    {
        if scanned == MAX_ID_SCAN {
            scan = IdScan::Cut;
            break;
        }
        let rows = snapshot
            .rows(
                "SELECT uid FROM ostler.task WHERE uid <= $1 ORDER BY uid DESC LIMIT $2",
                params![highest, CHUNK],
            )
            .await?;
        from = None;
        for (number, row) in rows.iter().enumerate() {
            let id = row.get::<Id>(0)?;
            if part.ends(id) {
                ends += 1;
                found.insert(id);
            }
            if number + 1 == CHUNK {
                from = id.bits().checked_sub(1).map(Id::from_bits);
            }
        }
        scanned += rows.len();
    }
    if found.len() > limit {
        scan = IdScan::Cut;
    }
    Ok(FoundIds { ids: found.into_iter().rev().take(limit).map(TaskId).collect(), scan })
}
