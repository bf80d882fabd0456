//! Budgets: what a claim reserves, what attempts spend, and what their ends settle. Who changes the spending of a queue holds that queue
//! alone.

use std::collections::HashMap;

use ostler_core::{ChargeVerdict, Cost, CostReservation, Settlement, Spending, Timestamp};
use ostler_store::Check;
use ostler_store::budgets::{Charge, ask, shut, shut_queues};
use ostler_store::views::{QueueRecord, QueueSettings};

use crate::claim::ReadyTask;
use crate::params;
use crate::tx::{Snapshot, Tx};
use crate::value::Row;

/// The budgets that the tasks of a queue are charged to, for one claim.
pub struct ClaimBudgets {
    queue: String,
    charges: Vec<Charge>,
    /// The budget that was found to be reached, by its place.
    reached: Option<usize>,
}

impl ClaimBudgets {
    /// The budgets of a queue; `None`: it has none.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn of<T: Tx>(
        tx: &mut T,
        queue: &str,
        settings: &QueueSettings,
    ) -> Result<Option<Self>, T::Error> {
        if !settings.is_charged() {
            return Ok(None);
        }
        let mut charges = Vec::new();
        for name in settings.charged(queue) {
            let Some(budget) = tx.queue(name).await?.and_then(|queue| queue.settings.budget) else {
                continue;
            };
            tx.exclusive(name)?;
            charges.push(Charge { queue: name.to_owned(), budget, spending: read(tx, name).await? });
        }
        Ok((!charges.is_empty()).then(|| Self { queue: queue.to_owned(), charges, reached: None }))
    }

    /// Whether one more task may start.
    pub fn ask<T: Tx>(&self, tx: &T) -> ChargeVerdict {
        if tx.checks().pass(Check::Budget, false) {
            return ChargeVerdict::Start(vec![Cost::default(); self.charges.len()]);
        }
        ask(&self.charges, tx.now())
    }

    /// The queue of this budget is to be paused.
    pub const fn reached(&mut self, at: usize) {
        self.reached = Some(at);
    }

    /// A task is claimed with these reservations.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn reserve<T: Tx>(
        &mut self,
        tx: &T,
        task: &ReadyTask,
        amounts: &[Cost],
    ) -> Result<(), T::Error> {
        let token = task.claimed.lease.as_ref().token;
        for (charge, amount) in self.charges.iter_mut().zip(amounts) {
            charge.spending.reserve(*amount);
            tx.exec(
                "INSERT INTO ostler.reservation(task, token, charged, queue, rest, spent) VALUES($1, $2, $3, $4, $5, 0)",
                params![task.slot, token, charge.queue, self.queue, amount.nanos()],
            )
            .await?;
        }
        Ok(())
    }

    /// Stores what was reserved, and pauses the queue whose budget is reached.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn keep<T: Tx>(self, tx: &mut T) -> Result<(), T::Error> {
        for charge in &self.charges {
            write(tx, &charge.queue, &charge.spending).await?;
        }
        let Some(Charge { queue, budget, spending }) = self.reached.map(|at| &self.charges[at]) else {
            return Ok(());
        };
        let settings = tx.queue_or_new(queue).await?.settings.clone();
        if settings.paused.is_none() {
            let paused = Some(budget.reason(spending));
            tx.set_settings(queue, &QueueSettings { paused, ..settings }).await?;
        }
        Ok(())
    }
}

/// Whether budgets let no task of a queue start now. `pool` are the settings of its pool's queue.
///
/// # Errors
/// When a statement fails.
pub async fn is_shut<S: Snapshot>(
    snapshot: &S,
    queue: &str,
    settings: &QueueSettings,
    pool: &QueueSettings,
    now: Timestamp,
) -> Result<bool, S::Error> {
    let mut charges = Vec::new();
    for name in settings.charged(queue) {
        let of = if name == queue { settings } else { pool };
        if let Some(budget) = of.budget {
            charges.push(Charge { queue: name.to_owned(), budget, spending: read(snapshot, name).await? });
        }
    }
    Ok(shut(&charges, now).is_some())
}

/// What a queue with a budget has spent.
///
/// # Errors
/// When a statement fails.
async fn read<S: Snapshot>(snapshot: &S, queue: &str) -> Result<Spending, S::Error> {
    let sql =
        "SELECT spent, reserved, in_flight, day, spent_today, recent FROM ostler.spending WHERE queue = $1";
    snapshot.row(sql, params![queue]).await?.map_or_else(|| Ok(Spending::default()), |row| spending(&row, 0))
}

/// Completes the queues of a survey with what they have spent, and whether a budget throttles them.
///
/// # Errors
/// When a statement fails.
pub async fn survey<S: Snapshot>(
    snapshot: &S,
    queues: &mut [QueueRecord],
    now: Timestamp,
) -> Result<(), S::Error> {
    if !queues.iter().any(|queue| queue.settings.is_charged()) {
        return Ok(());
    }
    let sql = "SELECT queue, spent, reserved, in_flight, day, spent_today, recent FROM ostler.spending";
    let mut all = HashMap::new();
    for row in snapshot.rows(sql, params![]).await? {
        all.insert(row.get::<String>(0)?, spending(&row, 1)?);
    }
    for queue in queues.iter_mut().filter(|queue| queue.settings.budget.is_some()) {
        queue.spending = Some(all.remove(&queue.name).unwrap_or_default());
    }
    shut_queues(queues, now);
    Ok(())
}

