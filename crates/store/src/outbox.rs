//! Outbox: outcomes of attempts that subscribers, such as callbacks and hooks, are notified of, stored in the same transaction until acknowledged. So a
//! callback is called at least once, even when the process is killed between the commit and the call.

use std::collections::BTreeMap;

use ostler_core::{EndKind, Failure, TaskId, Timestamp};

/// Which outcomes of a queue's attempts get outbox entries. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OutboxFilter {
    /// Indexed like [`EndKind::ALL`].
    wanted: [bool; EndKind::ALL.len()],
}

impl OutboxFilter {
    /// No outcomes.
    pub const NONE: Self = Self { wanted: [false; EndKind::ALL.len()] };
    /// All outcomes.
    pub const ALL: Self = Self { wanted: [true; EndKind::ALL.len()] };

    /// These, and this one.
    #[must_use]
    pub const fn with(mut self, what: EndKind) -> Self {
        self.wanted[what as usize] = true;
        self
    }

    /// The union of both.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        EndKind::ALL.into_iter().filter(|what| self.has(*what) || others.has(*what)).collect()
    }

    /// Whether this kind is included.
    #[must_use]
    pub const fn has(self, what: EndKind) -> bool {
        self.wanted[what as usize]
    }
}

impl FromIterator<EndKind> for OutboxFilter {
    fn from_iter<I: IntoIterator<Item = EndKind>>(all: I) -> Self {
        all.into_iter().fold(Self::NONE, Self::with)
    }
}

/// A named reader of a queue's outbox. Each one gets its own entries, at its own pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub name: String,
    /// The outcomes that it gets entries for.
    pub wants: OutboxFilter,
}

/// Subscribers of one queue.
pub const MAX_SUBSCRIBERS: usize = 16;

/// The subscribers of a queue, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscribers(BTreeMap<String, OutboxFilter>);

impl Subscribers {
    /// The outcomes that any of them wants.
    #[must_use]
    pub fn any(&self) -> OutboxFilter {
        self.0.values().fold(OutboxFilter::NONE, |all, wants| all.and(*wants))
    }

    /// The names of those that want this outcome.
    pub fn wanting(&self, what: EndKind) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(_, wants)| wants.has(what)).map(|(name, _)| name.as_str())
    }

    /// The outcomes that this one wants.
    #[must_use]
    pub fn wants_of(&self, name: &str) -> OutboxFilter {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, OutboxFilter)> {
        self.0.iter().map(|(name, wants)| (name.as_str(), *wants))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the outcomes that one wants; one that wants none is removed.
    pub fn set(&mut self, Subscription { name, wants }: Subscription) {
        if wants == OutboxFilter::NONE {
            self.0.remove(&name);
        } else {
            self.0.insert(name, wants);
        }
    }

    /// Adds to the outcomes that one wants.
    pub fn add(&mut self, Subscription { name, wants }: Subscription) {
        let wants = self.wants_of(&name).and(wants);
        self.set(Subscription { name, wants });
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl FromIterator<(String, OutboxFilter)> for Subscribers {
    fn from_iter<I: IntoIterator<Item = (String, OutboxFilter)>>(all: I) -> Self {
        let mut subscribers = Self::default();
        all.into_iter().for_each(|(name, wants)| subscribers.set(Subscription { name, wants }));
        subscribers
    }
}

/// The outcome of an attempt, to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Rises over the whole store; never reused.
    pub number: u64,
    pub queue: String,
    pub task: TaskId,
    pub kind: String,
    /// The number of the attempt: how many had started by then.
    pub attempt: u32,
    pub what: EndKind,
    pub at: Timestamp,
    /// The failure of the attempt. A task that failed with its nodes, or by its deadline, may have none.
    pub failure: Option<Failure>,
    /// When the next attempt may start, if there will be one.
    pub run_at: Option<Timestamp>,
    /// How often it was taken before. A subscriber that died before the acknowledgement may have handled it.
    pub earlier: u32,
}

/// The acknowledgement of an outbox entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The number of the entry.
    pub number: u64,
    /// What went wrong in its delivery. It becomes a warning event of the task, so that a failing hook is not silent.
    pub warning: Option<String>,
}

impl From<u64> for Ack {
    /// A delivery without a warning.
    fn from(number: u64) -> Self {
        Self { number, warning: None }
    }
}

/// The answer to a session that takes outbox entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxAnswer {
    /// The entries, the oldest first, now taken by the session; may be empty.
    Entries(Vec<OutboxEntry>),
    /// The session has ended: it gets no more entries.
    SessionEnded,
}
