//! Self-tests of the sandboxes of a node's pools, before anything runs in them.

use ostler_config::{BuildContext, Resources};
use ostler_process::sandbox::probe;

use crate::config::{Config, PoolSettings, StoreUrl};
use crate::exit::{Code, refused};

/// Tests the sandbox of this process; see [`probe`].
pub(crate) fn try_sandbox() -> anyhow::Result<Code> {
    probe(&std::env::args().nth(2).unwrap_or_default())?;
    Ok(Code::Done)
}

/// Hides the store from every sandbox in the config.
pub(crate) fn hide(mut config: Config, store: &StoreUrl) -> anyhow::Result<Config> {
    let hidden = match store {
        StoreUrl::Sqlite(path) => vec![std::path::absolute(path)?],
        // A file system cannot hide a database; its address is never passed to a child.
        StoreUrl::Postgres(_) => Vec::new(),
    };
    for pool in &mut config.pools {
        pool.executor.confine(&hidden).map_err(|why| refusal(&pool.name, &why))?;
    }
    Ok(config)
}

/// Runs the self-test of every sandbox; the store must exist.
pub(crate) async fn prove_all(pools: &[PoolSettings], resources: &Resources) -> anyhow::Result<()> {
    for PoolSettings { name, executor, .. } in pools {
        executor.prove(BuildContext { pool: name, resources }).await.map_err(|why| refusal(name, &why))?;
    }
    Ok(())
}

fn refusal(pool: &str, why: &str) -> anyhow::Error {
    refused(Code::BadInput, format!("pool.{pool}.sandbox: {why}"))
}
