//! A queue as a transaction sees it: settings, gate, virtual clock and lanes.

use std::sync::Arc;

use ostler_core::{Gate, GateRules, VirtualTime};
use ostler_store::views::QueueSettings;

use crate::codec::{kinds_from, overrides_from, subscribers_from};
use crate::gate_codec::read_rules;
use crate::value::Row;

/// A queue, as it is in the store.
#[derive(Clone, Debug)]
pub struct QueueRow {
    pub id: i64,
    pub name: Arc<str>,
    pub settings: QueueSettings,
    pub clock: VirtualTime,
    pub gate: Gate,
    /// Whether the gate of any of its limit keys is closed.
    pub any_shut: bool,
    /// Its lanes: id and kind.
    pub lanes: Vec<(i64, Arc<str>)>,
}

impl QueueRow {
    /// A queue without settings.
    #[must_use]
    pub fn new(id: i64, name: &str) -> Self {
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

    /// The lane of a kind.
    #[must_use]
    pub fn lane(&self, kind: &str) -> Option<i64> {
        self.lanes.iter().find(|(_, known)| **known == *kind).map(|(lane, _)| *lane)
    }
}

/// The settings of a queue, from the columns `paused, max_queued, key_cap, overrides, kinds, tell, rules, account, pool`.
///
/// # Errors
/// When a column holds what Ostler never writes.
pub fn settings_from<R: Row>(row: &R, first: usize) -> Result<QueueSettings, R::Error> {
    let mut settings = QueueSettings {
        paused: row.get(first)?,
        limit: row.get(first + 1)?,
        key_concurrency: row.get(first + 2)?,
        overrides: overrides_from(row.get(first + 3)?).map_err(R::unreadable)?,
        kinds: kinds_from(row.get(first + 4)?).map_err(R::unreadable)?,
        subscribers: subscribers_from(row.get(first + 5)?).map_err(R::unreadable)?,
        account: row.get(first + 7)?,
        pool: row.get(first + 8)?,
        ..QueueSettings::default()
    };
    read_rules(row.get(first + 6)?, &mut settings).map_err(R::unreadable)?;
    Ok(settings)
}

/// The limits of a queue's keys.
pub struct KeyRules {
    pub queue: Arc<str>,
    pub cap: Option<u32>,
    pub gate: GateRules,
    /// Whether the gate of any key may be closed. Where none is, no key has to be looked at.
    pub any_shut: bool,
}

impl KeyRules {
    #[must_use]
    pub fn of(queue: &QueueRow) -> Self {
        Self {
            queue: Arc::clone(&queue.name),
            cap: queue.settings.key_concurrency,
            gate: queue.settings.key_rules(),
            any_shut: queue.any_shut,
        }
    }

    /// The rules of a queue without settings.
    #[must_use]
    pub fn none(queue: &str) -> Self {
        Self::of(&QueueRow::new(0, queue))
    }

    /// Whether the gate of a key of this queue may decide anything.
    #[must_use]
    pub fn may_gate_in(queue: &QueueRow) -> bool {
        queue.any_shut || queue.settings.has_key_rules()
    }

    /// The same, of rules that were read.
    #[must_use]
    pub const fn may_gate(&self) -> bool {
        self.any_shut || !self.gate.is_none()
    }

    /// The same, for keys whose gates have just changed.
    #[must_use]
    pub fn looked_at(self) -> Self {
        Self { any_shut: true, ..self }
    }
}
