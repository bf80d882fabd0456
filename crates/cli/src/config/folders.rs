//! Task folders of several pools: each pool has its own subfolder, which no sandbox of another pool can reach.

use std::path::{Path, PathBuf};

use ostler_config::{ConfigFault, WritablePath};
use ostler_process::sandbox::real;

use super::PoolSettings;

/// A path that children of a sandboxed pool may change.
struct Changeable<'a> {
    pool: &'a str,
    key: &'static str,
    path: &'a Path,
}

fn changeable(pools: &[PoolSettings]) -> Vec<Changeable<'_>> {
    let mut changeable = Vec::new();
    for PoolSettings { name: pool, executor, .. } in pools {
        let paths = executor.writable().into_iter();
        changeable.extend(paths.map(|WritablePath { key, path }| Changeable { pool, key, path }));
    }
    changeable
}

/// Pools whose task folders can be reached by the sandbox of another pool. Paths are absolute.
pub(super) fn shared(pools: &[PoolSettings]) -> Vec<ConfigFault> {
    let changeable = changeable(pools);
    let mut faults = Vec::new();
    for pool in pools {
        let Some(each) = pool.executor.task_folders() else { continue };
        let root = real(each);
        let reached = |by: &&Changeable<'_>| {
            let reach = real(by.path);
            // A pool may list its own folder again, but not a parent of it, because it could then be replaced.
            root.starts_with(&reach) && (by.pool != pool.name || reach != root)
        };
        faults.extend(changeable.iter().find(reached).map(|by| ConfigFault {
            line: None,
            sentence: format!(
                "pool.{}.folders: its task folders are in \"{}\", which children in the sandbox of pool.{} may change (\"{}\" in its \
                 {}); choose another folder",
                pool.name,
                each.display(),
                by.pool,
                by.path.display(),
                by.key
            ),
        }));
    }
    faults
}

/// Tells every pool which paths sandboxed children may change, so that no symbolic link in them misleads a task.
pub(super) fn distrust(pools: &mut [PoolSettings]) {
    let writable: Vec<PathBuf> = changeable(pools).iter().map(|place| place.path.to_owned()).collect();
    pools.iter_mut().for_each(|pool| pool.executor.distrust(&writable));
}
