//! Task folders of several pools: each pool has its own subfolder, which no sandbox of another pool can reach.

use std::path::{Path, PathBuf};

use ostler_process::Folders;
use ostler_process::sandbox::{Sandbox, real};

use super::fault::ConfigFault;
use super::{ExecutorSettings, PoolSettings};

/// A pool's name as a folder name: slashes, percent signs and a leading dot are percent-encoded.
pub(super) fn subfolder(pool: &str) -> String {
    let mut name = pool.replace('%', "%25").replace('/', "%2F");
    if name.starts_with('.') {
        name.replace_range(..1, "%2E");
    }
    name
}

/// A path that children of a sandboxed pool may change.
struct Changeable<'a> {
    pool: &'a str,
    key: &'static str,
    path: &'a Path,
}

fn parts(pool: &PoolSettings) -> (&Folders, Option<&Sandbox>) {
    match &pool.executor {
        ExecutorSettings::Command(policy) => (&policy.folders, policy.sandbox.as_ref()),
        ExecutorSettings::Process(policy) => (&policy.folders, policy.sandbox.as_ref()),
    }
}

fn changeable(pools: &[PoolSettings]) -> Vec<Changeable<'_>> {
    let of_pool = |pool| {
        let (folders, sandbox) = parts(pool);
        let write = sandbox.into_iter().flat_map(|sandbox| &sandbox.write);
        let each = folders.each.iter().filter(move |_| sandbox.is_some());
        let of = |key, path| Changeable { pool: &pool.name, key, path };
        let write = write.map(move |path: &PathBuf| of("sandbox.write", path));
        write.chain(each.map(move |path| of("folders", path)))
    };
    pools.iter().flat_map(of_pool).collect()
}

/// Pools whose task folders can be reached by the sandbox of another pool. Paths are absolute.
pub(super) fn shared(pools: &[PoolSettings]) -> Vec<ConfigFault> {
    let changeable = changeable(pools);
    let mut faults = Vec::new();
    for pool in pools {
        let Some(each) = &parts(pool).0.each else { continue };
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
pub(super) fn guard(pools: &mut [PoolSettings]) {
    let guarded: Vec<PathBuf> = changeable(pools).iter().map(|place| place.path.to_owned()).collect();
    for pool in pools {
        let folders = match &mut pool.executor {
            ExecutorSettings::Command(policy) => &mut policy.folders,
            ExecutorSettings::Process(policy) => &mut policy.folders,
        };
        folders.guarded.clone_from(&guarded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_pool_is_the_name_of_one_folder() {
        for (pool, folder) in [
            ("mail", "mail"),
            ("old mail", "old mail"),
            ("a/b", "a%2Fb"),
            ("..", "%2E."),
            ("a%2Fb", "a%252Fb"),
        ] {
            assert_eq!(subfolder(pool), folder);
        }
    }
}
