//! The steps of a move. It has no state of its own: its progress is recorded in the two stores.

use std::time::Duration;

use ostler_core::Id;
use tokio::time::{Instant, sleep};

use super::record::{Checksum, Record, RecordKey};
use super::sides::{Arriving, Departure, MoveId, MoveSource, MoveStage, MoveTarget};
use super::tables::Table;
use crate::error::{Error, ErrorKind};

/// Rows per batch.
pub const ROWS: usize = 1_000;
/// The interval of checking whether tasks are still leased.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The plan of a move.
#[derive(Clone, Debug)]
pub struct MovePlan {
    /// A new id, for a store that never moved.
    pub id: Id,
    /// The source, for display.
    pub from: String,
    /// The target, without a password.
    pub to: String,
    /// How long running attempts may take to finish. Tasks that are still leased then are handed back.
    pub patience: Duration,
    /// Rows per batch: [`ROWS`], unless the caller wants more frequent progress.
    pub rows: usize,
}

/// The progress of a move. Each step is reported before or after a write, and a kill there loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// The source accepts no new work.
    Leaving,
    /// The target is closed to other users.
    Arriving,
    /// Tasks are still leased.
    Draining { leased: u64 },
    /// Nothing changes at the source any more.
    Frozen {
        /// Tasks that were handed back.
        handed_back: u64,
    },
    /// Rows are in the target.
    Copied {
        table: Table,
        /// Rows of this table in all, in this run.
        rows: u64,
    },
    /// A table is the same on both sides.
    Verified { table: Table, rows: u64 },
    /// The source is marked as moved.
    Gone,
    /// The target is in use.
    Open,
}

/// The result of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveSummary {
    /// Every table, with its row count and checksum; empty when it had been moved before.
    pub tables: Vec<TableMoved>,
}

/// A table that is the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMoved {
    pub table: Table,
    pub rows: u64,
    /// The checksum of its rows.
    pub sum: String,
}

/// The progress callback.
pub type MoveProgress<'a> = &'a (dyn Fn(MoveStep) + Sync);

/// Moves a store. Run again after an interruption, it resumes where it was.
///
/// # Errors
/// When a side refuses or cannot be reached, or the two differ in the end. The source is then unchanged, or accepts no new work
/// until the move is run again or abandoned.
pub async fn run(
    source: &dyn MoveSource,
    target: &dyn MoveTarget,
    plan: &MovePlan,
    tell: MoveProgress<'_>,
) -> Result<MoveSummary, Error> {
    let before = source.departure().await?;
    let stage = before.as_ref().map_or(MoveStage::Staying, |departure| departure.stage);
    let id = next_id(before.as_ref(), plan);
    let arriving = target.look(id).await?;
    if matches!(arriving, Arriving::Empty | Arriving::Stale) {
        // A target that holds a part of this move is the right one, whatever its name this time.
        refuse_elsewhere(before.as_ref(), plan)?;
    }
    match (stage, arriving) {
        (MoveStage::Gone, Arriving::Open) => return Ok(MoveSummary { tables: Vec::new() }),
        (MoveStage::Gone, Arriving::Half) => {}
        (MoveStage::Gone, Arriving::Empty | Arriving::Stale) => return Err(not_there(plan)),
        (MoveStage::Staying | MoveStage::Leaving | MoveStage::Frozen, Arriving::Open) => {
            return Err(taken(plan));
        }
        (MoveStage::Staying | MoveStage::Leaving, Arriving::Empty | Arriving::Half | Arriving::Stale)
        | (MoveStage::Frozen, Arriving::Empty | Arriving::Half | Arriving::Stale) => {
            set_out(source, target, id, plan, stage, tell).await?;
        }
    }
    let tables =
        if stage == MoveStage::Gone { Vec::new() } else { carry(source, target, plan, tell).await? };
    if stage != MoveStage::Gone {
        source.go().await?;
        tell(MoveStep::Gone);
    }
    target.open(source.last_telling().await?).await?;
    tell(MoveStep::Open);
    Ok(MoveSummary { tables })
}

/// Abandons a move: the source works as before. Without a target, the rows already copied stay there, unused.
///
/// # Errors
/// When no move is in progress, or it is already complete.
pub async fn abandon(source: &dyn MoveSource, target: Option<&dyn MoveTarget>) -> Result<Departure, Error> {
    let under_way = source.departure().await?.filter(|departure| departure.stage != MoveStage::Staying);
    let Some(departure) = under_way else {
        return Err(Error::invalid("no move of this store is under way: there is nothing to give up"));
    };
    if departure.stage == MoveStage::Gone {
        let sentence =
            format!("this store has moved to {}: that cannot be given up any more", departure.target);
        return Err(Error::new(ErrorKind::Moved, sentence));
    }
    if let Some(target) = target {
        match target.look(departure.id).await? {
            Arriving::Half | Arriving::Stale => target.forget().await?,
            Arriving::Empty => {}
            Arriving::Open => {
                return Err(Error::new(ErrorKind::Internal, "a store that is not gone is in use elsewhere"));
            }
        }
    }
    source.stay().await?;
    Ok(departure)
}

fn next_id(before: Option<&Departure>, plan: &MovePlan) -> MoveId {
    match before {
        None => MoveId { id: plan.id, round: 1 },
        Some(Departure { id, stage: MoveStage::Staying, .. }) => {
            MoveId { round: id.round.saturating_add(1), ..*id }
        }
        Some(Departure { id, stage: MoveStage::Leaving | MoveStage::Frozen | MoveStage::Gone, .. }) => *id,
    }
}

