//! The pools of a config, as a node runs them: executors, settings of their queues, and hooks.

use std::sync::Arc;

use ostler_config::{BuildContext, ClaimAhead, Resources};
use ostler_core::Overrides;
use ostler_core::price::PriceTable;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{EndListener, PoolConfig, PoolSize, Prefetch, StartMode};
use ostler_store::calls::QueueChange;
use ostler_store::views::QueueSettings;
use ostler_store::{Bounds, Store};

use crate::config::{PoolSettings, Replaces};
use crate::exit::{Code, refused};
use crate::hooks::{Hooks, Tools};
use crate::store_location::refusal;

/// The pools with their executors. Needs no store.
pub(super) fn build(
    pools: &[PoolSettings],
    prices: &Arc<PriceTable>,
    resources: &Resources,
) -> anyhow::Result<Vec<PoolConfig>> {
    pools.iter().map(|pool| build_one(pool, prices, resources)).collect()
}

fn build_one(
    pool: &PoolSettings,
    prices: &Arc<PriceTable>,
    resources: &Resources,
) -> anyhow::Result<PoolConfig> {
    let executor = pool
        .executor
        .build(BuildContext { pool: &pool.name, resources })
        .map_err(|error| refused(Code::BadInput, format!("pool.{}: {error}", pool.name)))?;
    let executor = pool.secrets.clone().guard(executor);
    let count = |workers: u32| usize::try_from(workers).unwrap_or(usize::MAX);
    let size = PoolSize {
        min: count(pool.scale.min),
        max: count(pool.scale.max),
        scale_up_at: count(pool.scale.scale_up_at),
        idle_timeout: pool.scale.idle_timeout,
    };
    Ok(PoolConfig {
        size,
        prefetch: match pool.executor.claim_ahead() {
            ClaimAhead::Never => Prefetch::Off,
            ClaimAhead::WhenShort => Prefetch::usual(size.max),
        },
        beginning: StartMode::Durable,
        grace: pool.grace,
        settings: vec![QueueChange::Overrides(pool.overrides), QueueChange::Account(pool.account.clone())],
        unclassed: pool.unclassed,
        prices: Arc::clone(prices),
        ..PoolConfig::new(pool.name.clone(), executor, size.max)
    })
}

/// Adds what depends on the store: changed limits and kinds, and hooks. Returns the queues whose limits were set by hand until now.
pub(super) async fn complete(
    built: &mut [PoolConfig],
    pools: &[PoolSettings],
    store: &Arc<dyn Store>,
    bounds: Bounds,
    resources: &Resources,
) -> anyhow::Result<Vec<String>> {
    let mut replaced = Vec::new();
    for (pool, said) in built.iter_mut().zip(pools) {
        let before = store.queue_settings(&said.name).await.map_err(refusal)?;
        let limits = said.limits.bring(&before);
        match limits.replaces {
            Replaces::SetByHand => replaced.push(said.name.clone()),
            Replaces::Nothing => {}
        }
        pool.settings.extend(limits.changes);
        pool.settings.extend(kinds(&before, said));
        // Only a program without children has no supervisor.
        if let Some(supervisor) = resources.get::<Supervisor>() {
            let tools = Tools { supervisor: supervisor.clone(), store: Arc::clone(store), bounds };
            pool.listeners.extend(hooks(said, &tools)?);
        }
    }
    Ok(replaced)
}

/// Settings of kinds; those of kinds that the config no longer has are removed.
fn kinds(before: &QueueSettings, pool: &PoolSettings) -> Vec<QueueChange> {
    let gone = before.kinds.keys().filter(|kind| !pool.kinds.contains_key(*kind));
    let gone = gone.map(|kind| QueueChange::KindOverrides(kind.clone(), Overrides::NONE));
    let said = pool.kinds.iter().map(|(kind, said)| QueueChange::KindOverrides(kind.clone(), *said));
    gone.chain(said).collect()
}

/// The pool's hooks, as listeners for its outcomes.
fn hooks(pool: &PoolSettings, tools: &Tools) -> anyhow::Result<Vec<Arc<dyn EndListener>>> {
    let hooks = Hooks::arm(&pool.hooks, tools)
        .map_err(|error| refused(Code::BadInput, format!("the hooks of pool.{}: {error}", pool.name)))?;
    Ok(hooks.into_iter().map(|hooks| Arc::new(hooks) as Arc<dyn EndListener>).collect())
}
