//! Results of the node benchmarks.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Align, Report, Spread, hundredths, table, whole};
use crate::stats::median;

/// Tasks per second through a node.
pub(crate) struct NodeRow {
    /// `disk` or `tmpfs`.
    pub(crate) place: &'static str,
    /// The number of workers.
    pub(crate) what: String,
    pub(crate) rounds: Vec<NodeRound>,
}

/// One round: tasks per second on all three sides, and the disk before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRound {
    /// Syncs per second.
    pub(crate) fdatasync: f64,
    pub(crate) node: f64,
    /// The store without a node.
    pub(crate) store: f64,
    /// Bare statements.
    pub(crate) ceiling: f64,
}

impl NodeRow {
    fn middle(&self, of: impl Fn(&NodeRound) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    fn to_store(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|round| round.node / round.store))
    }

    fn to_ceiling(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|round| round.node / round.ceiling))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "place": self.place, "what": self.what,
            "node": self.middle(|round| round.node), "store": self.middle(|round| round.store),
            "ceiling": self.middle(|round| round.ceiling), "to_store": self.to_store().json(),
            "to_ceiling": self.to_ceiling().json(), "fdatasync": self.middle(|round| round.fdatasync),
        })
    }
}

/// Commands per second.
pub(crate) struct CommandRow {
    /// `disk` or `tmpfs`.
    pub(crate) place: &'static str,
    /// Concurrent children.
    pub(crate) at_once: usize,
    pub(crate) tasks: usize,
    pub(crate) node: f64,
    /// Spawned and reaped, with nothing stored.
    pub(crate) bare: f64,
    /// Syncs per second, before.
    pub(crate) fdatasync: f64,
}

impl CommandRow {
    pub(super) fn json(&self) -> Value {
        json!({
            "place": self.place, "at_once": self.at_once, "tasks": self.tasks, "node": self.node,
            "bare": self.bare, "ratio": self.node / self.bare, "fdatasync": self.fdatasync,
        })
    }
}

/// The cost of an idle node.
pub(crate) struct IdleRow {
    pub(crate) resident_kib: u64,
    /// CPU time used while it was watched.
    pub(crate) cpu: Duration,
    pub(crate) watched: Duration,
}

impl IdleRow {
    fn cpu_percent(&self) -> f64 {
        self.cpu.as_secs_f64() / self.watched.as_secs_f64() * 100.0
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "resident_kib": self.resident_kib, "cpu_ms": self.cpu.as_secs_f64() * 1e3,
            "watched_s": self.watched.as_secs_f64(), "cpu_percent": self.cpu_percent(),
        })
    }
}

impl Report {
    pub(super) fn node_tables(&self, text: &mut String) {
        for place in ["disk", "tmpfs"] {
            let rows: Vec<&NodeRow> = self.nodes.iter().filter(|row| row.place == place).collect();
            if rows.is_empty() {
                continue;
            }
            let on = format!("no-ops/s on {place}");
            let head = [
                on.as_str(),
                "node",
                "store",
                "ceiling",
                "to the store",
                "to the ceiling",
                "in rounds",
                "fdatasync/s",
            ];
            let cells = rows.into_iter().map(|row| {
                let rate = |of: fn(&NodeRound) -> f64| whole(row.middle(of));
                let ([to_store, _], [to_ceiling, spread]) =
                    (row.to_store().shown(), row.to_ceiling().shown());
                vec![
                    row.what.clone(),
                    rate(|round| round.node),
                    rate(|round| round.store),
                    rate(|round| round.ceiling),
                    to_store,
                    to_ceiling,
                    spread,
                    rate(|round| round.fdatasync),
                ]
            });
            table(text, &head, &cells.collect::<Vec<_>>(), Align::Right);
        }
    }

    pub(super) fn cost_tables(&self, text: &mut String) {
        if !self.commands.is_empty() {
            let head =
                ["commands/s (`true`)", "at once", "node", "bare spawn and wait", "ratio", "fdatasync/s"];
            let cells = self.commands.iter().map(|row| {
                vec![
                    row.place.to_owned(),
                    row.at_once.to_string(),
                    whole(row.node),
                    whole(row.bare),
                    hundredths(row.node / row.bare),
                    whole(row.fdatasync),
                ]
            });
            table(text, &head, &cells.collect::<Vec<_>>(), Align::Right);
        }
        if let Some(idle) = &self.idle {
            let head = ["an idle node", "resident", "CPU", "watched for"];
            let cells = vec![
                "one pool, nothing to do".to_owned(),
                format!("{:.1} MB", idle.resident_kib as f64 / 1024.0),
                format!("{:.2} %", idle.cpu_percent()),
                format!("{:.0} s", idle.watched.as_secs_f64()),
            ];
            table(text, &head, &[cells], Align::Right);
        }
    }
}
