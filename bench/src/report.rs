//! Benchmark report: tables in Markdown, and JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

mod node;
mod peers;

pub(crate) use node::{CommandRow, IdleRow, NodeRound, NodeRow};
pub(crate) use peers::PeerRow;

use crate::load::Tally;
use crate::machine::Machine;
use crate::stats::{Samples, median};

/// All results of a run.
pub(crate) struct Report {
    machine: Machine,
    /// Tasks per second.
    pub(crate) throughput: Vec<ThroughputRow>,
    /// Single operations.
    pub(crate) latency: Vec<LatencyRow>,
    /// Tasks per second with a backlog.
    pub(crate) backlog: Vec<BacklogRow>,
    /// Tasks per second through a node.
    pub(crate) nodes: Vec<NodeRow>,
    /// Commands per second.
    pub(crate) commands: Vec<CommandRow>,
    /// The cost of an idle node.
    pub(crate) idle: Option<IdleRow>,
    /// The ceiling, the store and the peers, draining the same jobs on the same server.
    pub(crate) peers: Vec<PeerRow>,
}

pub(crate) struct ThroughputRow {
    /// `disk` or `tmpfs`.
    pub(crate) place: &'static str,
    /// The shape of the workload.
    pub(crate) what: String,
    pub(crate) rounds: Vec<Round>,
}

/// One round: tasks per second on both sides, and the disk before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Syncs per second.
    pub(crate) fdatasync: f64,
    pub(crate) ours: f64,
    pub(crate) ceiling: f64,
}

/// One row of throughput with a backlog.
pub(crate) struct BacklogRow {
    /// `disk` or `tmpfs`.
    pub(crate) place: &'static str,
    pub(crate) backlog: String,
    /// Whether the backlog is outside the ceiling's index.
    pub(crate) outside_index: bool,
    /// The shape of the workload.
    pub(crate) what: String,
    pub(crate) rounds: Vec<BacklogRound>,
}

/// One round: both sides, empty and with the backlog. Rates are per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BacklogRound {
    /// Syncs per second.
    pub(crate) fdatasync: f64,
    pub(crate) ours_empty: f64,
    pub(crate) ours: f64,
    pub(crate) ceiling_empty: f64,
    pub(crate) ceiling: f64,
}

impl BacklogRound {
    /// From the tallies of the store and the ceiling, without the backlog and with it.
    pub(crate) fn of(fdatasync: f64, empty: (Tally, Tally), full: (Tally, Tally)) -> Self {
        Self {
            fdatasync,
            ours_empty: empty.0.rate(),
            ours: full.0.rate(),
            ceiling_empty: empty.1.rate(),
            ceiling: full.1.rate(),
        }
    }
}

pub(crate) struct LatencyRow {
    /// `disk` or `tmpfs`.
    pub(crate) place: &'static str,
    pub(crate) what: &'static str,
    pub(crate) samples: Samples,
    /// Syncs per second, before.
    pub(crate) fdatasync: f64,
}

impl ThroughputRow {
    fn middle(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    /// Per round: both sides of a round had the same disk.
    fn ratio(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|round| round.ours / round.ceiling))
    }
}

impl BacklogRow {
    fn middle(&self, of: impl Fn(&BacklogRound) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    fn ours_keeps(&self) -> f64 {
        self.middle(|round| round.ours / round.ours_empty)
    }

    fn ceiling_keeps(&self) -> f64 {
        self.middle(|round| round.ceiling / round.ceiling_empty)
    }

    /// Per round: the share that the store keeps, divided by the share that the ceiling keeps.
    fn against_ceiling(&self) -> Spread {
        Spread::of(
            self.rounds
                .iter()
                .map(|round| (round.ours / round.ours_empty) / (round.ceiling / round.ceiling_empty)),
        )
    }
}

/// A ratio over all rounds. If the lowest and the highest are far apart, the disk was not the same for both sides.
pub(crate) struct Spread {
    lowest: f64,
    median: f64,
    highest: f64,
}

impl Spread {
    pub(crate) fn of(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        let (lowest, highest) =
            (ratios.clone().fold(f64::INFINITY, f64::min), ratios.clone().fold(0.0, f64::max));
        Self { lowest, median: median(ratios.collect()), highest }
    }

