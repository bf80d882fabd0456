//! The plan of one queue of a pool: its handlers or executor, its workers and its settings.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "process")]
use ostler_core::Overrides;
use ostler_exec::{ByKind, Executor, Inline, Resources, Served, ThreadPolicy, ThreadStartError, Threads};
use ostler_runtime::{PoolConfig, PoolSize, Prefetch, Unclassed};
use ostler_store::Store;
use ostler_store::calls::QueueChange;

use super::secrets::SecretSettings;
use crate::callbacks::Callbacks;
use crate::error::OpenError;

/// Default number of concurrent handlers.
const WORKERS: usize = 64;

/// Registers a handler with threads once they are started.
pub(super) type LocalHandlerFactory = Box<dyn FnOnce(Threads) -> Threads + Send>;

pub(super) struct QueuePlan {
    pub(super) queue: String,
    pub(super) handlers: Inline,
    pub(super) local: Vec<LocalHandlerFactory>,
    pub(super) threads: Option<ThreadPolicy>,
    #[cfg(feature = "process")]
    pub(super) spec: Option<Box<dyn ostler_config::PoolSpec>>,
    #[cfg(feature = "agent")]
    pub(super) gateway: Option<ostler_agent::gateway::GatewaySettings>,
    pub(super) worker_name: Option<String>,
    pub(super) workers: Option<usize>,
    pub(super) least: Option<usize>,
    pub(super) scale_up_at: Option<usize>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) changes: Vec<QueueChange>,
    pub(super) callbacks: Callbacks,
    pub(super) unclassed: Unclassed,
    pub(super) grace: Duration,
    pub(super) secrets: SecretSettings,
}

