//! A node as a program: services that are started in order, followed until the node is to stop, and stopped in reverse.
//!
//! - `service.rs`: the list of services. `supervisor.rs`, `node.rs`, `jobs.rs`, `leftovers.rs`, `api.rs`: one service each. `store.rs`: opens the store.
//! - `pools.rs`: the pools of the config, with executors and hooks. `sandbox.rs`: their sandboxes are tested before anything runs in them.
//! - `hosts.rs`: this program as a host of functions. `watch.rs`: restarts workers when their files change.
//! - `presence.rs`: whether the presence in Redis works. `signals.rs`: SIGTERM and SIGINT. `descriptors.rs`: the limit of open files.

mod api;
mod descriptors;
mod hosts;
mod jobs;
pub(crate) mod leftovers;
mod metrics;
mod node;
mod notify;
pub(crate) mod pools;
mod presence;
pub(crate) mod sandbox;
mod service;
mod signals;
mod store;
mod supervisor;
#[cfg(test)]
mod tests;
mod watch;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_config::Resources;
use ostler_core::AccountChange;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{Drained, NodeConfig, NodeHandle, TakeOver};

use crate::config::{Config, duration};
use crate::exit::{Code, refused, say};
use crate::leftovers::{Leftovers, mark_of};
use crate::log;
use crate::map::serve::JobServer;
use crate::store_location::{StoreLocation, refusal};
pub(crate) use api::{ApiAddress, api_token, beside, login_address, login_link, token_file};
use api::{ApiService, ApiStart};
pub(crate) use descriptors::make_room;
pub(crate) use hosts::host_functions;
use jobs::JobService;
use leftovers::LeftoverService;
use node::{NodeService, StopCause, follow};
use notify::ServiceManager;
use presence::Watcher;
use service::Services;
pub(crate) use signals::Signals;
use supervisor::SupervisorService;
pub(crate) use supervisor::{SUPERVISOR, keep, start_supervisor};
use watch::WatchService;

/// What a node is started with.
pub(crate) struct NodePlan {
    pub(crate) place: StoreLocation,
    pub(crate) config: Config,
    pub(crate) name: String,
    pub(crate) take_over: TakeOver,
    /// The folder whose program files are watched, to restart workers when they change.
    pub(crate) watched: Option<PathBuf>,
}

/// A node that is up.
pub(crate) struct UpNode {
    pub(crate) node: NodeHandle,
    pub(crate) supervisor: Supervisor,
    /// Where its API listens; `None`: it has none.
    pub(crate) api: Option<ApiAddress>,
    presence: Option<Watcher>,
}

/// Runs a node until it is stopped; `announce` is called when it is up.
pub(crate) async fn serve(plan: NodePlan, announce: impl FnOnce(&NodePlan, &UpNode)) -> anyhow::Result<Code> {
    let mut signals = Signals::listen()?;
    let mut services = Services::default();
    let started = tokio::select! {
        started = start(&plan, &mut services) => Some(started),
        () = signals.next() => None,
    };
    let mut up = match started {
        Some(Ok(up)) => up,
        unfinished @ (None | Some(Err(_))) => {
            services.stop(Duration::ZERO).await;
            return unfinished.map_or(Ok(Code::Interrupted), |started| started.map(|_| Code::Done));
        }
    };
    announce(&plan, &up);
    let manager = ServiceManager::here();
    manager.iter().for_each(ServiceManager::ready);
    // It is told on while the node drains.
    let _pings = manager.as_ref().and_then(|manager| manager.watch(up.node.clone()));
    let patience = plan.config.shutdown_timeout;
    let cause = tokio::select! {
        () = signals.next() => StopCause::Signalled,
        why = follow(&up.node, up.presence.as_mut(), patience) => why,
        () = up.supervisor.gone() => StopCause::WithoutSupervisor,
    };
    manager.iter().for_each(ServiceManager::stopping);
    if matches!(cause, StopCause::WithoutSupervisor) {
        services.stop(Duration::ZERO).await;
        let sentence = "the supervisor process was killed, so no task can run; restart the node";
        return Err(refused(Code::WorkFailed, sentence));
    }
    let left = match cause {
        StopCause::Drained { left } => left,
        StopCause::Signalled
        | StopCause::Nothing
        | StopCause::WithoutSupervisor
        | StopCause::StoreGone(_) => patience,
    };
    let drained = drain(&up.node, &mut services, left, &mut signals).await;
    if let Some(error) = up.node.store_health().trouble() {
        return Err(refusal(error))
            .context("the store did not accept all results; the tasks concerned will run again");
    }
    match cause {
        StopCause::Signalled | StopCause::Drained { .. } if drained.handed_back > 0 => {
            let patience = duration::show(patience);
            let sentence = format!(
                "some tasks did not finish within the shutdown_timeout of {patience}; they were returned to the queue"
            );
            Err(refused(Code::WorkFailed, sentence))
        }
        StopCause::Signalled | StopCause::Drained { .. } => Ok(Code::Done),
        StopCause::StoreGone(error) => Err(refusal(error)),
        StopCause::Nothing | StopCause::WithoutSupervisor => {
            Err(refused(Code::WorkFailed, "the node stopped unexpectedly; restart it"))
        }
    }
}

