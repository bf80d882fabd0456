//! Costs: what attempts spent, added up in the transaction that records their usage, and asked for.

use std::collections::BTreeMap;

use ostler_core::{Cost, Usage, day_of};
use ostler_store::costs::{CostBy, CostKey, CostQuery, CostRecord, CostSums, MAX_COST_DAYS, MAX_COST_ROWS};
use ostler_store::views::QueueSettings;

use crate::events::usage_from;
use crate::params;
use crate::tx::{Snapshot, Tx};
use crate::value::Row;

/// Whether an attempt had spent something before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierUsage {
    None,
    Some,
}

/// Adds what an attempt spent, of a task in this queue.
///
/// # Errors
/// When a statement fails.
pub async fn add<'a, T: Tx>(
    tx: &T,
    queue: &str,
    settings: &QueueSettings,
    usage: impl Iterator<Item = &'a Usage> + Send,
    earlier: EarlierUsage,
) -> Result<(), T::Error> {
    // In the order of their names, so that two transactions do not wait for each other.
    let mut models: BTreeMap<&str, CostSums> = BTreeMap::new();
    for (place, one) in usage.enumerate() {
        let sums = models.entry(one.model.as_deref().unwrap_or_default()).or_default();
        sums.runs += u64::from(place == 0 && earlier == EarlierUsage::None);
        sums.add(one);
    }
    for (model, sums) in models {
        tx.exec(
            "INSERT INTO ostler.spent AS s (day, queue, pool, account, model, runs, input, output, cache_read, cache_write, reasoning,
                cost, estimated)
             VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             ON CONFLICT(day, queue, pool, account, model) DO UPDATE SET runs = s.runs + excluded.runs, input = s.input + excluded.input,
                output = s.output + excluded.output, cache_read = s.cache_read + excluded.cache_read,
                cache_write = s.cache_write + excluded.cache_write, reasoning = s.reasoning + excluded.reasoning,
                cost = s.cost + excluded.cost, estimated = s.estimated + excluded.estimated",
            params![
                day_of(tx.now()),
                queue,
                settings.pool_of(queue),
                settings.account.as_deref().unwrap_or_default(),
                model,
                sums.runs,
                sums.input_tokens,
                sums.output_tokens,
                sums.cache_read_tokens,
                sums.cache_write_tokens,
                sums.reasoning_tokens,
                sums.cost.nanos(),
                sums.estimated.nanos()
            ],
        )
        .await?;
    }
    Ok(())
}

/// Removes the costs of days that are no longer kept.
///
/// # Errors
/// When the statement fails.
pub async fn prune<T: Tx>(tx: &T) -> Result<(), T::Error> {
    let oldest = day_of(tx.now()) - MAX_COST_DAYS;
    tx.exec("DELETE FROM ostler.spent WHERE day < $1", params![oldest]).await?;
    Ok(())
}

macro_rules! sums_by {
    ($column:literal) => {
        concat!(
            "SELECT ",
            $column,
            ", CAST(sum(runs) AS bigint), CAST(sum(input) AS bigint), CAST(sum(output) AS bigint), CAST(sum(cache_read) AS bigint),
                CAST(sum(cache_write) AS bigint), CAST(sum(reasoning) AS bigint), CAST(sum(cost) AS bigint),
                CAST(sum(estimated) AS bigint)
             FROM ostler.spent WHERE day >= $1 AND day <= $2 AND (CAST($3 AS text) IS NULL OR queue = $3)
             GROUP BY ",
            $column,
            " ORDER BY ",
            $column,
            " LIMIT $4"
        )
    };
}

/// The costs that a query asks for.
///
/// # Errors
/// When a statement fails.
pub async fn list<S: Snapshot>(snapshot: &S, query: &CostQuery) -> Result<Vec<CostRecord>, S::Error> {
    let sql = match query.by {
        CostBy::Task => return of_tasks(snapshot, query).await,
        CostBy::Attempt => {
            let mut records = of_attempts(snapshot, query).await?;
            records.truncate(query.limit);
            return Ok(records.into_iter().map(|(key, sums)| CostRecord { key, sums }).collect());
        }
        CostBy::Queue => sums_by!("queue"),
        CostBy::Pool => sums_by!("pool"),
        CostBy::Account => sums_by!("account"),
        CostBy::Model => sums_by!("model"),
        CostBy::Day => sums_by!("day"),
    };
    let (first, last) = query.days();
    let rows = snapshot.rows(sql, params![first, last, query.queue, query.limit]).await?;
    let read = |row: &S::Row| {
        let key = match query.by {
            CostBy::Day => CostKey::Day(row.get(0)?),
            CostBy::Task
            | CostBy::Attempt
            | CostBy::Queue
            | CostBy::Pool
            | CostBy::Account
            | CostBy::Model => CostKey::Name(row.get(0)?),
        };
        let sums = CostSums {
            runs: row.get(1)?,
            input_tokens: row.get(2)?,
            output_tokens: row.get(3)?,
            cache_read_tokens: row.get(4)?,
            cache_write_tokens: row.get(5)?,
            reasoning_tokens: row.get(6)?,
            cost: Cost::from_nanos(row.get(7)?),
            estimated: Cost::from_nanos(row.get(8)?),
        };
        Ok(CostRecord { key, sums })
    };
    rows.iter().map(read).collect()
}

async fn of_tasks<S: Snapshot>(snapshot: &S, query: &CostQuery) -> Result<Vec<CostRecord>, S::Error> {
    let mut records: Vec<CostRecord> = Vec::new();
    for (key, sums) in of_attempts(snapshot, query).await? {
        let CostKey::Attempt { task, .. } = key else { continue };
        let key = CostKey::Task(task);
        match records.last_mut().filter(|last| last.key == key) {
            Some(last) => last.sums.merge(&sums),
            None => records.push(CostRecord { key, sums }),
        }
    }
    records.truncate(query.limit);
    Ok(records)
}

/// The attempts that spent something, those of the newest tasks first. An attempt whose start and end were one write has no row of its
/// own: it is the last.
async fn of_attempts<S: Snapshot>(
    snapshot: &S,
    query: &CostQuery,
) -> Result<Vec<(CostKey, CostSums)>, S::Error> {
    let sql = "SELECT t.uid, coalesce(a.number, CASE WHEN t.phase = 3 AND t.token = c.token THEN t.runs + 1 ELSE t.runs END), c.usage
         FROM ostler.conversation c JOIN ostler.task t ON t.id = c.task JOIN ostler.lane l ON l.id = t.lane
            JOIN ostler.queue q ON q.id = l.queue LEFT JOIN ostler.attempt a ON a.task = c.task AND a.token = c.token
         WHERE c.usage <> '[]' AND coalesce(t.finished_at, t.created_at) >= $1 AND coalesce(t.finished_at, t.created_at) < $2
            AND (CAST($3 AS text) IS NULL OR q.name = $3)
         ORDER BY c.task DESC, c.token DESC LIMIT $4";
    let (from, to) = query.times();
    let rows = snapshot.rows(sql, params![from, to, query.queue, MAX_COST_ROWS]).await?;
    let read = |row: &S::Row| {
        let mut sums = CostSums { runs: 1, ..CostSums::default() };
        usage_from::<S>(&row.get::<String>(2)?)?.iter().for_each(|usage| sums.add(usage));
        Ok((CostKey::Attempt { task: ostler_core::TaskId(row.get(0)?), number: row.get(1)? }, sums))
    };
    rows.iter().map(read).collect()
}