/// Spending from the columns `spent, reserved, in_flight, day, spent_today, recent`.
fn spending<R: Row>(row: &R, first: usize) -> Result<Spending, R::Error> {
    let recent: String = row.get(first + 5)?;
    // A sample that cannot be read after an edit by hand is none: it can be taken again.
    let recent: Vec<u64> = serde_json::from_str(&recent).unwrap_or_default();
    Ok(Spending {
        spent: Cost::from_nanos(row.get(first)?),
        reserved: Cost::from_nanos(row.get(first + 1)?),
        in_flight: row.get(first + 2)?,
        day: row.get(first + 3)?,
        spent_today: Cost::from_nanos(row.get(first + 4)?),
        recent: recent.into_iter().map(Cost::from_nanos).collect(),
    })
}

async fn write<T: Tx>(tx: &T, queue: &str, spending: &Spending) -> Result<(), T::Error> {
    let recent: Vec<u64> = spending.recent.iter().map(|cost| cost.nanos()).collect();
    let recent = serde_json::to_string(&recent).expect("numbers");
    tx.exec(
        "INSERT INTO ostler.spending(queue, spent, reserved, in_flight, day, spent_today, recent) VALUES($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT(queue) DO UPDATE SET spent = excluded.spent, reserved = excluded.reserved, in_flight = excluded.in_flight,
            day = excluded.day, spent_today = excluded.spent_today, recent = excluded.recent",
        params![
            queue,
            spending.spent.nanos(),
            spending.reserved.nanos(),
            spending.in_flight,
            spending.day,
            spending.spent_today.nanos(),
            recent
        ],
    )
    .await?;
    Ok(())
}

// ---- attempts -----------------------------------------------------------------------------------------

/// What an attempt has of the budget of a queue.
fn held<R: Row>(row: &R) -> Result<(String, CostReservation), R::Error> {
    let held = CostReservation { left: Cost::from_nanos(row.get(1)?), spent: Cost::from_nanos(row.get(2)?) };
    Ok((row.get(0)?, held))
}

/// An attempt has spent this.
///
/// # Errors
/// When a statement fails.
pub async fn spend<T: Tx>(tx: &mut T, slot: i64, token: u64, cost: Cost) -> Result<(), T::Error> {
    let sql =
        "SELECT charged, rest, spent FROM ostler.reservation WHERE task = $1 AND token = $2 ORDER BY charged";
    for row in tx.rows(sql, params![slot, token]).await? {
        let (charged, mut held) = held(&row)?;
        tx.exclusive(&charged)?;
        let mut spending = read(tx, &charged).await?;
        spending.spend(&mut held, cost, tx.now());
        write(tx, &charged, &spending).await?;
        tx.exec(
            "UPDATE ostler.reservation SET rest = $4, spent = $5 WHERE task = $1 AND token = $2 AND charged = $3",
            params![slot, token, charged, held.left.nanos(), held.spent.nanos()],
        )
        .await?;
    }
    Ok(())
}

/// An attempt of a queue that is charged has ended.
///
/// # Errors
/// When a statement fails.
pub async fn settle<T: Tx>(tx: &mut T, slot: i64, token: u64, how: Settlement) -> Result<(), T::Error> {
    let sql = "DELETE FROM ostler.reservation WHERE task = $1 AND token = $2 RETURNING charged, rest, spent";
    for row in tx.rows(sql, params![slot, token]).await? {
        let (charged, held) = held(&row)?;
        tx.exclusive(&charged)?;
        let mut spending = read(tx, &charged).await?;
        spending.settle(held, how);
        write(tx, &charged, &spending).await?;
        // Claims that wait for a settlement ask again.
        tx.ring();
    }
    Ok(())
}

// ---- settings -----------------------------------------------------------------------------------------

/// Applies changed settings to what is spent and reserved. May resume the queue.
///
/// # Errors
/// When a statement fails.
pub async fn change<T: Tx>(
    tx: &mut T,
    name: &str,
    before: &QueueSettings,
    settings: &mut QueueSettings,
) -> Result<(), T::Error> {
    if before.budget.is_some() && settings.budget.is_none() {
        forget(tx, name).await?;
    }
    if before.budget != settings.budget {
        let spending = read(tx, name).await?;
        settings.resume_with_budget(before, &spending, tx.now());
    }
    if let Some(former) =
        before.pool.as_deref().filter(|former| settings.pool.as_deref() != Some(former) && *former != name)
    {
        let sql =
            "DELETE FROM ostler.reservation WHERE queue = $1 AND charged = $2 RETURNING charged, rest, spent";
        let released = tx.rows(sql, params![name, former]).await?;
        if !released.is_empty() {
            tx.exclusive(former)?;
            let mut spending = read(tx, former).await?;
            for row in &released {
                spending.release(held(row)?.1);
            }
            write(tx, former, &spending).await?;
        }
    }
    Ok(())
}

/// Forgets what was spent from the budget of a queue.
///
/// # Errors
/// When a statement fails.
pub async fn forget<T: Tx>(tx: &T, queue: &str) -> Result<(), T::Error> {
    tx.exec("DELETE FROM ostler.spending WHERE queue = $1", params![queue]).await?;
    tx.exec("DELETE FROM ostler.reservation WHERE charged = $1", params![queue]).await?;
    Ok(())
}
