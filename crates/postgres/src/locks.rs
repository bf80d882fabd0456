//! Who may do what at the same time.
//!
//! A verb takes its locks before it touches a row: those of sessions, then those of queues, each in the order of their names, so
//! that no two verbs wait for each other. They are advisory locks of the transaction, which live in the server's memory and end
//! with it. Whatever moves tasks of a queue holds the queue *shared*, and the rows it moves; where tasks of a queue
//! are bound to each other (limit keys, gates, caps), or the queue itself is changed, it holds the queue *alone*. A verb that comes upon a queue it has not locked begins
//! anew, and locks that one too.

use std::collections::BTreeMap;
use std::fmt;

use ostler_core::SessionId;

/// What can be locked, in the order in which it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockTarget {
    /// A session that acts, or ends.
    Session(SessionId),
    /// What is written about a session: its orders and workers.
    Transactor(SessionId),
    /// A queue with its tasks.
    Queue(String),
    /// All schedules, which are counted.
    Schedules,
    /// The migrations of the schema.
    Schema,
    /// The counts of lanes are summed up.
    Fold,
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "session {session}"),
            Self::Transactor(session) => write!(f, "transactor {session}"),
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::Schedules => f.write_str("schedules"),
            Self::Schema => f.write_str("schema"),
            Self::Fold => f.write_str("fold"),
        }
    }
}

/// How it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// With others who hold it so.
    Shared,
    /// With nobody else.
    Exclusive,
}

/// The locks of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Locks(BTreeMap<LockTarget, Mode>);

impl Locks {
    /// No lock at all.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// One more, or the same one more strongly.
    pub(crate) fn and(mut self, what: LockTarget, mode: Mode) -> Self {
        self.add(what, mode);
        self
    }

    /// One more, or the same one more strongly.
    pub(crate) fn add(&mut self, what: LockTarget, mode: Mode) {
        let held = self.0.entry(what).or_insert(mode);
        *held = mode.max(*held);
    }

    /// A queue, as it is usually locked. Should that be too little, the verb begins anew.
    pub(crate) fn queue(self, name: &str) -> Self {
        self.and(LockTarget::Queue(name.to_owned()), Mode::Shared)
    }

    /// Both together.
    pub(crate) fn with(mut self, others: Self) -> Self {
        for (what, mode) in others.0 {
            self.add(what, mode);
        }
        self
    }

    /// How something is locked, if it is.
    pub(crate) fn mode(&self, what: &LockTarget) -> Option<Mode> {
        self.0.get(what).copied()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The session that acts, if one does.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.0.keys().find_map(|what| match what {
            LockTarget::Session(session) => Some(*session),
            LockTarget::Transactor(_)
            | LockTarget::Queue(_)
            | LockTarget::Schedules
            | LockTarget::Schema
            | LockTarget::Fold => None,
        })
    }

    /// The names of the queues.
    pub(crate) fn queues(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for what in self.0.keys() {
            match what {
                LockTarget::Queue(name) => names.push(name.as_str()),
                LockTarget::Session(_)
                | LockTarget::Transactor(_)
                | LockTarget::Schedules
                | LockTarget::Schema
                | LockTarget::Fold => {}
            }
        }
        names
    }

    /// The names of all, and which of them are locked alone, for the statement that locks.
    pub(crate) fn columns(&self, schema: &str) -> (Vec<String>, Vec<bool>) {
        let name = |what: &LockTarget| format!("ostler {schema}: {what}");
        self.0.iter().map(|(what, mode)| (name(what), *mode == Mode::Exclusive)).unzip()
    }
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, what) in self.0.keys().enumerate() {
            let gap = if at == 0 { "" } else { ", " };
            write!(f, "{gap}{what}")?;
        }
        Ok(())
    }
}
