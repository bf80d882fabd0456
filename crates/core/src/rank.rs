//! Rank: the order of a queue as one number, set when a task is enqueued and never changed. Priority and fairness.
//!
//! A claim takes the lowest ranks. Three things are folded into the number:
//!
//! - **age**: ranks lie on a time scale in milliseconds, so older tasks are lower;
//! - **priority**: a head start of one minute per point, so higher priorities run first, and nothing starves; in a queue
//!   with [strict](PriorityOrder::Strict) priorities the head start is longer than any age;
//! - **fairness**: in a queue whose tasks have limit keys, the tasks of one key are placed one
//!   [`STEP_MS`] apart, beginning at the queue's *virtual time*, which is how far its claims have advanced. A key
//!   with ten thousand queued tasks therefore extends far ahead, and another key's first task runs next.
//!   Tasks placed before the queue saw its first key keep their places by age.
//!
//! Without strict priorities nothing starves, because every task is placed above a bound that rises with each task before it: by
//! time without keys, by a step within a key, by [`NEW_KEY_MS`] with each new key.
//!
//! The virtual time belongs to the queue and not to one lane of it: a pool claims from all lanes of its
//! queue at once, and their ranks must be comparable (docs/decisions/0003).

use crate::time::Timestamp;

/// The distance between the tasks of one key.
pub const STEP_MS: i64 = 1_000;
/// The head start of one point of priority.
pub const PRIORITY_MS: i64 = 60_000;
/// How far a new key advances the virtual time when its first task is placed. Without
/// it an endless flood of new keys would all be placed at one rank, and tasks with a higher rank than that
/// would starve. It is a thousandth of a step, so the delay for other keys is as small as that.
pub const NEW_KEY_MS: i64 = 1;
/// The head start of one point of strict priority: the ranks of each priority have a band of this width for themselves.
const BAND_MS: i64 = 1 << 55;
/// Arrival times are clamped to this, or one absurd date would leave the virtual time no room to advance. It is far within a band.
const FARTHEST_MS: i64 = 1 << 53;

/// How the priorities of a queue order its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PriorityOrder {
    /// A point is a head start of a minute: a task of low priority comes up in the end.
    #[default]
    Aging,
    /// The highest priority first, and the oldest first within one. Tasks of low priority wait as long as there are others.
    Strict,
}

impl PriorityOrder {
    pub const ALL: [Self; 2] = [Self::Aging, Self::Strict];

    /// The name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aging => "aging",
            Self::Strict => "strict",
        }
    }

    /// The order of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }
}

/// A head start, from −100 to 100 points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i8);

impl Priority {
    /// The lowest number of points.
    pub const MIN: i64 = -100;
    /// The highest number of points.
    pub const MAX: i64 = 100;
    /// The default: no head start.
    pub const NORMAL: Self = Self(0);

    /// The priority with this many points; `None` if out of range.
    #[must_use]
    pub fn new(points: i64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&points).then(|| i8::try_from(points).ok()).flatten().map(Self)
    }

    /// The number of points.
    #[must_use]
    pub const fn points(self) -> i64 {
        self.0 as i64
    }

    const fn head_start(self, order: PriorityOrder) -> i64 {
        match order {
            PriorityOrder::Aging => self.points() * PRIORITY_MS,
            PriorityOrder::Strict => self.points() * BAND_MS,
        }
    }
}

/// A position in a queue: lower runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rank(pub i64);

impl Rank {
    /// The order under which a task of some priority got this rank: a queue may have changed its order since.
    const fn order(self) -> PriorityOrder {
        if self.0.unsigned_abs() > (BAND_MS / 2).unsigned_abs() {
            PriorityOrder::Strict
        } else {
            PriorityOrder::Aging
        }
    }
}

/// How far the claims of a queue have advanced. `None` while the queue has never seen a limit key: then the
/// order is age and priority alone, and claims need not update it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VirtualTime(pub Option<i64>);

impl VirtualTime {
    /// The virtual time after a claim took a task with this rank and priority.
    #[must_use]
    pub fn advanced(self, rank: Rank, priority: Priority) -> Self {
        // The head start is removed again: otherwise a flood of high priorities would hold the virtual time down and
        // starve all other tasks. But such a claim advances it by at most one step: its key may extend far ahead,
        // and new tasks must not be placed behind all of that.
        Self(self.0.map(|time| {
            let laid = rank.0.saturating_add(priority.head_start(rank.order()));
            time.max(rank.0.min(laid)).max(laid.min(time.saturating_add(STEP_MS)))
        }))
    }
}

/// The fairness group of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// The task has no limit key. In a queue with keys all such tasks count as one key.
    Unkeyed {
        /// Where the last task without a key was placed, if there was one.
        last: Option<i64>,
    },
    /// The task has a limit key.
    Keyed {
        /// Where the key's last task was placed, if there was one.
        last: Option<i64>,
    },
}

/// Where a new task is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub rank: Rank,
    /// The queue's new virtual time.
    pub clock: VirtualTime,
    /// Where this task was placed, to be persisted as the key's `last`. `None`: nothing to persist.
    pub last: Option<i64>,
}

/// Places a task that is due at `arrival`.
#[must_use]
pub fn place(
    clock: VirtualTime,
    turn: Fairness,
    arrival: Timestamp,
    priority: Priority,
    order: PriorityOrder,
) -> Placement {
    let head_start = priority.head_start(order);
    let arrival = arrival.millis().clamp(-FARTHEST_MS, FARTHEST_MS);
    let (time, last) = match (clock.0, turn) {
        (None, Fairness::Unkeyed { .. }) => {
            return Placement { rank: Rank(arrival - head_start), clock, last: None };
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
        rank: Rank(laid.saturating_sub(head_start)),
        clock: VirtualTime(Some(time)),
        last: Some(laid),
    }
}