/// Rejects a target other than that of the move in progress.
fn refuse_elsewhere(before: Option<&Departure>, plan: &MovePlan) -> Result<(), Error> {
    let Some(Departure { stage, target, .. }) = before else { return Ok(()) };
    let (from, to) = (&plan.from, &plan.to);
    match stage {
        MoveStage::Staying => Ok(()),
        MoveStage::Leaving | MoveStage::Frozen | MoveStage::Gone if target == to => Ok(()),
        MoveStage::Leaving | MoveStage::Frozen => Err(Error::invalid(format!(
            "{from} is on its way to {target}, and not to {to}: run that move again, or give it up with --abandon"
        ))),
        MoveStage::Gone => Err(Error::new(
            ErrorKind::Moved,
            format!("{from} has moved to {target}, and is not used any more"),
        )),
    }
}

fn not_there(plan: &MovePlan) -> Error {
    let sentence = format!(
        "{} has moved to {}, but what was carried there is gone: restore that database from a backup",
        plan.from, plan.to
    );
    Error::new(ErrorKind::Damaged, sentence)
}

fn taken(plan: &MovePlan) -> Error {
    Error::invalid(format!("{} is in use already: move into an empty database", plan.to))
}

/// Marks both sides, waits for running attempts, and freezes the source.
async fn set_out(
    source: &dyn MoveSource,
    target: &dyn MoveTarget,
    id: MoveId,
    plan: &MovePlan,
    stage: MoveStage,
    tell: MoveProgress<'_>,
) -> Result<(), Error> {
    if stage == MoveStage::Staying {
        source.leave(id, &plan.to).await?;
    }
    tell(MoveStep::Leaving);
    if let Err(refused) = target.begin(id, &plan.from).await {
        // Another user took the target first. Everything so far can be undone.
        if stage == MoveStage::Staying && !refused.is_transient() {
            source.stay().await?;
        }
        return Err(refused);
    }
    tell(MoveStep::Arriving);
    if stage == MoveStage::Frozen {
        return Ok(());
    }
    let until = Instant::now() + plan.patience;
    // Ends when nothing is leased, or the patience has run out.
    loop {
        let leased = source.leased().await?;
        tell(MoveStep::Draining { leased });
        let left = until.saturating_duration_since(Instant::now());
        if leased == 0 || left.is_zero() {
            break;
        }
        sleep(LOOK_AGAIN.min(left)).await;
    }
    let handed_back = source.freeze().await?;
    tell(MoveStep::Frozen { handed_back });
    Ok(())
}

/// Copies the missing rows, and compares everything.
async fn carry(
    source: &dyn MoveSource,
    target: &dyn MoveTarget,
    plan: &MovePlan,
    tell: MoveProgress<'_>,
) -> Result<Vec<TableMoved>, Error> {
    for table in Table::ALL {
        copy(source, target, table, plan, tell).await?;
    }
    let mut tables = Vec::with_capacity(Table::ALL.len());
    for table in Table::ALL {
        let moved = compare(source, target, table, plan).await?;
        tell(MoveStep::Verified { table, rows: moved.rows });
        tables.push(moved);
    }
    Ok(tables)
}

/// Copies the rows of a table that the target lacks. Each batch is above the previous one, so it terminates.
async fn copy(
    source: &dyn MoveSource,
    target: &dyn MoveTarget,
    table: Table,
    plan: &MovePlan,
    tell: MoveProgress<'_>,
) -> Result<(), Error> {
    let mut after = target.reached(table).await?;
    let mut rows = 0;
    loop {
        let records = source.read(table, after.as_ref(), plan.rows).await?;
        let Some(last) = records.last() else { break };
        after = Some(last.key(table));
        target.put(table, &records).await?;
        rows += records.len() as u64;
        tell(MoveStep::Copied { table, rows });
    }
    if rows == 0 {
        tell(MoveStep::Copied { table, rows });
    }
    Ok(())
}

/// Compares a table on both sides, row by row.
async fn compare(
    source: &dyn MoveSource,
    target: &dyn MoveTarget,
    table: Table,
    plan: &MovePlan,
) -> Result<TableMoved, Error> {
    let (mut here, mut there) = (Checksum::default(), Checksum::default());
    let mut after: Option<RecordKey> = None;
    loop {
        let ours = source.read(table, after.as_ref(), plan.rows).await?;
        // Read as many rows as the source returned: a batch of the source is never too large.
        let theirs = target.read(table, after.as_ref(), ours.len().max(1)).await?;
        if let Some(key) = first_difference(table, &ours, &theirs) {
            return Err(differs(table, &key, plan));
        }
        ours.iter().for_each(|record| here.add(record));
        theirs.iter().for_each(|record| there.add(record));
        let Some(last) = ours.last() else { break };
        after = Some(last.key(table));
    }
    let moved = TableMoved { table, rows: here.rows(), sum: here.text() };
    if here.rows() != there.rows() || moved.sum != there.text() {
        return Err(differs(table, &after.unwrap_or(RecordKey(Vec::new())), plan));
    }
    Ok(moved)
}

/// The first row that only one side has, or that differs.
fn first_difference(table: Table, ours: &[Record], theirs: &[Record]) -> Option<RecordKey> {
    let differing = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs).map(|(ours, _)| ours);
    let missing = || ours.get(theirs.len()).or_else(|| theirs.get(ours.len()));
    differing.or_else(missing).map(|record| record.key(table))
}

fn differs(table: Table, key: &RecordKey, plan: &MovePlan) -> Error {
    let sentence = format!(
        "what arrived in {} is not what left {}: the table \"{}\" differs at {key}. Nothing is lost, and the old store is \
         as it was; give this move up with --abandon, and begin anew",
        plan.to,
        plan.from,
        table.name()
    );
    Error::new(ErrorKind::Damaged, sentence)
}
