//! Workers through a node: each task is on disk before it begins, and when it has ended.

use std::path::Path;
use std::sync::Arc;

use ostler_process::ProcessPolicy;
use ostler_runtime::{PoolConfig, PoolSize};

use super::{Figures, KIND, executor};
use crate::Error;
use crate::load::QUEUE;
use crate::node::drained;

pub(super) async fn run(
    policy: ProcessPolicy,
    store: &Path,
    calls: u32,
    workers: u32,
) -> Result<Figures, Error> {
    let (process, supervisor) = executor(policy).await?;
    let most = usize::try_from(workers)?;
    let pool = PoolConfig::durable(QUEUE, Arc::new(process), most);
    let pool = PoolConfig { size: PoolSize { min: most, ..pool.size }, ..pool };
    let per_second = drained(store, KIND, usize::try_from(calls)?, pool).await?;
    supervisor.stop().await;
    Ok(Figures { version: None, p50_us: None, per_second })
}
