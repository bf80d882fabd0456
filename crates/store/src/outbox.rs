//! Tellings: which ends of attempts somebody wants to be told of, kept with the end itself until somebody was. So a
//! callback is called at least once, also when the process is killed between the commit and the call.

use ostler_core::{EndKind, Failure, TaskId, Timestamp};

/// Which ends of a queue's attempts are kept to be told. None, unless somebody says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OutboxFilter {
    /// A place for each of [`EndKind::ALL`].
    wanted: [bool; EndKind::ALL.len()],
}

impl OutboxFilter {
    /// Nothing is told.
    pub const NONE: Self = Self { wanted: [false; EndKind::ALL.len()] };
    /// Everything is told.
    pub const ALL: Self = Self { wanted: [true; EndKind::ALL.len()] };

    /// These, and this one.
    #[must_use]
    pub const fn with(mut self, what: EndKind) -> Self {
        self.wanted[what as usize] = true;
        self
    }

    /// These, and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        EndKind::ALL.into_iter().filter(|what| self.has(*what) || others.has(*what)).collect()
    }

    /// Whether this is told.
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

/// The end of an attempt, to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Rises over the whole store; none comes twice.
    pub number: u64,
    /// The queue.
    pub queue: String,
    /// The task.
    pub task: TaskId,
    /// Its kind.
    pub kind: String,
    /// The number of the attempt: how many had begun by then.
    pub attempt: u32,
    /// What happened.
    pub what: EndKind,
    /// When.
    pub at: Timestamp,
    /// What the attempt failed with. A task that died with its nodes, or by its deadline, may have none.
    pub failure: Option<Failure>,
    /// When the next attempt may begin, if there will be one.
    pub run_at: Option<Timestamp>,
}

/// A telling that was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which.
    pub number: u64,
    /// What went wrong with it. It is kept as a warning on the task, so that a hook that fails is not silent.
    pub warning: Option<String>,
}

impl From<u64> for Ack {
    /// All went well.
    fn from(number: u64) -> Self {
        Self { number, warning: None }
    }
}

/// The answer to a session that asks what there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxAnswer {
    /// These, the oldest first; they are the session's to tell now. None when there are none.
    Entries(Vec<OutboxEntry>),
    /// The session is over: it hears nothing any more.
    SessionEnded,
}