    pub(crate) fn shown(&self) -> [String; 2] {
        [hundredths(self.median), format!("{:.2}–{:.2}", self.lowest, self.highest)]
    }

    pub(crate) fn json(&self) -> Value {
        json!({"lowest": self.lowest, "median": self.median, "highest": self.highest})
    }
}

impl Report {
    pub(crate) const fn new(machine: Machine) -> Self {
        Self {
            machine,
            throughput: Vec::new(),
            latency: Vec::new(),
            backlog: Vec::new(),
            nodes: Vec::new(),
            commands: Vec::new(),
            idle: None,
            peers: Vec::new(),
        }
    }

    /// Records the machine's load at the end.
    pub(crate) fn end(&mut self, load: String) {
        self.machine.add("load at the end", load);
    }

    /// JSON for programs. Rates are per second, durations in microseconds.
    pub(crate) fn json(&self) -> Value {
        let throughput = self.throughput.iter().map(|row| {
            json!({
                "place": row.place, "what": row.what,
                "store": row.middle(|round| round.ours), "ceiling": row.middle(|round| round.ceiling),
                "ratio": row.ratio().json(), "fdatasync": row.middle(|round| round.fdatasync),
                "rounds": row.rounds.iter().map(|round| json!({
                    "fdatasync": round.fdatasync, "store": round.ours, "ceiling": round.ceiling,
                })).collect::<Vec<_>>(),
            })
        });
        let latency = self.latency.iter().map(|row| {
            json!({
                "place": row.place, "what": row.what, "samples": row.samples.len(), "p50_us": micros(row.samples.percentile(50)),
                "p99_us": micros(row.samples.percentile(99)), "max_us": micros(row.samples.max()),
                "fdatasync": row.fdatasync,
            })
        });
        let backlog = self.backlog.iter().map(|row| {
            json!({
                "place": row.place, "backlog": row.backlog, "what": row.what,
                "store_empty": row.middle(|round| round.ours_empty), "store": row.middle(|round| round.ours),
                "ceiling_empty": row.middle(|round| round.ceiling_empty),
                "ceiling": row.middle(|round| round.ceiling),
                "store_keeps": row.ours_keeps(), "ceiling_keeps": row.ceiling_keeps(),
                "against_ceiling": row.against_ceiling().json(), "fdatasync": row.middle(|round| round.fdatasync),
                "rounds": row.rounds.iter().map(|round| json!({
                    "fdatasync": round.fdatasync, "store_empty": round.ours_empty, "store": round.ours,
                    "ceiling_empty": round.ceiling_empty, "ceiling": round.ceiling,
                })).collect::<Vec<_>>(),
            })
        });
        json!({
            "machine": self.machine.json(),
            "throughput": throughput.collect::<Vec<_>>(),
            "latency": latency.collect::<Vec<_>>(),
            "backlog": backlog.collect::<Vec<_>>(),
            "node": self.nodes.iter().map(NodeRow::json).collect::<Vec<_>>(),
            "commands": self.commands.iter().map(CommandRow::json).collect::<Vec<_>>(),
            "idle": self.idle.as_ref().map(IdleRow::json),
            "peers": self.peers.iter().map(PeerRow::json).collect::<Vec<_>>(),
        })
    }

