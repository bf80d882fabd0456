//! A queue as a transaction sees it: settings, gate, clock and lanes.

use std::sync::Arc;

use ostler_core::{Gate, VirtualTime};
pub(crate) use ostler_sql::QueueRow;
use ostler_store::views::QueueSettings;
use tokio_postgres::Row;

use crate::conn::get;
use crate::fault::Sql;
use crate::row::RowRef;
use ostler_sql::gate_codec::gate_from;

/// Whether its tasks are bound to each other, so that who moves one of them has to hold the queue alone: they have limit keys,
/// or gates, caps, accounts and budgets count all of them.
pub(crate) fn binds(queue: &QueueRow) -> bool {
    let settings = &queue.settings;
    settings.concurrency.is_some()
        || settings.key_concurrency.is_some()
        || !settings.rate.is_empty()
        || !settings.key_rate.is_empty()
        || settings.breaker.is_some()
        || settings.account.is_some()
        || settings.is_charged()
        || queue.clock.0.is_some()
        || queue.gate != Gate::default()
        || queue.any_shut
}

/// The columns of a queue that [`settings_from`] reads.
pub(crate) const SETTINGS: &str =
    "q.paused, q.max_queued, q.key_cap, q.overrides, q.kinds, q.tell, q.rules, q.account, q.pool";

/// Reads the settings of a queue from its columns.
pub(crate) fn settings_from(row: &Row, first: usize) -> Sql<QueueSettings> {
    ostler_sql::queue::settings_from(&RowRef(row), first)
}

/// Finds queues by their names, along with the time. (An `EXISTS` would be answered by reading the closed keys of all
/// queues.)
pub(crate) const QUEUES: &str = "SELECT q.id, q.name, q.clock, q.gate,
        coalesce((SELECT true FROM ostler.limits k WHERE k.queue = q.id AND k.shut_until IS NOT NULL LIMIT 1), false) AS shut,
        lanes.ids, lanes.kinds,
        q.paused, q.max_queued, q.key_cap, q.overrides, q.kinds AS kind_settings, q.tell, q.rules, q.account,
        q.pool
     FROM ostler.queue q CROSS JOIN LATERAL (
        SELECT array_agg(l.id) AS ids, array_agg(l.kind) AS kinds
        FROM (SELECT id, kind FROM ostler.lane WHERE queue = q.id ORDER BY id) AS l) AS lanes
     WHERE q.name = ANY($2)";

/// The number of columns of [`QUEUES`].
pub(crate) const COLUMNS: usize = 16;

/// Reads the queues found by [`QUEUES`] from rows that start with its columns. Without a queue, these are null.
pub(crate) fn read_queues(rows: &[Row]) -> Sql<Vec<QueueRow>> {
    let mut queues = Vec::with_capacity(rows.len());
    for row in rows {
        if get::<Option<i64>>(row, 0)?.is_some() {
            queues.push(queue(row)?);
        }
    }
    Ok(queues)
}

fn queue(row: &Row) -> Sql<QueueRow> {
    let ids: Option<Vec<i64>> = get(row, 5)?;
    let kinds: Option<Vec<String>> = get(row, 6)?;
    let kinds = kinds.unwrap_or_default().into_iter().map(Arc::from);
    Ok(QueueRow {
        id: get(row, 0)?,
        name: get::<String>(row, 1)?.into(),
        settings: settings_from(row, 7)?,
        clock: VirtualTime(get(row, 2)?),
        gate: gate_from(get(row, 3)?),
        any_shut: get(row, 4)?,
        lanes: ids.unwrap_or_default().into_iter().zip(kinds).collect(),
    })
}
