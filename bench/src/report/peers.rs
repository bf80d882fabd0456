//! Results of the peers on the same server.

use serde_json::{Value, json};

use super::{Align, Report, Spread, hundredths, table, whole};
use crate::stats::median;

/// One row: the ceiling, the store or a peer, which drained the same number of jobs in turns.
pub(crate) struct PeerRow {
    /// With the version.
    pub(crate) name: String,
    /// The setup.
    how: &'static str,
    /// Jobs per second, per round.
    pub(crate) rates: Vec<f64>,
}

impl PeerRow {
    pub(crate) const fn new(name: String, how: &'static str) -> Self {
        Self { name, how, rates: Vec::new() }
    }

    fn middle(&self) -> f64 {
        median(self.rates.clone())
    }

    /// Per round, as a share of the ceiling.
    fn share(&self, ceiling: &Self) -> Spread {
        Spread::of(self.rates.iter().zip(&ceiling.rates).map(|(rate, most)| rate / most))
    }

    pub(super) fn json(&self) -> Value {
        json!({"name": self.name, "how": self.how, "rate": self.middle(), "rates": self.rates})
    }
}

impl Report {
    pub(super) fn peer_table(&self, text: &mut String) {
        let Some(ceiling) = self.peers.first() else { return };
        let ours = self.peers.get(1).map_or(0.0, PeerRow::middle);
        let cells = self.peers.iter().map(|row| {
            let [share, spread] = row.share(ceiling).shown();
            let times = hundredths(ours / row.middle());
            vec![format!("{}: {}", row.name, row.how), whole(row.middle()), share, spread, times]
        });
        let head = [
            "no-op jobs/s, drained",
            "jobs/s",
            "of the ceiling",
            "in rounds",
            "the store is … times as fast",
        ];
        table(text, &head, &cells.collect::<Vec<_>>(), Align::Right);
    }
}
