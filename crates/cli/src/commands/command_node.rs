//! `ostler up --commands`: a node for the commands of `ostler add`, which needs no config.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context as _;
use ostler_core::price::PriceTable;
use ostler_runtime::{NodeHandle, NodeState, TakeOver};

use super::background::{NodeFiles, command_queue, node_name, unlock};
use super::{Console, config, up};
use crate::args::Up;
use crate::config::{ApiSettings, Config, DetachedJobs, Listen, PoolSettings, parse};
use crate::exit::{Code, refused};
use crate::pool_kinds::POOL_KINDS;
use crate::up::{NodePlan, UpNode};

/// The lock of the node for a store.
enum NodeLock {
    /// From the caller, as standard input.
    Handed,
    Own(File),
}

pub(super) fn run(console: &Console, up: Up) -> anyhow::Result<Code> {
    let verbosity = up.verbosity();
    let file = up.config.or_else(config::here);
    let base = file.as_deref().map(config::of_store).transpose()?.unwrap_or_default();
    let place = console.place_by(|| Ok(Some(base.clone())))?.with_failover(base.failover);
    let lock = if up.background {
        // The node outlives the terminal of its caller.
        rustix::process::setsid().context("the node cannot have a session of its own")?;
        NodeLock::Handed
    } else {
        let taken = || {
            let sentence =
                format!("a node for added commands is up already; to stop it: ostler drain {}", node_name());
            refused(Code::BadInput, sentence)
        };
        NodeLock::Own(NodeFiles::of(place.url())?.try_lock()?.ok_or_else(taken)?)
    };
    up::open_log(up.log.unwrap_or(base.log.format), verbosity, base.log.level)?;
    let config = Config {
        pools: pools(&command_queue(place.url()))?,
        api: ApiSettings { listen: up.listen.unwrap_or(Listen::Nowhere), ..base.api },
        jobs: DetachedJobs::Left,
        presence: None,
        secrets: Vec::new(),
        accounts: Vec::new(),
        schedules: Vec::new(),
        ..base
    };
    let name = up.name.unwrap_or_else(node_name);
    let plan = NodePlan { place, config, name, take_over: TakeOver::No, watched: None };
    up::serve(console, &label(file), plan, |up: &UpNode| hold(&up.node, lock))
}

/// The pool, as a config would have it.
fn pools(queue: &str) -> anyhow::Result<Vec<PoolSettings>> {
    // A JSON text is one of TOML, too.
    let text = format!("[pool.{}]\nexecutor = \"adhoc\"\n", serde_json::to_string(queue)?);
    let config = parse(&text, "the pool of added commands", &|_| None, POOL_KINDS, PriceTable::built_in());
    Ok(config.map_err(|error| refused(Code::BadInput, error.to_string()))?.pools)
}

fn label(file: Option<PathBuf>) -> String {
    file.map_or_else(|| "none".to_owned(), |file| file.display().to_string())
}

/// Holds the lock until the node drains: from then on, another node takes new commands.
fn hold(node: &NodeHandle, lock: NodeLock) {
    let mut state = node.state();
    tokio::spawn(async move {
        loop {
            let now = *state.borrow_and_update();
            match now {
                NodeState::Draining | NodeState::Ended => break,
                NodeState::Fenced | NodeState::Running => {}
            }
            if state.changed().await.is_err() {
                break;
            }
        }
        match lock {
            NodeLock::Handed => unlock(std::io::stdin()),
            NodeLock::Own(file) => unlock(file),
        }
    });
}
