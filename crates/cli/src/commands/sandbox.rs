//! The sandboxes of a node's pools: they are proved before anything runs in them.

use ostler_process::sandbox::{probe, prove};
use ostler_process::supervisor::Supervisor;

use crate::config::{Config, PoolSettings, StoreUrl};
use crate::exit::{Code, refused};

/// The word by which this program knows that it is to try out a sandbox. Not for people.
pub(crate) const PROBE: &str = "ostler-probe";

/// Tries out the sandbox that this process is in; see [`probe`].
pub(crate) fn try_sandbox() -> anyhow::Result<Code> {
    probe(&std::env::args().nth(2).unwrap_or_default())?;
    Ok(Code::Done)
}

/// The same config, with the store hidden from every sandbox, and nothing that would give it away.
pub(super) fn hide(mut config: Config, store: &StoreUrl) -> anyhow::Result<Config> {
    for pool in &mut config.pools {
        let Some(sandbox) = pool.executor.sandbox_mut() else { continue };
        match store {
            StoreUrl::Sqlite(path) => sandbox.hidden.push(std::path::absolute(path)?),
            // It is nothing that a file system could hide; no child is told where it is.
            StoreUrl::Postgres(_) => {}
        }
        if let Some(fault) = sandbox.faults().first() {
            return Err(refusal(pool, fault));
        }
    }
    Ok(config)
}

/// Proves every sandbox; the store must be there.
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
