//! Sizes of a benchmark run: rounds, times and counts.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Rounds of each row; the result is the median.
    pub(crate) rounds: usize,
    /// How often the sides alternate in a round. A rented disk changes its rate from one second to the next.
    pub(crate) slices: usize,
    /// How long each side works per turn.
    pub(crate) slice: Duration,
    /// How long the disk is probed before each round.
    pub(crate) probe: Duration,
    /// How long the disk is kept busy at first, so that no row benefits from a burst.
    pub(crate) drain: Duration,
    /// Tasks that each fresh file runs before the measurement: enough for one checkpoint of its log.
    pub(crate) warm_up: usize,
    /// Rows of each sort in a backlog.
    pub(crate) backlog: usize,
    /// Tasks behind a saturated key.
    pub(crate) saturated: usize,
    /// Samples of a latency.
    pub(crate) samples: usize,
    /// How long commits are made beside a hot writer.
    pub(crate) beside: Duration,
    /// Nodes to kill.
    pub(crate) kills: usize,
    /// Commands to run.
    pub(crate) commands: usize,
    /// How long an idle node is watched.
    pub(crate) idle: Duration,
    /// Jobs that peers drain.
    pub(crate) jobs: usize,
    /// How long an idle transaction is held.
    pub(crate) held: Duration,
}

impl Scale {
    /// The scale of docs/benchmarks.md.
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        slices: 3,
        slice: Duration::from_millis(200),
        probe: Duration::from_millis(200),
        drain: Duration::from_secs(5),
        warm_up: 10_000,
        backlog: 1_000_000,
        saturated: 1_000_000,
        samples: 500,
        beside: Duration::from_secs(5),
        kills: 50,
        commands: 4_000,
        idle: Duration::from_secs(20),
        jobs: 50_000,
        held: Duration::from_secs(60),
    };

    /// Under a minute in total.
    pub(crate) const QUICK: Self = Self {
        rounds: 3,
        slices: 2,
        slice: Duration::from_millis(50),
        probe: Duration::from_millis(50),
        drain: Duration::from_secs(1),
        warm_up: 2_000,
        backlog: 100_000,
        saturated: 100_000,
        samples: 100,
        beside: Duration::from_secs(1),
        kills: 10,
        commands: 1_000,
        idle: Duration::from_secs(3),
        jobs: 10_000,
        held: Duration::from_secs(5),
    };

    /// For the smoke test.
    pub(crate) const TINY: Self = Self {
        rounds: 1,
        slices: 2,
        slice: Duration::from_millis(2),
        probe: Duration::from_millis(1),
        drain: Duration::from_millis(1),
        warm_up: 10,
        backlog: 1_000,
        saturated: 100,
        samples: 5,
        beside: Duration::from_millis(50),
        kills: 2,
        commands: 20,
        idle: Duration::from_millis(100),
        jobs: 200,
        held: Duration::from_millis(10),
    };
}