/// Starts the services in order. What was started before an error stays in the list.
async fn start(plan: &NodePlan, services: &mut Services) -> anyhow::Result<UpNode> {
    let NodePlan { place, config, name, take_over, watched } = plan;
    // While this process is small: the supervisor is a copy of it.
    let supervisor = start_supervisor(config.containment).await?;
    services.started(SupervisorService(supervisor.clone()));
    let resources = Resources::default().with(supervisor.clone()).with(mark_of(place.url()));
    let mut pools = pools::build(&config.pools, &resources)?;
    make_room(pools.iter().map(|pool| pool.size.max).sum())?;
    let bound = api::bind(plan).await?;
    let store = store::open(place).await?;
    sandbox::prove_all(&config.pools, &resources).await?;
    let replaced = pools::complete(&mut pools, &config.pools, &store, place.bounds(), &resources).await?;
    let (announced, presence) = config.presence.as_ref().map(Watcher::of).unzip();
    let plain = NodeConfig {
        take_over: *take_over,
        presence: announced,
        metrics: bound.metrics(),
        ..NodeConfig::new(name.clone(), Vec::new())
    };
    let node = NodeService::start(config, pools, Arc::clone(&store), &resources, plain).await?;
    let handle = node.handle();
    services.started(node);
    for account in &config.accounts {
        let change = AccountChange::Cap(account.concurrency);
        store.change_account(&account.name, change).await.map_err(refusal)?;
    }
    for queue in replaced {
        say(&format!("the config's limits for {queue} have replaced those set with \"ostler queue set\""));
    }
    if let Some(folder) = watched {
        let pools = config.pools.iter().map(|pool| pool.name.clone()).collect();
        services.started(WatchService::start(folder.clone(), pools, Arc::clone(&store)));
    }
    let leftovers = Leftovers::new(&config.pools, place.url());
    services.started(LeftoverService::start(leftovers, Arc::clone(&store)));
    services.started(JobService::start(JobServer {
        store: Arc::clone(&store),
        node: handle.clone(),
        supervisor: supervisor.clone(),
        patience: config.shutdown_timeout,
        pools: config.pools.clone().into(),
        resources,
        prices: Arc::clone(&config.prices),
        commands: config.jobs,
        place: place.clone(),
    }));
    let api = match bound {
        ApiStart::Serve(bound) => {
            let (service, address) =
                ApiService::start(plan, bound, Arc::clone(&store), &handle, &supervisor)?;
            services.started(service);
            Some(address)
        }
        ApiStart::Taken => {
            api::name_holder(store.as_ref()).await;
            None
        }
        ApiStart::None => None,
    };
    Ok(UpNode { node: handle, supervisor, api, presence })
}

/// Stops all services. A second signal kills running attempts; a third one exits immediately.
async fn drain(
    node: &NodeHandle,
    services: &mut Services,
    patience: Duration,
    signals: &mut Signals,
) -> Drained {
    if std::io::stderr().is_terminal() {
        say("signal again (Ctrl-C) to stop now");
    }
    let mut draining = std::pin::pin!(services.stop(patience));
    tokio::select! {
        drained = &mut draining => return drained,
        () = signals.next() => {}
    }
    say("second signal: killing running tasks and returning them to the queue");
    node.stopper().stop_now();
    tokio::select! {
        _ = draining => {}
        () = signals.next() => {}
    }
    log::flush();
    // Nothing is waited for any longer. The supervisor notices that this process has exited and kills the remaining children.
    std::process::exit(Code::Interrupted.number().into());
}
