//! A queue as a transaction sees it: its settings, its gate, its clock and its lanes.

use std::sync::Arc;

use ostler_core::{Gate, VirtualTime};
use ostler_store::views::QueueSettings;
use tokio_postgres::Row;

use crate::codec::{kinds_from, overrides_from, tell_from};
use crate::conn::{get, get_u64_opt};
use crate::fault::{Abort, Sql};
use crate::gate_codec::{gate_from, read_rules};

/// A queue, as it is in the database.
#[derive(Clone, Debug)]
pub(crate) struct QueueRow {
    pub(crate) id: i64,
    pub(crate) name: Arc<str>,
    pub(crate) settings: QueueSettings,
    pub(crate) clock: VirtualTime,
    pub(crate) gate: Gate,
    /// Whether any of its keys is shut.
    pub(crate) any_shut: bool,
    /// Its lanes: id and kind.
    pub(crate) lanes: Vec<(i64, Arc<str>)>,
}

impl QueueRow {
    /// A queue that was just made.
    pub(crate) fn new(id: i64, name: &str) -> Self {
        Self {
            id,
            name: name.into(),
            settings: QueueSettings::default(),
            clock: VirtualTime(None),
            gate: Gate::default(),
            any_shut: false,
            lanes: Vec::new(),
        }
    }

    /// Whether its tasks are bound to each other, so that who moves one of them has to hold the queue alone: they have limit keys,
    /// or gates and caps are counted over all of them.
    pub(crate) fn binds(&self) -> bool {
        let settings = &self.settings;
        settings.concurrency.is_some()
            || settings.key_concurrency.is_some()
            || !settings.rate.is_empty()
            || !settings.key_rate.is_empty()
            || settings.breaker.is_some()
            || self.clock.0.is_some()
            || self.gate != Gate::default()
            || self.any_shut
    }

    /// The lane of a kind.
    pub(crate) fn lane(&self, kind: &str) -> Option<i64> {
        self.lanes.iter().find(|(_, known)| **known == *kind).map(|(lane, _)| *lane)
    }
}

/// The columns of a queue that [`settings_from`] reads.
pub(crate) const SETTINGS: &str = "q.paused, q.max_queued, q.key_cap, q.overrides, q.kinds, q.tell, q.rules";

/// The settings of a queue, from its columns.
pub(crate) fn settings_from(row: &Row, first: usize) -> Sql<QueueSettings> {
    let cap = get_u64_opt(row, first + 2)?.map(u32::try_from).transpose();
    let mut settings = QueueSettings {
        paused: get(row, first)?,
        limit: get_u64_opt(row, first + 1)?,
        key_concurrency: cap.map_err(|error| Abort::Foreign(error.to_string()))?,
        overrides: overrides_from(get(row, first + 3)?)?,
        kinds: kinds_from(get(row, first + 4)?)?,
        outbox: tell_from(get(row, first + 5)?),
        ..QueueSettings::default()
    };
    read_rules(get(row, first + 6)?, &mut settings)?;
    Ok(settings)
}

/// Finds queues by their names, beside the time. (An `EXISTS` would be answered by reading the shut keys of all queues.)
pub(crate) const QUEUES: &str = "SELECT q.id, q.name, q.clock, q.gate,
        coalesce((SELECT true FROM ostler.limits k WHERE k.queue = q.id AND k.shut_until IS NOT NULL LIMIT 1), false) AS shut,
        lanes.ids, lanes.kinds,
        q.paused, q.max_queued, q.key_cap, q.overrides, q.kinds AS kind_settings, q.tell, q.rules
     FROM ostler.queue q CROSS JOIN LATERAL (
        SELECT array_agg(l.id) AS ids, array_agg(l.kind) AS kinds
        FROM (SELECT id, kind FROM ostler.lane WHERE queue = q.id ORDER BY id) AS l) AS lanes
     WHERE q.name = ANY($2)";

/// How many columns [`QUEUES`] has.
pub(crate) const COLUMNS: usize = 14;

/// The queues that [`QUEUES`] finds, in rows that begin with its columns. Where there is none, these are empty.
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
