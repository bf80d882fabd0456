//! Connection pools, one for each runtime of the process.
//!
//! A connection lives on the runtime that opened it. If others used it too, handlers that block the threads of the
//! caller's runtime would stall the node, which has its own thread to prevent exactly that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{Hook, HookError, Metrics, Pool, Runtime, Timeouts};
use tokio::runtime::{Handle, Id};

use crate::connect::Connector;
use crate::fault::{Abort, Sql};
use crate::notifier::answers;
use crate::session_settings::SessionSettings;

/// Runtimes that are tracked; above it, those without connections are dropped.
const MAX_RUNTIMES: usize = 16;

/// The pools. Clones share their state.
#[derive(Clone)]
pub(crate) struct Pools(Arc<SharedPools>);

struct SharedPools {
    connector: Connector,
    limits: Limits,
    by_runtime: Mutex<HashMap<Id, Pool>>,
    /// The last time that a connection did not answer.
    silent_at: Arc<Mutex<Option<Instant>>>,
}

/// The limits of each pool.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum number of connections.
    pub(crate) most: usize,
    pub(crate) timeouts: Timeouts,
    /// How long a connection may be idle before it is checked.
    pub(crate) check_idle: Duration,
}

impl Pools {
    pub(crate) fn new(connector: Connector, limits: Limits) -> Self {
        let (by_runtime, silent_at) = (Mutex::default(), Arc::default());
        Self(Arc::new(SharedPools { connector, limits, by_runtime, silent_at }))
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.0.connector
    }

    /// The session settings of their connections.
    pub(crate) fn session_settings(&self) -> &Arc<SessionSettings> {
        self.0.connector.session_settings()
    }

    /// The pool of the current runtime.
    pub(crate) fn here(&self) -> Sql<Pool> {
        let SharedPools { connector, limits, by_runtime, silent_at } = &*self.0;
        let mut pools = by_runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = Handle::current().id();
        if let Some(pool) = pools.get(&runtime) {
            return Ok(pool.clone());
        }
        if pools.len() >= MAX_RUNTIMES {
            pools.retain(|_, pool| pool.status().size > 0);
        }
        let pool = Pool::builder(connector.manager()).max_size(limits.most.max(1));
        let pool = pool.timeouts(limits.timeouts).runtime(Runtime::Tokio1);
        let pool = pool.pre_recycle(checks_idle(limits.check_idle, Arc::clone(silent_at)));
        let pool = pool
            .build()
            .map_err(|error| Abort::Away(format!("cannot create the connection pool: {error}")))?;
        pools.insert(runtime, pool.clone());
        Ok(pool)
    }
}

/// Checks a connection that was idle for long. If one does not answer, all that were idle at that time are closed
/// unchecked: each of them would run into the timeout.
fn checks_idle(check_idle: Duration, silent_at: Arc<Mutex<Option<Instant>>>) -> Hook {
    Hook::async_fn(move |client, metrics: &Metrics| {
        let silent_at = Arc::clone(&silent_at);
        Box::pin(async move {
            if metrics.last_used() < check_idle {
                return Ok(());
            }
            let used_at = metrics.recycled.unwrap_or(metrics.created);
            let last = *silent_at.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none_or(|silent_at| silent_at < used_at) && answers(client, check_idle).await {
                return Ok(());
            }
            *silent_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            Err(HookError::message("the connection does not answer"))
        })
    })
}
