//! The pools of a config, as a node runs them: executors, settings of their queues, and hooks.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ostler_config::{BuildContext, ClaimAhead, ClaimRoom, Resources};
use ostler_core::{JobId, Overrides};
use ostler_ops::jobs::JobSpec;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{EndListener, PoolConfig, PoolSize, Prefetch, StartMode, brings_settings};
use ostler_store::calls::QueueChange;
use ostler_store::jobs::queue_of;
use ostler_store::views::QueueSettings;
use ostler_store::{Bounds, Store};

use crate::config::{PoolSettings, Replaces};
use crate::exit::{Code, refused};
use crate::hooks::{Hooks, Tools};
use crate::store_location::refusal;

/// The pools with their executors. Needs no store.
pub(super) fn build(pools: &[PoolSettings], resources: &Resources) -> anyhow::Result<Vec<PoolConfig>> {
    pools
        .iter()
        .map(|pool| {
            let room = claim_room(pool)?;
            room.map_or(Ok(()), |room| room.check(pool.scale.max)).map_err(|why| no_pool(pool, &why))?;
            build_one(pool, resources)
        })
        .collect()
}

fn claim_room(pool: &PoolSettings) -> anyhow::Result<Option<ClaimRoom>> {
    pool.executor.claim_room(pool.scale.max).map_err(|why| no_pool(pool, &why))
}

fn no_pool(pool: &PoolSettings, why: &dyn Display) -> anyhow::Error {
    refused(Code::BadInput, format!("pool.{}: {why}", pool.name))
}

fn build_one(pool: &PoolSettings, resources: &Resources) -> anyhow::Result<PoolConfig> {
    let executor = pool
        .executor
        .build(BuildContext { pool: &pool.name, resources })
        .map_err(|error| no_pool(pool, &error))?;
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
        prefetch: match (pool.executor.claim_ahead(), claim_room(pool)?) {
            (ClaimAhead::Never, _) => Prefetch::Off,
            (ClaimAhead::WhenShort, None) => Prefetch::usual(size.max),
            (ClaimAhead::WhenShort, Some(room)) => Prefetch::within(room.most),
        },
        beginning: StartMode::Durable,
        grace: pool.grace,
        settings: vec![QueueChange::Overrides(pool.overrides), QueueChange::Account(pool.account.clone())],
        unclassed: pool.unclassed,
        prices: Arc::clone(&pool.prices),
        unpriced: pool.executor.unpriced(None),
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
        match complete_one(pool, said, store, bounds, resources).await? {
            Replaces::SetByHand => replaced.push(said.name.clone()),
            Replaces::Nothing => {}
        }
    }
    Ok(replaced)
}

async fn complete_one(
    pool: &mut PoolConfig,
    said: &PoolSettings,
    store: &Arc<dyn Store>,
    bounds: Bounds,
    resources: &Resources,
) -> anyhow::Result<Replaces> {
    let before = store.queue_settings(&pool.queue).await.map_err(refusal)?;
    let limits = said.limits.bring(&before);
    pool.settings.extend(limits.changes);
    pool.settings.extend(kinds(&before, said));
    // Only a program without children has no supervisor.
    if let Some(supervisor) = resources.get::<Supervisor>() {
        let tools = Tools { supervisor: supervisor.clone(), store: Arc::clone(store), bounds };
        pool.listeners.extend(hooks(said, &tools)?);
    }
    Ok(limits.replaces)
}

/// The pool of a job: executor, settings, hooks and limits of keys are those of a pool of the config, on the queue of the job. Options
/// of the job win. The limits of the pool's queue as a whole stay there, and hold for the job, too.
pub(crate) async fn of_job(
    said: &PoolSettings,
    job: JobId,
    spec: &JobSpec,
    store: &Arc<dyn Store>,
    bounds: Bounds,
    resources: &Resources,
) -> anyhow::Result<PoolConfig> {
    let own = Overrides {
        attempts: spec.attempts,
        timeout: spec.timeout_ms.map(Duration::from_millis),
        ..Overrides::NONE
    };
    let mut said = said.clone();
    said.overrides = own.or(&said.overrides);
    said.kinds.values_mut().for_each(|kind| *kind = own.or(kind));
    let serving = spec.pool.as_ref().filter(|pool| pool.section.is_none()).map(|pool| pool.name.clone());
    if serving.is_some() {
        bring_limits(&said, store).await?;
        said.limits = said.limits.of_keys();
    }
    // All items of a job are enqueued at once.
    said.limits.queue_limit = None;
    if let Some(jobs) = spec.jobs {
        (said.scale.min, said.scale.max) = (said.scale.min.min(jobs), jobs);
    }
    let mut pool = PoolConfig { queue: queue_of(job), ..build_one(&said, resources)? };
    complete_one(&mut pool, &said, store, bounds, resources).await?;
    // The budget of a job is its own; what its items spend is charged to the budget of a pool of the config, too.
    pool.settings.retain(|change| !matches!(change, QueueChange::Budget(_)));
    pool.settings.push(QueueChange::ServedBy(serving));
    Ok(pool)
}

/// Sets the limits of a pool's queue, unless a node that is up has set them.
async fn bring_limits(said: &PoolSettings, store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let nodes = store.survey().await.map_err(refusal)?.nodes;
    if nodes.iter().any(|node| brings_settings(node, &said.name)) {
        return Ok(());
    }
    let before = store.queue_settings(&said.name).await.map_err(refusal)?;
    store.configure(&said.name, said.limits.bring(&before).changes).await.map_err(refusal)?;
    Ok(())
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
