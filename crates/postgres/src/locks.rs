//! Advisory locks: which verbs may run concurrently.
//!
//! A verb takes its locks before it touches a row: those of sessions, then those of queues and of their accounts, each in the order
//! of their names, so that no two verbs deadlock. They are transaction-level advisory locks, which live in the server's memory and
//! end with the transaction. A verb that moves tasks of a queue holds the queue *shared*, and the rows it moves; if the
//! tasks of a queue are bound to each other (limit keys, gates, caps), or the queue itself is changed, it holds the queue
//! *exclusively*. A verb that needs a queue it has not locked restarts, and locks that one too.

use std::collections::BTreeMap;
use std::fmt;

use ostler_core::SessionId;

/// The objects that can be locked, in locking order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockTarget {
    /// A session that acts, or ends.
    Session(SessionId),
    /// The records about a session: its node commands and workers.
    Transactor(SessionId),
    /// A queue with its tasks.
    Queue(String),
    /// An account that queues share.
    Account(String),
    /// The breaker around a call of handlers.
    CallBreaker(String),
    /// All schedules, which are counted.
    Schedules,
    /// The migrations of the schema.
    Schema,
    /// The folding of lane counts.
    Fold,
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "session {session}"),
            Self::Transactor(session) => write!(f, "transactor {session}"),
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::Account(name) => write!(f, "account {name}"),
            Self::CallBreaker(name) => write!(f, "call breaker {name}"),
            Self::Schedules => f.write_str("schedules"),
            Self::Schema => f.write_str("schema"),
            Self::Fold => f.write_str("fold"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// With other shared holders.
    Shared,
    /// With no other holder.
    Exclusive,
}

/// The locks of one transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Locks(BTreeMap<LockTarget, Mode>);

impl Locks {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Adds a lock, or strengthens an existing one.
    pub(crate) fn and(mut self, what: LockTarget, mode: Mode) -> Self {
        self.add(what, mode);
        self
    }

    /// Adds a lock, or strengthens an existing one.
    pub(crate) fn add(&mut self, what: LockTarget, mode: Mode) {
        let held = self.0.entry(what).or_insert(mode);
        *held = mode.max(*held);
    }

    /// Adds a shared lock on a queue. If that is too weak, the verb restarts.
    pub(crate) fn queue(self, name: &str) -> Self {
        self.and(LockTarget::Queue(name.to_owned()), Mode::Shared)
    }

    /// Adds an exclusive lock on a queue.
    pub(crate) fn queue_alone(self, name: &str) -> Self {
        self.and(LockTarget::Queue(name.to_owned()), Mode::Exclusive)
    }

    /// Adds the lock of an account, if there is one.
    pub(crate) fn account(self, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.and(LockTarget::Account(name.to_owned()), Mode::Exclusive),
            None => self,
        }
    }

    /// Merges two sets of locks.
    pub(crate) fn with(mut self, others: Self) -> Self {
        for (what, mode) in others.0 {
            self.add(what, mode);
        }
        self
    }

    /// The mode of a lock, if there is one.
    pub(crate) fn mode(&self, what: &LockTarget) -> Option<Mode> {
        self.0.get(what).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The acting session, if there is one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.0.keys().find_map(|what| match what {
            LockTarget::Session(session) => Some(*session),
            LockTarget::Transactor(_)
            | LockTarget::Queue(_)
            | LockTarget::Account(_)
            | LockTarget::CallBreaker(_)
            | LockTarget::Schedules
            | LockTarget::Schema
            | LockTarget::Fold => None,
        })
    }

    pub(crate) fn queues(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for what in self.0.keys() {
            match what {
                LockTarget::Queue(name) => names.push(name.as_str()),
                LockTarget::Session(_)
                | LockTarget::Transactor(_)
                | LockTarget::Account(_)
                | LockTarget::CallBreaker(_)
                | LockTarget::Schedules
                | LockTarget::Schema
                | LockTarget::Fold => {}
            }
        }
        names
    }

    /// The names of all locks, and which of them are exclusive, for the locking statement.
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
