//! Workload of both sides.

use std::time::Duration;

pub(crate) const PAYLOAD: &str = r#"{"url":"https://example.org/a","size":128,"tenant":"acme"}"#;
/// The measured queue.
pub(crate) const QUEUE: &str = "measured";
/// The measured kind; a queue and a kind are a lane.
pub(crate) const KIND: &str = "noop";
/// A kind in the same queue that is never claimed.
pub(crate) const OTHER_KIND: &str = "other";

/// How tasks are run: each is enqueued, claimed and finished, and its attempt is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One caller, with this many tasks per call.
    Batch(usize),
    /// This many concurrent callers, each with one task. The ceiling commits as many in one batch, like an ideal group
    /// commit.
    Callers(usize),
    /// A concurrent producer and consumer, with this many tasks per call; a batch is finished while the next one is
    /// claimed. The ceiling does all three in one commit.
    Pipelined(usize),
}

impl Shape {
    /// The name in a table.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Batch(1) => "batch 1".into(),
            Self::Batch(size) => format!("batch {size}"),
            Self::Callers(1) => "1 caller of single tasks".into(),
            Self::Callers(count) => format!("{count} callers of single tasks"),
            Self::Pipelined(size) => format!("pipelined, batch {size}"),
        }
    }
}

/// Whether the measured tasks have limit keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Without,
    /// Each task of a batch has its own key; the next batch has the same keys again.
    Distinct,
}

/// The work of one side in its slices of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Tasks completed durably.
    pub(crate) done: usize,
    pub(crate) took: Duration,
}

impl Tally {
    /// Adds another slice of the same side.
    pub(crate) fn add(&mut self, slice: Self) {
        self.done += slice.done;
        self.took += slice.took;
    }

    /// Tasks per second.
    pub(crate) fn rate(self) -> f64 {
        self.done as f64 / self.took.as_secs_f64()
    }
}