    /// Markdown that is also readable as plain text.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        let facts: Vec<_> = self.machine.facts().map(|(name, what)| vec![name.into(), what.into()]).collect();
        table(&mut text, &["what", "measured on"], &facts, Align::Left);
        self.peer_table(&mut text);
        self.node_tables(&mut text);
        for place in ["disk", "tmpfs"] {
            let rows: Vec<&ThroughputRow> = self.throughput.iter().filter(|row| row.place == place).collect();
            if rows.is_empty() {
                continue;
            }
            let head = format!("tasks/s on {place}");
            let head = [head.as_str(), "store", "ceiling", "ratio", "in rounds", "fdatasync/s"];
            let cells = rows.into_iter().map(|row| {
                let rate = |of: fn(&Round) -> f64| whole(row.middle(of));
                let [ratio, spread] = row.ratio().shown();
                let (ours, ceiling) = (rate(|round| round.ours), rate(|round| round.ceiling));
                vec![row.what.clone(), ours, ceiling, ratio, spread, rate(|round| round.fdatasync)]
            });
            table(&mut text, &head, &cells.collect::<Vec<_>>(), Align::Right);
        }
        if let Some(first) = self.latency.first() {
            let cells = self.latency.iter().map(|row| {
                let [p50, p99] = [50, 99].map(|percent| shown(row.samples.percentile(percent)));
                let samples = row.samples.len().to_string();
                vec![row.what.into(), samples, p50, p99, shown(row.samples.max()), whole(row.fdatasync)]
            });
            let head = format!("latency on {}, ms", first.place);
            let head = [head.as_str(), "samples", "p50", "p99", "max", "fdatasync/s"];
            table(&mut text, &head, &cells.collect::<Vec<_>>(), Align::Right);
        }
        self.backlog_table(&mut text);
        self.cost_tables(&mut text);
        text
    }

    fn backlog_table(&self, text: &mut String) {
        let Some(first) = self.backlog.first() else { return };
        let on = format!("tasks/s on {} with a backlog", first.place);
        let cells = self.backlog.iter().map(|row| {
            let rate = |of: fn(&BacklogRound) -> f64| whole(row.middle(of));
            let [against, spread] = row.against_ceiling().shown();
            vec![
                format!("{}: {}", row.backlog, row.what),
                rate(|round| round.ours_empty),
                rate(|round| round.ours),
                rate(|round| round.ceiling_empty),
                rate(|round| round.ceiling),
                hundredths(row.ours_keeps()),
                hundredths(row.ceiling_keeps()),
                against,
                spread,
                rate(|round| round.fdatasync),
            ]
        });
        let head = [
            &on,
            "store, empty",
            "store",
            "ceiling, empty",
            "ceiling",
            "store keeps",
            "ceiling keeps",
            "against the ceiling's loss",
            "in rounds",
            "fdatasync/s",
        ];
        table(text, &head, &cells.collect::<Vec<_>>(), Align::Right);
        if self.backlog.iter().all(|row| !row.outside_index) {
            return;
        }
        text.push_str(
            "For tasks due tomorrow, behind a saturated key and of keys that wait, the ceiling's rows are out of its index of \
             ready rows by their state: it has no clock and no keys.\n",
        );
    }
}

fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

fn shown(took: Duration) -> String {
    format!("{:.2}", took.as_secs_f64() * 1e3)
}

fn whole(rate: f64) -> String {
    format!("{rate:.0}")
}

fn hundredths(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// The alignment of all columns after the first.
#[derive(Clone, Copy)]
enum Align {
    Left,
    Right,
}

fn table(text: &mut String, head: &[&str], rows: &[Vec<String>], align: Align) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &[&str]| {
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let _ = match align {
                Align::Right if column > 0 => write!(text, "| {cell:>width$} "),
                Align::Left | Align::Right => write!(text, "| {cell:<width$} "),
            };
        }
        text.push_str("|\n");
    };
    line(head);
    let rule = |(column, width): (usize, &usize)| match align {
        Align::Right if column > 0 => "-".repeat(width - 1) + ":",
        Align::Left | Align::Right => "-".repeat(*width),
    };
    let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
    line(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text.push('\n');
}
