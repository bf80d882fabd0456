//! Self-tests of the sandboxes of a node's pools, before anything runs in them.

use ostler_process::sandbox::{probe, prove};
use ostler_process::supervisor::Supervisor;

use crate::config::{Config, PoolSettings, StoreUrl};
use crate::exit::{Code, refused};

/// The first argument that makes this program test its own sandbox. Internal.
pub(crate) const PROBE: &str = "ostler-probe";

/// Tests the sandbox of this process; see [`probe`].
pub(crate) fn try_sandbox() -> anyhow::Result<Code> {
    probe(&std::env::args().nth(2).unwrap_or_default())?;
    Ok(Code::Done)
}

/// Hides the store from every sandbox in the config.
pub(super) fn hide(mut config: Config, store: &StoreUrl) -> anyhow::Result<Config> {
    for pool in &mut config.pools {
        let Some(sandbox) = pool.executor.sandbox_mut() else { continue };
        match store {
            StoreUrl::Sqlite(path) => sandbox.hidden.push(std::path::absolute(path)?),
            // A file system cannot hide a database; its address is never passed to a child.
            StoreUrl::Postgres(_) => {}
        }
        if let Some(fault) = sandbox.faults().first() {
            return Err(refusal(pool, fault));
        }
    }
    Ok(config)
}

/// Runs the self-test of every sandbox; the store must exist.
pub(super) async fn prove_all(config: &Config, supervisor: &Supervisor) -> anyhow::Result<()> {
    for pool in &config.pools {
        let Some(sandbox) = pool.executor.sandbox() else { continue };
        prove(supervisor, sandbox, &[PROBE], &[]).await.map_err(|error| refusal(pool, &error))?;
    }
    Ok(())
}

fn refusal(pool: &PoolSettings, why: &dyn std::fmt::Display) -> anyhow::Error {
    refused(Code::BadInput, format!("pool.{}.sandbox: {why}", pool.name))
}
