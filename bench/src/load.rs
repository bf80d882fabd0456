//! What both sides are given to do.

use std::time::Duration;

/// The payload of every task.
pub(crate) const PAYLOAD: &str = r#"{"url":"https://example.org/a","size":128,"tenant":"acme"}"#;
/// The queue that is measured.
pub(crate) const QUEUE: &str = "measured";
/// The kind that is measured; a queue and a kind are a lane.
pub(crate) const KIND: &str = "noop";
/// A kind in the same queue that nobody asks for.
pub(crate) const OTHER_KIND: &str = "other";

/// How tasks are brought through: each is enqueued, claimed and finished, and its attempt is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One caller, so many tasks in each call.
    Batch(usize),
    /// So many callers at once, each with one task. The ceiling commits as many in one batch: what an ideal group
    /// commit could reach.
    Callers(usize),
    /// A producer and a consumer at once, so many tasks in each call, and the end of a batch is reported while the
    /// next one is claimed. The ceiling does all three in one commit.
    Pipelined(usize),
}

impl Shape {
    /// What it is called in a table.
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
    /// None has.
    Without,
    /// Each task of a batch has one of its own; the next batch has the same ones again.
    Distinct,
}

/// What one side did in its slices of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Tasks that are done, durably.
    pub(crate) done: usize,
    /// How long it took.
    pub(crate) took: Duration,
}

impl Tally {
    /// Another slice of the same side.
    pub(crate) fn add(&mut self, slice: Self) {
        self.done += slice.done;
        self.took += slice.took;
    }

    /// Tasks a second.
    pub(crate) fn rate(self) -> f64 {
        self.done as f64 / self.took.as_secs_f64()
    }
}
