//! Leftovers of pruned tasks: conversations and worktrees that executors have kept for tasks of this store, which no longer has them.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use ostler_config::{Leftover, LeftoverKeeper, StoreMark, WhyKept};
use ostler_core::TaskId;
use ostler_ops::doctor::facts::KeptLeftover;
use ostler_ops::prune::gone;
use ostler_store::Store;
use sha2::{Digest as _, Sha256};

use crate::config::{PoolSettings, StoreUrl};
use crate::pool_kinds::POOL_KINDS;

/// Leftovers that are removed in one sweep. The next one goes on.
const MAX_REMOVED: usize = 1_000;
/// Leftovers that the doctor looks at.
const MAX_LOOKED_AT: usize = 50;
/// Bytes of the digest in a mark.
const MARK_BYTES: usize = 16;
/// Has an id that differs between machines, so that stores of the same name on two of them are told apart in a shared home folder.
const MACHINE_ID: &str = "/etc/machine-id";

/// What is kept for tasks of one store, by all who keep something.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers {
    keepers: Vec<Arc<dyn LeftoverKeeper>>,
    mark: StoreMark,
}

/// A leftover, and who owns it.
type Owned = (Arc<dyn LeftoverKeeper>, Leftover);

impl Leftovers {
    /// Of these pools, and of all others in the user's state folder.
    pub(crate) fn new(pools: &[PoolSettings], store: &StoreUrl) -> Self {
        let usual = POOL_KINDS.iter().flat_map(|kind| kind.keepers());
        let own = pools.iter().flat_map(|pool| pool.executor.keepers());
        let mut keepers: Vec<Arc<dyn LeftoverKeeper>> = Vec::new();
        for keeper in usual.chain(own) {
            if keepers.iter().all(|known| known.folder() != keeper.folder()) {
                keepers.push(keeper);
            }
        }
        Self { keepers, mark: mark_of(store) }
    }

    /// Removes those whose tasks are gone, where nothing is in the way. Returns their number.
    pub(crate) async fn sweep(&self, store: &dyn Store) -> anyhow::Result<usize> {
        let mut removed = 0;
        for (keeper, leftover) in self.of_gone_tasks(store).await?.into_iter().take(MAX_REMOVED) {
            // What is kept is listed by the doctor.
            removed += usize::from(apart(move || keeper.remove(&leftover)).await?.is_ok());
        }
        Ok(removed)
    }

    /// Those whose tasks are gone, and which cannot be removed. Changes nothing.
    pub(crate) async fn blocked(&self, store: &dyn Store) -> anyhow::Result<Vec<KeptLeftover>> {
        let mut blocked = Vec::new();
        for (keeper, leftover) in self.of_gone_tasks(store).await?.into_iter().take(MAX_LOOKED_AT) {
            let path = leftover.path.clone();
            match apart(move || keeper.obstacle(&leftover)).await? {
                Some(WhyKept::Blocked { why, advice }) => blocked.push(KeptLeftover { path, why, advice }),
                Some(WhyKept::InUse) | None => {}
            }
        }
        Ok(blocked)
    }

    /// What was kept for tasks that the store does not have any more.
    async fn of_gone_tasks(&self, store: &dyn Store) -> anyhow::Result<Vec<Owned>> {
        let (keepers, mark) = (self.keepers.clone(), self.mark.clone());
        // Listed before the store is asked: what is kept later is for tasks that exist.
        let all: Vec<Owned> = apart(move || {
            let listed = keepers.into_iter().map(|keeper| (keeper.leftovers(&mark), keeper));
            listed
                .flat_map(|(all, keeper)| all.into_iter().map(move |one| (Arc::clone(&keeper), one)))
                .collect()
        })
        .await?;
        let tasks: HashSet<TaskId> =
            all.iter().flat_map(|(_, leftover)| leftover.tasks.iter().copied()).collect();
        let gone = gone(store, tasks.into_iter().collect()).await?;
        Ok(all
            .into_iter()
            .filter(|(_, leftover)| leftover.tasks.iter().all(|task| gone.contains(task)))
            .collect())
    }
}

/// The mark of a store: the same for all programs on this machine that name it so.
pub(crate) fn mark_of(store: &StoreUrl) -> StoreMark {
    let name = match store {
        StoreUrl::Sqlite(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            let real = folder.and_then(|folder| Some(folder.join(path.file_name()?))).unwrap_or(path);
            real.into_os_string().into_encoded_bytes()
        }
        StoreUrl::Postgres(address) => address.to_string().into_bytes(),
    };
    let machine = std::fs::read(Path::new(MACHINE_ID)).unwrap_or_default();
    let digest = Sha256::new().chain_update(machine).chain_update([0]).chain_update(name).finalize();
    StoreMark(digest.iter().take(MARK_BYTES).map(|byte| format!("{byte:02x}")).collect())
}

/// Runs what blocks on a thread of its own.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("looking for leftovers of pruned tasks did not finish")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_one_mark_however_its_path_is_written_and_another_store_has_another() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("deep")).expect("a folder");
        let mark = |name: &str| mark_of(&StoreUrl::Sqlite(folder.path().join(name)));
        assert_eq!(mark("a.db"), mark("deep/../a.db"));
        assert_ne!(mark("a.db"), mark("b.db"));
    }
}
