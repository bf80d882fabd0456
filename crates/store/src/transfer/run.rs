//! The move itself. It has no state of its own: how far it has come stands in the two stores.

use std::time::Duration;

use ostler_core::Id;
use tokio::time::{Instant, sleep};

use super::record::{Checksum, Record, RecordKey};
use super::sides::{Arriving, Departure, MoveId, MoveSource, MoveStage, MoveTarget};
use super::tables::Table;
use crate::error::{Error, ErrorKind};

/// Rows that go at once, as a rule.
pub const ROWS: usize = 1_000;
/// How long to wait before looking again whether tasks are leased.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What is to be moved, and how.
#[derive(Clone, Debug)]
pub struct MovePlan {
    /// A new id, for a store that never moved.
    pub id: Id,
    /// Where it comes from, for people.
    pub from: String,
    /// Where it goes, without a password.
    pub to: String,
    /// How long what runs may take to end. What is still leased then is handed back.
    pub patience: Duration,
    /// How many rows go at once: [`ROWS`], unless somebody wants to see more of it.
    pub rows: usize,
}

/// How far it has come. Each one is told before or after a write, and a kill there loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// The source takes nothing new.
    Leaving,
    /// The target lets nobody in.
    Arriving,
    /// So many tasks are still leased.
    Draining {
        /// How many.
        leased: u64,
    },
    /// Nothing changes at the source any more.
    Frozen {
        /// How many tasks were handed back.
        handed_back: u64,
    },
    /// Rows are in the target.
    Copied {
        /// Of this table.
        table: Table,
        /// How many in all, of this run.
        rows: u64,
    },
    /// A table is the same on both sides.
    Verified {
        /// Which.
        table: Table,
        /// How many rows it has.
        rows: u64,
    },
    /// The source is marked as moved.
    Gone,
    /// The target is in use.
    Open,
}

/// What was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveSummary {
    /// Every table, with its count and sum; none when this had been moved before.
    pub tables: Vec<TableMoved>,
}

/// A table that is the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMoved {
    /// Which.
    pub table: Table,
    /// Its rows.
    pub rows: u64,
    /// The sum over all that is in them.
    pub sum: String,
}

/// Who is told how far it is.
pub type MoveProgress<'a> = &'a (dyn Fn(MoveStep) + Sync);

/// Moves a store. Run again after a stop, it goes on where it was.
///
/// # Errors
/// When a side refuses or cannot be reached, or the two are not the same in the end. The source is then as it was, or takes nothing new
/// until the move is run again or given up.
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
        // A place that holds a part of this move is the right one, however it is called this time.
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

/// Gives a move up: the source works as before. Without a target, what is there stays, and is not used.
///
/// # Errors
/// When no move is under way, or it has ended already.
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

/// A move that is under way goes where it set out to.
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

/// Marks both sides, waits for what runs, and freezes the source.
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
        // Somebody was faster. Nothing has happened yet that could not be taken back.
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
    // It ends when nothing is leased, or the patience has ended.
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

/// Copies what is missing, and compares everything.
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

/// Copies the rows of a table that the target has not. Each batch is above the one before: it ends.
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

/// Reads a table on both sides, row by row.
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
        // As many as there: a batch of the source is never too large.
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

/// The first row that only one side has, or that is another there.
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