impl QueuePlan {
    pub(super) fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            handlers: Inline::new(),
            local: Vec::new(),
            threads: None,
            #[cfg(feature = "process")]
            spec: None,
            #[cfg(feature = "agent")]
            gateway: None,
            worker_name: None,
            workers: None,
            least: None,
            scale_up_at: None,
            idle_timeout: None,
            changes: Vec::new(),
            callbacks: Callbacks::default(),
            unclassed: Unclassed::default(),
            grace: Duration::from_secs(5),
            secrets: SecretSettings::default(),
        }
    }

    #[cfg(feature = "process")]
    fn has_handlers(&self) -> bool {
        !self.local.is_empty() || self.handlers.served() != Served::Only(Vec::new())
    }

    /// Whether it needs the supervisor of child processes.
    #[cfg(feature = "process")]
    pub(super) fn has_children(&self) -> bool {
        #[cfg(feature = "agent")]
        let by_gateway = matches!(self.gateway, Some(ostler_agent::gateway::GatewaySettings::InProcess(_)));
        #[cfg(not(feature = "agent"))]
        let by_gateway = false;
        self.spec.is_some() || by_gateway
    }

    /// The pool of this queue. `resources` are those of executors, `shared` those of handlers.
    pub(super) async fn build(
        mut self,
        resources: &Resources,
        shared: &Arc<Resources>,
        store: &Arc<dyn Store>,
    ) -> Result<PoolConfig, OpenError> {
        #[cfg(feature = "agent")]
        let with_gateway = self.take_gateway(resources, shared)?;
        #[cfg(feature = "agent")]
        let shared = with_gateway.as_ref().unwrap_or(shared);
        #[cfg(feature = "process")]
        if let Some(spec) = self.spec.take() {
            if self.has_handlers() {
                return Err(OpenError::TwoSorts(self.queue));
            }
            return self.build_spec(spec.as_ref(), resources, store).await;
        }
        let _ = resources;
        let handlers = std::mem::take(&mut self.handlers).sharing(Arc::clone(shared));
        let local = std::mem::take(&mut self.local);
        if local.is_empty() {
            return self.configure(store, Arc::new(handlers), WORKERS, Prefetch::usual);
        }
        let policy = match self.threads {
            Some(policy) => policy,
            None => ThreadPolicy::here().map_err(ThreadStartError::from)?,
        };
        let threads = Threads::start(policy)?;
        let threads =
            local.into_iter().fold(threads.sharing(Arc::clone(shared)), |threads, add| add(threads));
        if handlers.served() == Served::Only(Vec::new()) {
            // Threads have their own queue, and their tasks are seldom short.
            return self.configure(store, Arc::new(threads), policy.threads, |_| Prefetch::Off);
        }
        let both = ByKind::new(handlers, threads);
        self.configure(store, Arc::new(both), WORKERS.min(policy.most), Prefetch::usual)
    }

    /// Gives the gateway to the handlers, by what they share, or to the worker processes.
    #[cfg(feature = "agent")]
    fn take_gateway(
        &mut self,
        resources: &Resources,
        shared: &Arc<Resources>,
    ) -> Result<Option<Arc<Resources>>, OpenError> {
        use ostler_agent::gateway::{GatewaySettings, GatewayWorkers};
        use ostler_config::PoolSpec;
        let refused = |reason: String| OpenError::Executor { queue: self.queue.clone(), reason };
        let gateway = match self.gateway.clone() {
            None => return Ok(None),
            Some(GatewaySettings::External(policy, _)) => {
                let secrets = self.secrets.clone().into_secrets();
                let secrets = secrets.map_err(|error| ostler_store::Error::invalid(error.to_string()))?;
                GatewaySettings::External(policy, secrets)
            }
            Some(agents @ GatewaySettings::InProcess(_)) => agents,
        };
        match &self.spec {
            Some(spec) => {
                let workers = spec.as_any().downcast_ref::<ostler_process::ProcessPolicy>();
                let workers = workers
                    .ok_or_else(|| refused("only handlers and worker processes have a gateway".to_owned()))?;
                self.spec = Some(Box::new(GatewayWorkers::new(workers.clone(), gateway)));
                Ok(None)
            }
            None => {
                let context = ostler_config::BuildContext { pool: &self.queue, resources };
                let built = gateway.build(context).map_err(|error| refused(error.to_string()))?;
                let account = match &gateway {
                    GatewaySettings::InProcess(agents) => agents.account(),
                    GatewaySettings::External(..) => None,
                };
                self.fill_in(Overrides::NONE, account);
                Ok(Some(Arc::new((**shared).clone().with(ostler_exec::PoolGateway(built)))))
            }
        }
    }

    /// The pool of a queue whose executor has settings of its own.
    #[cfg(feature = "process")]
    async fn build_spec(
        mut self,
        spec: &dyn ostler_config::PoolSpec,
        resources: &Resources,
        store: &Arc<dyn Store>,
    ) -> Result<PoolConfig, OpenError> {
        use ostler_config::{BuildContext, ClaimAhead};
        let queue = self.queue.clone();
        let refused = |reason: String| OpenError::Executor { queue: queue.clone(), reason };
        if let Some(why) = spec.unpriced(None).filter(|_| self.has_budget()) {
            return Err(refused(format!("its budget cannot be kept: {why}")));
        }
        let context = BuildContext { pool: &queue, resources };
        spec.prove(context).await.map_err(&refused)?;
        let executor = spec.build(context).map_err(|error| refused(error.to_string()))?;
        let defaults = spec.defaults();
        if self.workers.is_none() {
            self.least = usize::try_from(defaults.min_workers).ok();
        }
        let usual = usize::try_from(defaults.max_workers).unwrap_or(usize::MAX);
        let workers = u32::try_from(self.workers.unwrap_or(usual)).unwrap_or(u32::MAX);
        let room = spec.claim_room(workers).map_err(&refused)?;
        room.as_ref().map_or(Ok(()), |room| room.check(workers)).map_err(&refused)?;
        let prefetch = |workers| match (spec.claim_ahead(), room) {
            (ClaimAhead::Never, _) => Prefetch::Off,
            (ClaimAhead::WhenShort, None) => Prefetch::usual(workers),
            (ClaimAhead::WhenShort, Some(room)) => Prefetch::within(room.most),
        };
        self.fill_in(defaults.overrides, spec.account());
        let pool = self.configure(store, executor, usual, prefetch)?;
        // The start of a child is on disk before the child exists.
        let beginning = ostler_runtime::StartMode::Durable;
        Ok(PoolConfig { beginning, unpriced: spec.unpriced(None), ..pool })
    }

    #[cfg(feature = "process")]
    fn has_budget(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, QueueChange::Budget(Some(_))))
    }

    /// Sets timeout, retries and account as far as the builder was not given them.
    #[cfg(feature = "process")]
    fn fill_in(&mut self, defaults: Overrides, account: Option<String>) {
        let (mut has_overrides, mut has_account) = (false, false);
        for change in &mut self.changes {
            if let QueueChange::Overrides(said) = change {
                *said = said.or(&defaults);
                has_overrides = true;
            }
            has_account |= matches!(change, QueueChange::Account(_));
        }
        if !has_overrides && defaults != Overrides::NONE {
            self.changes.push(QueueChange::Overrides(defaults));
        }
        if account.is_some() && !has_account {
            self.changes.push(QueueChange::Account(account));
        }
    }

    fn configure(
        self,
        store: &Arc<dyn Store>,
        executor: Arc<dyn Executor>,
        usual: usize,
        prefetch: impl FnOnce(usize) -> Prefetch,
    ) -> Result<PoolConfig, OpenError> {
        let secrets = self.secrets.into_secrets();
        let secrets = secrets.map_err(|error| ostler_store::Error::invalid(error.to_string()))?;
        let workers = self.workers.unwrap_or(usual);
        let size = PoolSize::between(self.least.unwrap_or(workers), workers);
        Ok(PoolConfig {
            worker_name: self.worker_name.unwrap_or_else(|| self.queue.clone()),
            grace: self.grace,
            prefetch: prefetch(workers),
            size: PoolSize {
                scale_up_at: self.scale_up_at.unwrap_or(size.scale_up_at),
                idle_timeout: self.idle_timeout.unwrap_or(size.idle_timeout),
                ..size
            },
            settings: self.changes,
            unclassed: self.unclassed,
            listeners: self.callbacks.into_listeners(store),
            ..PoolConfig::new(self.queue, secrets.guard(executor), workers)
        })
    }
}
