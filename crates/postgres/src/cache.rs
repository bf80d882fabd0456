//! Cache: a process's cached view of the store. Entries may be stale: they are checked where they are used.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::SessionId;
use ostler_store::views::QueueSettings;

use crate::locks::{LockTarget, Locks, Mode};
use crate::queue::{QueueRow, binds};

/// Limit on cached grants; above it the cache is cleared.
const MAX_GRANTS: usize = 100_000;
/// Limit on cached names; above it the cache is cleared.
const MAX_NAMES: usize = 10_000;

/// The state of a task when this process claimed it. It stays valid for as long as the token does and the attempt has not
/// durably started; the statement that relies on it checks both.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) queue: std::sync::Arc<str>,
    pub(crate) lane: i64,
    pub(crate) limit: Option<i64>,
    pub(crate) session: SessionId,
    pub(crate) runs: u32,
}

#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) schema: String,
    known: Mutex<CachedQueue>,
}

#[derive(Debug, Default)]
struct CachedQueue {
    grants: HashMap<i64, Grant>,
    sessions: HashMap<i64, SessionId>,
    /// Queues whose tasks were bound to each other when they were last read, with their accounts.
    binding: HashMap<String, Option<String>>,
    /// Queues whose tasks are charged to a budget, with the pool that serves them, if it is not their own.
    charged: HashMap<String, Option<String>>,
    /// The position where the last claim of a lane left off.
    cursors: HashMap<i64, LaneScan>,
}

/// A claim's scan position: the rank and the row id of a task.
pub(crate) type ScanPosition = (i64, i64);

/// The first position of all.
pub(crate) const HEAD: ScanPosition = (i64::MIN, i64::MIN);

/// How long claims continue from where the last one left off. Tasks that another process put before that position are
/// seen when a claim scans from the head again, as are tasks locked by a transaction that was rolled back.
const CURSOR_LIFE: Duration = Duration::from_secs(1);
/// Claimed tasks before a cursor pays off: that many dead entries at the head of the index cost little.
const CURSOR_AFTER: usize = 1_000;

#[derive(Debug)]
struct LaneScan {
    place: ScanPosition,
    /// Tasks claimed since claims continue from here.
    passed: usize,
    /// The time of the last scan from the head.
    since: Instant,
}

/// The progress of a claim in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanStep {
    pub(crate) lane: i64,
    /// The position it scanned from.
    pub(crate) from: ScanPosition,
    /// The last task it took.
    pub(crate) to: ScanPosition,
    pub(crate) taken: usize,
}

impl Cache {
    pub(crate) fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, CachedQueue> {
        // A panic here leaves at worst a missing entry, which is looked up again.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches claims, for the reports that follow.
    pub(crate) fn remember(&self, grants: impl IntoIterator<Item = (i64, Grant)>) {
        let mut known = self.known();
        if known.grants.len() >= MAX_GRANTS {
            known.grants.clear();
        }
        known.grants.extend(grants);
    }

    /// Returns the cached state of a claim.
    pub(crate) fn recall(&self, slot: i64, token: u64) -> Option<Grant> {
        self.known().grants.get(&slot).filter(|grant| grant.token == token).cloned()
    }

    /// Removes finished claims.
    pub(crate) fn forget(&self, slots: impl IntoIterator<Item = i64>) {
        let mut known = self.known();
        for slot in slots {
            known.grants.remove(&slot);
        }
    }

    /// The position to scan from in a lane. A claim that finds too few tasks there scans from the head.
    pub(crate) fn place(&self, lane: i64) -> ScanPosition {
        let known = self.known();
        let fresh =
            |cursor: &&LaneScan| cursor.passed >= CURSOR_AFTER && cursor.since.elapsed() < CURSOR_LIFE;
        known.cursors.get(&lane).filter(fresh).map_or(HEAD, |cursor| cursor.place)
    }

    /// Records the progress of a committed claim.
    pub(crate) fn step(&self, step: ScanStep) {
        let mut known = self.known();
        if known.cursors.len() >= MAX_NAMES {
            known.cursors.clear();
        }
        let new = LaneScan { place: step.to, passed: 0, since: Instant::now() };
        let cursor = known.cursors.entry(step.lane).or_insert(new);
        // Of two concurrent claims, the one that got less far may report last.
        cursor.place = if step.from == HEAD { step.to } else { cursor.place.max(step.to) };
        cursor.passed += step.taken;
        if step.from == HEAD {
            cursor.since = Instant::now();
        }
    }

    /// Resets the cursors that tasks of this rank, or of a higher one, may have landed in front of.
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

    /// Records whether a queue binds its tasks to each other, and its account.
    pub(crate) fn note(&self, queue: &QueueRow) {
        let mut known = self.known();
        let (name, account) = (&*queue.name, &queue.settings.account);
        if !binds(queue) {
            known.binding.remove(name);
        } else if known.binding.get(name) != Some(account) {
            if known.binding.len() >= MAX_NAMES {
                known.binding.clear();
            }
            known.binding.insert(name.to_owned(), account.clone());
        }
    }

    /// Records whether the tasks of a queue are charged to a budget.
    pub(crate) fn note_budget(&self, queue: &str, settings: &QueueSettings) {
        let mut known = self.known();
        if !settings.is_charged() {
            known.charged.remove(queue);
        } else if known.charged.get(queue) != Some(&settings.pool) {
            if known.charged.len() >= MAX_NAMES {
                known.charged.clear();
            }
            known.charged.insert(queue.to_owned(), settings.pool.clone());
        }
    }

    /// The queue of a cached claim, if its tasks are charged to a budget.
    pub(crate) fn charged(&self, slot: i64, token: u64) -> Option<String> {
        let queue = self.recall(slot, token)?.queue;
        self.known().charged.contains_key(&*queue).then(|| queue.to_string())
    }

    /// Strengthens the locks that are known to be too weak, and adds those of pools that are charged, too.
    pub(crate) fn strengthened(&self, mut locks: Locks) -> Locks {
        let known = self.known();
        let pools: Vec<String> = locks
            .queues()
            .into_iter()
            .filter_map(|name| known.charged.get(name).cloned().flatten())
            .collect();
        for pool in pools {
            locks.add(LockTarget::Queue(pool), Mode::Shared);
        }
        let names: Vec<String> = locks.queues().into_iter().map(str::to_owned).collect();
        for name in names {
            if let Some(account) = known.binding.get(&name) {
                locks = locks.queue_alone(&name).account(account.as_deref());
            }
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
