//! What a process knows by heart about the store. Nothing here has to be right: what follows from it is checked where it is used.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_core::SessionId;

use crate::locks::{Locks, Mode, What};

/// Grants that are known by heart; over it they are forgotten, and looked up.
const MAX_GRANTS: usize = 100_000;
/// Names that are known by heart; over it they are forgotten, and looked up.
const MAX_NAMES: usize = 10_000;

/// What was true of a task when this process claimed it. It stays true for as long as the token does and the attempt
/// has not durably begun, and the statement that relies on it checks both.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) queue: std::sync::Arc<str>,
    pub(crate) lane: i64,
    pub(crate) limit: Option<i64>,
    pub(crate) session: SessionId,
    pub(crate) runs: u32,
}

/// What a process knows by heart.
#[derive(Debug)]
pub(crate) struct Memo {
    pub(crate) schema: String,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    grants: HashMap<i64, Grant>,
    sessions: HashMap<i64, SessionId>,
    /// Queues whose tasks were bound to each other when they were last seen.
    binding: HashSet<String>,
}

impl Memo {
    pub(crate) fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Whoever panicked here left at worst something that is looked up.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers claims, for the reports that are to come.
    pub(crate) fn remember(&self, grants: impl IntoIterator<Item = (i64, Grant)>) {
        let mut known = self.known();
        if known.grants.len() >= MAX_GRANTS {
            known.grants.clear();
        }
        known.grants.extend(grants);
    }

    /// What is remembered of a claim.
    pub(crate) fn recall(&self, slot: i64, token: u64) -> Option<Grant> {
        self.known().grants.get(&slot).filter(|grant| grant.token == token).cloned()
    }

    /// These claims are over.
    pub(crate) fn forget(&self, slots: impl IntoIterator<Item = i64>) {
        let mut known = self.known();
        for slot in slots {
            known.grants.remove(&slot);
        }
    }

    pub(crate) fn session(&self, id: i64) -> Option<SessionId> {
        self.known().sessions.get(&id).copied()
    }

    pub(crate) fn remember_session(&self, id: i64, name: SessionId) {
        let mut known = self.known();
        if known.sessions.len() >= MAX_NAMES {
            known.sessions.clear();
        }
        known.sessions.insert(id, name);
    }

    /// Whether a queue binds its tasks to each other.
    pub(crate) fn note(&self, queue: &str, binds: bool) {
        let mut known = self.known();
        if binds && !known.binding.contains(queue) {
            if known.binding.len() >= MAX_NAMES {
                known.binding.clear();
            }
            known.binding.insert(queue.to_owned());
        } else if !binds && known.binding.contains(queue) {
            known.binding.remove(queue);
        }
    }

    /// The locks, stronger where they would turn out to be too weak.
    pub(crate) fn strengthened(&self, mut locks: Locks) -> Locks {
        let known = self.known();
        let names: Vec<String> = locks
            .queues()
            .into_iter()
            .filter(|name| known.binding.contains(*name))
            .map(str::to_owned)
            .collect();
        for name in names {
            locks.add(What::Queue(name), Mode::Alone);
        }
        locks
    }
}
