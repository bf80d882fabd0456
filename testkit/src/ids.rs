//! Ids from a seed: the same test makes the same ids every time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ostler_core::{Id, Minter, Seed, SessionId, TaskId, Timestamp, WorkerId};
use ostler_store::calls::{NewSession, NewTask};

/// The timestamp of all ids.
const MINTED_AT: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// Makes ids, and the tasks and sessions that need them.
#[derive(Debug)]
pub struct Ids(Mutex<(Minter, Seed)>);

impl Ids {
    /// Ids that no other seed produces.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut minter = Minter::new();
        // Ids of one millisecond count up from the first, so the ranges of seeds must be far apart.
        let _ = minter.mint(MINTED_AT, u128::from(seed) << 40);
        Self(Mutex::new((minter, Seed::new(seed))))
    }

    fn mint(&self) -> Id {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.0.mint(MINTED_AT, 0)
    }

    /// A new task id.
    #[must_use]
    pub fn task(&self) -> TaskId {
        TaskId(self.mint())
    }

    /// A new session id.
    #[must_use]
    pub fn session(&self) -> SessionId {
        SessionId(self.mint())
    }

    /// A new worker id.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        WorkerId(self.mint())
    }

    /// A number below `bound`, from the same seed.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.below(bound)
    }

    /// A task with default settings.
    #[must_use]
    pub fn new_task(&self, queue: &str, kind: &str) -> NewTask {
        NewTask::new(self.task(), queue, kind, "{}")
    }

    /// `count` tasks with default settings.
    #[must_use]
    pub fn new_tasks(&self, count: usize, queue: &str, kind: &str) -> Vec<NewTask> {
        (0..count).map(|_| self.new_task(queue, kind)).collect()
    }

    /// A node of this process with leases of `ttl`.
    #[must_use]
    pub fn new_session(&self, name: &str, ttl: Duration) -> NewSession {
        NewSession {
            id: self.session(),
            name: name.to_owned(),
            host: "stable-1".to_owned(),
            pid: std::process::id(),
            version: "0.1.0".to_owned(),
            ttl,
            settings: "{}".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids_and_another_seed_others() {
        let (one, same, other) = (Ids::new(1), Ids::new(1), Ids::new(2));
        let first: Vec<TaskId> = (0..100).map(|_| one.task()).collect();
        assert!(first.iter().all(|id| *id == same.task()));
        assert!((0..100).all(|_| !first.contains(&other.task())));
    }
}
