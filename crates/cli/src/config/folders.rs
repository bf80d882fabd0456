//! Task folders of several pools: each pool has a subfolder of its own, and no sandbox reaches that of another pool.

use std::path::{Path, PathBuf};

use ostler_process::Folders;
use ostler_process::sandbox::{Sandbox, real};

use super::fault::ConfigFault;
use super::{ExecutorSettings, PoolSettings};

/// The name of a pool as the name of one folder: a slash, a percent sign and a dot at the beginning are written as in a URL.
pub(super) fn subfolder(pool: &str) -> String {
    let mut name = pool.replace('%', "%25").replace('/', "%2F");
    if name.starts_with('.') {
        name.replace_range(..1, "%2E");
    }
    name
}

/// Something that the children of a sandboxed pool may change.
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

/// Every pool whose task folders the sandbox of a pool reaches although they are not for it. Paths are absolute.
pub(super) fn shared(pools: &[PoolSettings]) -> Vec<ConfigFault> {
    let changeable = changeable(pools);
    let mut faults = Vec::new();
    for pool in pools {
        let Some(each) = &parts(pool).0.each else { continue };
        let root = real(each);
        let reached = |by: &&Changeable<'_>| {
            let reach = real(by.path);
            // A pool's own may be listed again. Something above it may not: it could be replaced then.
            root.starts_with(&reach) && (by.pool != pool.name || reach != root)
        };
        faults.extend(changeable.iter().find(reached).map(|by| ConfigFault {
            line: None,
            sentence: format!(
                "pool.{}.folders: its tasks work in \"{}\", and children in the sandbox of pool.{} may change that (\"{}\" of its \
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

/// Tells every pool what children in sandboxes may change, so that no link in it leads a task anywhere.
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
