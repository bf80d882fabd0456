//! The order of a queue, as one number that is set when a task is enqueued and never changes.
//!
//! A claim takes the lowest ranks. Three things are folded into the number:
//!
//! - **age**: a rank lies on a time scale in milliseconds, so what came first is lower;
//! - **priority**: a head start of a minute a point, so a higher one runs first, and nothing starves;
//! - **fairness**: in a queue whose tasks have limit keys, the tasks of one key are laid out one
//!   [`STEP_MS`] apart, beginning at the queue's *virtual time*, which is how far its claims have come. A key
//!   with ten thousand tasks queued therefore stretches far ahead, and another key's first task goes next.
//!   Tasks that were laid before the queue saw its first key keep their places by age.
//!
//! Nothing starves, because every task is laid later than some bound that rises with each task before it: by
//! time without keys, by a step within a key, by [`NEW_KEY_MS`] with each new key.
//!
//! The virtual time belongs to the queue and not to one lane of it: a pool claims from all lanes of its
//! queue at once, and their ranks must be comparable (docs/decisions/0003).

use crate::time::Timestamp;

/// How far apart the tasks of one key lie.
pub const STEP_MS: i64 = 1_000;
/// How much of a head start one point of priority is.
pub const PRIORITY_MS: i64 = 60_000;
/// How far a key that was never seen before moves the virtual time, when its first task is laid. Without
/// it an endless flood of new keys would all be laid at one moment, and what has a later rank than that
/// moment would starve. It is a thousandth of a step, so the flood's neighbours lose as little as that.
pub const NEW_KEY_MS: i64 = 1;
/// No arrival counts as further away than this, or one absurd date would leave the clock no room to go on.
const FARTHEST_MS: i64 = i64::MAX / 2;

/// A head start, from −100 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i8);

impl Priority {
    /// The lowest.
    pub const MIN: i64 = -100;
    /// The highest.
    pub const MAX: i64 = 100;
    /// Neither early nor late.
    pub const NORMAL: Self = Self(0);

    /// The priority with this many points, if it is in range.
    #[must_use]
    pub fn new(points: i64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&points).then(|| i8::try_from(points).ok()).flatten().map(Self)
    }

    /// The points.
    #[must_use]
    pub const fn points(self) -> i64 {
        self.0 as i64
    }

    const fn head_start(self) -> i64 {
        self.points() * PRIORITY_MS
    }
}

/// A place in a queue: lower runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rank(pub i64);

/// How far the claims of a queue have come. `None` while the queue has never seen a limit key: then the
/// order is age and priority alone, and no claim has to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VirtualTime(pub Option<i64>);

impl VirtualTime {
    /// The virtual time after a claim took a task with this rank and priority.
    #[must_use]
    pub fn advanced(self, rank: Rank, priority: Priority) -> Self {
        // The head start is taken off again: else a flood of high priorities would hold the clock back and
        // starve everyone else. But such a claim moves it by one step at most: its key may be laid far ahead,
        // and what comes next must not be placed behind all of that.
        Self(self.0.map(|time| {
            let laid = rank.0.saturating_add(priority.head_start());
            time.max(rank.0.min(laid)).max(laid.min(time.saturating_add(STEP_MS)))
        }))
    }
}

/// Whose turn a task counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// The task has no limit key. In a queue with keys all such tasks count as one key.
    Unkeyed {
        /// Where the last task without a key was laid, if there was one.
        last: Option<i64>,
    },
    /// The task has a limit key.
    Keyed {
        /// Where the key's last task was laid, if there was one.
        last: Option<i64>,
    },
}

/// Where a new task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its rank.
    pub rank: Rank,
    /// The queue's virtual time from now on.
    pub clock: VirtualTime,
    /// Where this task was laid, to be kept as the key's `last`. `None`: there is nothing to keep.
    pub last: Option<i64>,
}

/// Places a task that may first run at `arrival`.
#[must_use]
pub fn place(clock: VirtualTime, turn: Fairness, arrival: Timestamp, priority: Priority) -> Placement {
    let arrival = arrival.millis().clamp(-FARTHEST_MS, FARTHEST_MS);
    let (time, last) = match (clock.0, turn) {
        (None, Fairness::Unkeyed { .. }) => {
            return Placement { rank: Rank(arrival - priority.head_start()), clock, last: None };
        }
        (None, Fairness::Keyed { last }) => (arrival, last),
        (Some(time), Fairness::Keyed { last } | Fairness::Unkeyed { last }) => (time, last),
    };
    let (from, time) = match last {
        Some(last) => (last.max(time), time),
        None => (time, time.saturating_add(NEW_KEY_MS)),
    };
    let laid = from.saturating_add(STEP_MS);
    Placement {
        rank: Rank(laid.saturating_sub(priority.head_start())),
        clock: VirtualTime(Some(time)),
        last: Some(laid),
    }
}
