//! Connections for the verbs, apart for each runtime of the process.
//!
//! A connection lives on the runtime that opened it. If others used it too, handlers that block the threads of the caller's runtime
//! would hold up the node, which lives on a thread of its own just so that they cannot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use deadpool_postgres::{Pool, Runtime, Timeouts};
use tokio::runtime::{Handle, Id};

use crate::connect::Connector;
use crate::fault::{Sql, Stop};
use crate::manners::Manners;

/// Runtimes that are remembered; over it, those without connections are forgotten.
const MAX_RUNTIMES: usize = 16;

/// The pools. Clones are the same.
#[derive(Clone)]
pub(crate) struct Pools(Arc<Inner>);

struct Inner {
    connector: Connector,
    most: usize,
    timeouts: Timeouts,
    by_runtime: Mutex<HashMap<Id, Pool>>,
}

impl Pools {
    /// Each has at most so many connections.
    pub(crate) fn new(connector: Connector, most: usize, timeouts: Timeouts) -> Self {
        Self(Arc::new(Inner { connector, most: most.max(1), timeouts, by_runtime: Mutex::default() }))
    }

    /// What their connections were told.
    pub(crate) fn manners(&self) -> &Arc<Manners> {
        self.0.connector.manners()
    }

    /// The pool of the runtime that this is called on.
    pub(crate) fn here(&self) -> Sql<Pool> {
        let Inner { connector, most, timeouts, by_runtime } = &*self.0;
        let mut pools = by_runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = Handle::current().id();
        if let Some(pool) = pools.get(&runtime) {
            return Ok(pool.clone());
        }
        if pools.len() >= MAX_RUNTIMES {
            pools.retain(|_, pool| pool.status().size > 0);
        }
        let pool =
            Pool::builder(connector.manager()).max_size(*most).timeouts(*timeouts).runtime(Runtime::Tokio1);
        let pool = pool.build().map_err(|error| Stop::Away(format!("no pool of connections: {error}")))?;
        pools.insert(runtime, pool.clone());
        Ok(pool)
    }
}
