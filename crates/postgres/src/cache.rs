//! What a process knows by heartbeat about the store. Nothing here has to be right: what follows from it is checked where it is used.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::SessionId;

use crate::locks::{LockTarget, Locks, Mode};

/// Grants that are known by heartbeat; over it they are forgotten, and looked up.
const MAX_GRANTS: usize = 100_000;
/// Names that are known by heartbeat; over it they are forgotten, and looked up.
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

/// What a process knows by heartbeat.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) schema: String,
    known: Mutex<CachedQueue>,
}

#[derive(Debug, Default)]
struct CachedQueue {
    grants: HashMap<i64, Grant>,
    sessions: HashMap<i64, SessionId>,
    /// Queues whose tasks were bound to each other when they were last seen.
    binding: HashSet<String>,
    /// Where the last claim of a lane left off.
    cursors: HashMap<i64, LaneScan>,
}

/// Where a claim looks from: the rank and the number of a task.
pub(crate) type ScanPosition = (i64, i64);

/// The first place of all.
pub(crate) const HEAD: ScanPosition = (i64::MIN, i64::MIN);

/// How long claims go on from where the last one left off. What came to stand before that place by somebody else's doing is seen when
/// a claim looks from the head again; so is what a transaction held that was undone.
const CURSOR_LIFE: Duration = Duration::from_secs(1);
/// Tasks that are claimed before it is worth while: so many dead entries at the head of the index cost little.
const CURSOR_AFTER: usize = 1_000;

#[derive(Debug)]
struct LaneScan {
    place: ScanPosition,
    /// Tasks that were claimed since claims go on from it.
    passed: usize,
    /// When a claim looked from the head.
    since: Instant,
}

/// How a claim moved on in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanStep {
    pub(crate) lane: i64,
    /// Where it looked from.
    pub(crate) from: ScanPosition,
    /// The last that it took.
    pub(crate) to: ScanPosition,
    pub(crate) taken: usize,
}

impl Cache {
    pub(crate) fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, CachedQueue> {
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

    /// Where to look from in a lane. Whoever finds too little there looks from the head.
    pub(crate) fn place(&self, lane: i64) -> ScanPosition {
        let known = self.known();
        let fresh =
            |cursor: &&LaneScan| cursor.passed >= CURSOR_AFTER && cursor.since.elapsed() < CURSOR_LIFE;
        known.cursors.get(&lane).filter(fresh).map_or(HEAD, |cursor| cursor.place)
    }

    /// A claim took some, and is committed.
    pub(crate) fn step(&self, step: ScanStep) {
        let mut known = self.known();
        if known.cursors.len() >= MAX_NAMES {
            known.cursors.clear();
        }
        let new = LaneScan { place: step.to, passed: 0, since: Instant::now() };
        let cursor = known.cursors.entry(step.lane).or_insert(new);
        // Of two claims at once, the one that came less far may have been the first.
        cursor.place = if step.from == HEAD { step.to } else { cursor.place.max(step.to) };
        cursor.passed += step.taken;
        if step.from == HEAD {
            cursor.since = Instant::now();
        }
    }

    /// A task of this rank, or none below it, came to stand in some lane.
    pub(crate) fn came(&self, rank: i64) {
        self.known().cursors.retain(|_, cursor| rank > cursor.place.0);
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
            locks.add(LockTarget::Queue(name), Mode::Exclusive);
        }
        locks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: i64 = 7;

    fn taken(from: ScanPosition, to: ScanPosition, taken: usize) -> ScanStep {
        ScanStep { lane: LANE, from, to, taken }
    }

    #[test]
    fn claims_go_on_from_where_the_last_one_left_off_once_many_were_claimed() {
        let cache = Cache::new("ostler");
        assert_eq!(cache.place(LANE), HEAD);
        cache.step(taken(HEAD, (10, 1), CURSOR_AFTER - 1));
        assert_eq!(cache.place(LANE), HEAD, "few entries at the head cost little");
        cache.step(taken(HEAD, (11, 2), 1));
        assert_eq!(cache.place(LANE), (11, 2));
        assert_eq!(cache.place(LANE + 1), HEAD, "each lane has its own place");
    }

    #[test]
    fn of_two_claims_at_once_the_further_one_counts() {
        let cache = Cache::new("ostler");
        cache.step(taken(HEAD, (10, 1), CURSOR_AFTER));
        cache.step(taken((10, 1), (30, 9), 1));
        cache.step(taken((10, 1), (20, 5), 1));
        assert_eq!(cache.place(LANE), (30, 9));
    }

    #[test]
    fn a_task_of_a_lower_rank_makes_the_next_claim_look_from_the_head() {
        let cache = Cache::new("ostler");
        cache.step(taken(HEAD, (10, 1), CURSOR_AFTER));
        cache.came(11);
        assert_eq!(cache.place(LANE), (10, 1), "it comes behind that place");
        cache.came(10);
        assert_eq!(cache.place(LANE), HEAD);
    }

    #[test]
    fn after_a_while_a_claim_looks_from_the_head_again() {
        let cache = Cache::new("ostler");
        cache.step(taken(HEAD, (10, 1), CURSOR_AFTER));
        cache.known().cursors.get_mut(&LANE).unwrap().since -= CURSOR_LIFE;
        assert_eq!(cache.place(LANE), HEAD);
        cache.step(taken(HEAD, (12, 3), 1));
        assert_eq!(cache.place(LANE), (12, 3));
    }
}
