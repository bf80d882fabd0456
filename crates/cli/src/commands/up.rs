//! `ostler up`: runs a node with the pools of a config file until it is stopped.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_config::{BuildContext, ClaimAhead, Resources};
use ostler_core::Overrides;
use ostler_process::supervisor::{
    Contained, Containment, StartError as SupervisorError, Supervisor, SupervisorProgram, serve,
};
use ostler_runtime::{
    Drained, EndListener, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, PoolSize, Prefetch, StartError,
    StartMode, StoreNews, TakeOver,
};
use ostler_store::calls::QueueChange;
use ostler_store::views::QueueSettings;
use ostler_store::{Error, Store, SystemClock};
use ostler_wire::system::ReadyEvent;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::presence::Watcher;
use super::{Console, config, make_room, sandbox};
use crate::args::Up;
use crate::config::{Config, DetachedJobs, PoolSettings, Replaces, duration};
use crate::exit::{Code, refused, say};
use crate::hooks::{Hooks, Tools};
use crate::map::serve::{Going, JobServer};
use crate::print::Format;
use crate::store_location::{CONFIG_FILE, IfMissing, OpenMode, StoreLocation, refusal};

/// The first argument that makes this program a supervisor. Internal.
pub(crate) const SUPERVISOR: &str = "ostler-supervisor";
/// How long to wait for an unavailable store when a node starts.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// The interval between attempts to open the store.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How often the node is checked for problems.
const LOOK: Duration = Duration::from_secs(1);

/// The capacity of the channel for store events.
const MAX_NEWS: usize = 16;

/// Runs as the supervisor of a node's children; see [`serve`].
pub(crate) fn keep() -> anyhow::Result<Code> {
    serve()?;
    Ok(Code::Done)
}

pub(super) fn run(console: &Console, up: Up) -> anyhow::Result<Code> {
    let (file, config) = read(up.config)?;
    let place = console.place_by(|| Ok(Some(config.clone())))?.with_failover(config.failover);
    let config = sandbox::hide(config, place.url())?;
    let take_over = if up.take_over { TakeOver::Yes } else { TakeOver::No };
    let name = up.name.or_else(|| config.name.clone()).unwrap_or_else(machine);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(serve_until_told(console, &place, &file, config, name, take_over));
    // Calls that still wait for an unresponsive store are abandoned.
    runtime.shutdown_background();
    done
}

/// Reads the config. A node without pools is refused: it would do nothing.
fn read(file: Option<PathBuf>) -> anyhow::Result<(PathBuf, Config)> {
    let none = || {
        let sentence = format!(
            "no {CONFIG_FILE} here; use --config FILE, or create one: ostler config --default > {CONFIG_FILE}"
        );
        refused(Code::BadInput, sentence)
    };
    let file = file.or_else(config::here).ok_or_else(none)?;
    let config = config::required(&file)?;
    if config.pools.is_empty() && config.jobs == DetachedJobs::Left {
        let sentence = format!("{}: no pools; a node needs at least one: [pool.NAME]", file.display());
        return Err(refused(Code::BadInput, sentence));
    }
    Ok((file, config))
}

/// The host name, for a node without a configured name.
pub(crate) fn machine() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name }
}

async fn serve_until_told(
    console: &Console,
    place: &StoreLocation,
    file: &Path,
    config: Config,
    name: String,
    take_over: TakeOver,
) -> anyhow::Result<Code> {
    let mut signals = Signals::listen()?;
    // While this process is small: the supervisor is a copy of it.
    let supervisor = start_supervisor(config.containment).await?;
    let (store_news, news) = mpsc::channel(MAX_NEWS);
    tokio::spawn(say_news(news));
    let (presence, mut watcher) = config.presence.as_ref().map(Watcher::of).unzip();
    let plain = NodeConfig {
        take_over,
        presence,
        store_news: Some(store_news),
        ..NodeConfig::new(name.clone(), Vec::new())
    };
    let started = tokio::select! {
        started = start(place, &config, &supervisor, plain) => started,
        () = signals.next() => return Ok(Code::Interrupted),
    };
    let (node, store) = match started {
        Ok(started) => started,
        Err(error) => {
            supervisor.stop().await;
            return Err(error);
        }
    };
    let ready = ReadyEvent::new(node.session());
    if console.out.format() == Format::Json || !std::io::stdout().is_terminal() {
        // Write errors are ignored: the node works without a reader.
        let _ = console.out.json(&ready);
    }
    let contained = match supervisor.containment() {
        Contained::Cgroup => "control groups",
        Contained::Group => "process groups",
    };
    say(&format!(
        "node {name} ({}) is up: store {}, config {}, pools: {}, contained by {contained}",
        node.session(),
        place.name(),
        file.display(),
        pools(&config)
    ));
    if let Some(warning) = place.warning() {
        say(&warning);
    }
    let going = watch::Sender::new(Going::Not);
    let ordered = Arc::new(Notify::new());
    let jobs = serve_jobs(&config, store, name, &going, &ordered);
    let told = tokio::select! {
        () = signals.next() => StopCause::ToGo,
        () = ordered.notified() => {
            say("drain requested");
            StopCause::ToGo
        }
        why = follow(&node, watcher.as_mut()) => why,
        () = supervisor.gone() => StopCause::WithoutSupervisor,
    };
    if matches!(told, StopCause::WithoutSupervisor) {
        going.send_replace(Going::Drains);
        node.drain(Duration::ZERO).await;
        let sentence = "the supervisor process was killed, so no task can run; restart the node";
        return Err(refused(Code::WorkFailed, sentence));
    }
    let health = node.store_health();
    let drained = drain(node, jobs, &going, config.shutdown_timeout, &mut signals).await;
    supervisor.stop().await;
    if let Some(error) = health.trouble() {
        return Err(refusal(error))
            .context("the store did not accept all results; the tasks concerned will run again");
    }
    match told {
        StopCause::ToGo if drained.handed_back > 0 => {
            let patience = duration::show(config.shutdown_timeout);
            let sentence = format!(
                "some tasks did not finish within the shutdown_timeout of {patience}; they were returned to the queue"
            );
            Err(refused(Code::WorkFailed, sentence))
        }
        StopCause::ToGo => Ok(Code::Done),
        StopCause::StoreGone(error) => Err(refusal(error)),
        StopCause::Nothing | StopCause::WithoutSupervisor => {
            Err(refused(Code::WorkFailed, "the node stopped unexpectedly; restart it"))
        }
    }
}

/// Drains the node. A second signal kills running attempts; a third one exits immediately.
async fn drain(
    node: Node,
    jobs: JoinHandle<Drained>,
    going: &watch::Sender<Going>,
    patience: Duration,
    signals: &mut Signals,
) -> Drained {
    let running = match node.running() {
        1 => "1 running task".to_owned(),
        many => format!("{many} running tasks"),
    };
    say(&format!(
        "draining: waiting up to {} for {running}; signal again (Ctrl-C) to stop now",
        duration::show(patience)
    ));
    going.send_replace(Going::Drains);
    let stopper = node.stopper();
    let mut draining = std::pin::pin!(async {
        let (pools, jobs) = tokio::join!(node.drain(patience), jobs);
        let jobs = jobs.unwrap_or_default();
        let (finished, handed_back) = (pools.finished + jobs.finished, pools.handed_back + jobs.handed_back);
        say(&format!("stopped: {finished} tasks finished, {handed_back} returned to the queue"));
        Drained { finished, handed_back }
    });
    tokio::select! {
        drained = &mut draining => return drained,
        () = signals.next() => {}
    }
    say("second signal: killing running tasks and returning them to the queue");
    going.send_replace(Going::AtOnce);
    stopper.stop_now();
    tokio::select! {
        _ = draining => {}
        () = signals.next() => {}
    }
    // Nothing is waited for any longer. The supervisor notices that this process has exited and kills the remaining children.
    std::process::exit(Code::Interrupted.number().into());
}

/// Serves jobs of `ostler map --detach`, if the config enables it, until the node exits.
fn serve_jobs(
    config: &Config,
    store: Arc<dyn Store>,
    name: String,
    going: &watch::Sender<Going>,
    ordered: &Arc<Notify>,
) -> JoinHandle<Drained> {
    let (containment, keep, patience) = (config.containment, config.keep, config.shutdown_timeout);
    let presence = config.presence.clone();
    match config.jobs {
        DetachedJobs::Served => {
            let ordered = Arc::clone(ordered);
            let server = JobServer { store, name, containment, keep, patience, presence, ordered };
            tokio::spawn(server.serve(going.subscribe()))
        }
        DetachedJobs::Left => tokio::spawn(std::future::ready(Drained::default())),
    }
}

/// Prints store events.
async fn say_news(mut news: mpsc::Receiver<StoreNews>) {
    while let Some(news) = news.recv().await {
        match news {
            StoreNews::Away(_) | StoreNews::Back { .. } | StoreNews::Refused(_) => say(&news.to_string()),
            // The program exits with this message.
            StoreNews::Gone(_) => {}
        }
    }
}

pub(crate) async fn start_supervisor(containment: Containment) -> Result<Supervisor, SupervisorError> {
    let program = SupervisorProgram { containment, ..SupervisorProgram::this([SUPERVISOR]) };
    Supervisor::start(program, Vec::new()).await
}

/// Why a node stops.
enum StopCause {
    ToGo,
    /// The node stopped without a request.
    Nothing,
    /// The supervisor is gone, so no child can be started.
    WithoutSupervisor,
    /// The store will not come back.
    StoreGone(Error),
}

/// Prints changes of the node's state until it is asked to drain or stops.
async fn follow(node: &Node, mut presence: Option<&mut Watcher>) -> StopCause {
    let mut state = node.state();
    let mut session = node.session();
    let mut fenced = false;
    let mut troubles = Vec::new();
    loop {
        // A timeout and a change are handled alike.
        let _ = tokio::time::timeout(LOOK, state.changed()).await;
        match *state.borrow_and_update() {
            NodeState::Draining => {
                if let Some(error) = node.store_health().gone() {
                    return StopCause::StoreGone(error);
                }
                say("drain requested");
                return StopCause::ToGo;
            }
            NodeState::Ended => return StopCause::Nothing,
            NodeState::Fenced if !fenced => {
                say("the node could not renew its leases: it has stopped its tasks and will rejoin");
                fenced = true;
            }
            NodeState::Fenced => {}
            // The fenced state may have been too short to be observed; a new session reveals it.
            NodeState::Running if node.session() != session => {
                session = node.session();
                fenced = false;
                say(&format!("the node lost its leases and rejoined as {session}"));
            }
            NodeState::Running => {}
        }
        if let Some(presence) = &mut presence {
            presence.look();
        }
        let found = node.troubles();
        found.iter().filter(|trouble| !troubles.contains(*trouble)).for_each(|trouble| say(trouble));
        troubles = found;
    }
}

async fn start(
    place: &StoreLocation,
    config: &Config,
    supervisor: &Supervisor,
    plain: NodeConfig,
) -> anyhow::Result<(Node, Arc<dyn Store>)> {
    let resources = Resources::default().with(supervisor.clone());
    let mut pools: Vec<PoolConfig> =
        config.pools.iter().map(|pool| pool_of(pool, &resources)).collect::<anyhow::Result<_>>()?;
    make_room(pools.iter().map(|pool| pool.size.max).sum())?;
    let store = open(place).await?;
    let tools = Tools { supervisor: supervisor.clone(), store: Arc::clone(&store), bounds: place.bounds() };
    sandbox::prove_all(&config.pools, &resources).await?;
    let mut replaced = Vec::new();
    for (pool, said) in pools.iter_mut().zip(&config.pools) {
        let before = store.queue_settings(&said.name).await.map_err(refusal)?;
        let limits = said.limits.bring(&before);
        match limits.replaces {
            Replaces::SetByHand => replaced.push(said.name.as_str()),
            Replaces::Nothing => {}
        }
        pool.settings.extend(limits.changes);
        pool.settings.extend(kinds(&before, said));
        pool.listeners = listener(said, &tools)?.into_iter().collect();
    }
    let ids = ostler::ids().context("cannot get random bytes from the system")?;
    let parts = NodeDeps { store: Arc::clone(&store), clock: Arc::new(SystemClock), ids };
    let gauge = ostler_process::Gauge::default();
    let node = NodeConfig {
        lease: config.lease,
        retention: config.keep,
        schedules: config.schedules.clone(),
        // The supervisor holds the liveness lock too: the node counts as dead only after its children are gone.
        guard: Some(Arc::new(supervisor.clone())),
        memory: Arc::new(move || gauge.memory()),
        pools,
        ..plain
    };
    let node = Node::start(parts, node).await.map_err(|error| match error {
        StartError::Config(_) | StartError::TooManySchedules { .. } => {
            refused(Code::BadInput, error.to_string())
        }
        StartError::Differs(_) => refused(Code::BadInput, format!("{error} (--take-over)")),
        StartError::Store(error) => refusal(error),
        StartError::Thread(_) | StartError::NotNew | StartError::Guard(_) => error.into(),
    })?;
    for queue in replaced {
        say(&format!("the config's limits for {queue} have replaced those set with \"ostler queue set\""));
    }
    Ok((node, store))
}

/// Settings of kinds; those of kinds that the config no longer has are removed.
fn kinds(before: &QueueSettings, pool: &PoolSettings) -> Vec<QueueChange> {
    let gone = before.kinds.keys().filter(|kind| !pool.kinds.contains_key(*kind));
    let gone = gone.map(|kind| QueueChange::KindOverrides(kind.clone(), Overrides::NONE));
    let said = pool.kinds.iter().map(|(kind, said)| QueueChange::KindOverrides(kind.clone(), *said));
    gone.chain(said).collect()
}

fn pool_of(pool: &PoolSettings, resources: &Resources) -> anyhow::Result<PoolConfig> {
    let executor = pool
        .executor
        .build(BuildContext { pool: &pool.name, resources })
        .map_err(|error| refused(Code::BadInput, format!("pool.{}: {error}", pool.name)))?;
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
        settings: vec![QueueChange::Overrides(pool.overrides)],
        unclassed: pool.unclassed,
        ..PoolConfig::new(pool.name.clone(), executor, size.max)
    })
}

/// The pool's hooks, as the listener for its outcomes.
fn listener(pool: &PoolSettings, tools: &Tools) -> anyhow::Result<Option<Arc<dyn EndListener>>> {
    let hooks = Hooks::arm(&pool.on_failed, tools)
        .map_err(|error| refused(Code::BadInput, format!("pool.{}.on_failed: {error}", pool.name)))?;
    Ok(hooks.map(|hooks| Arc::new(hooks) as Arc<dyn EndListener>))
}

/// Opens the store. A store that is unavailable for a short time is waited for, with a message.
async fn open(place: &StoreLocation) -> anyhow::Result<Arc<dyn Store>> {
    place.prepare(IfMissing::Make)?;
    let until = Instant::now() + START_PATIENCE;
    let mut said = false;
    loop {
        let opening = place.try_open(OpenMode::Long, IfMissing::Make);
        let error = match tokio::time::timeout_at(until, opening).await {
            Ok(Ok(Some(opened))) => return Ok(opened.store()),
            Ok(Ok(None)) => return Err(place.absent()),
            Ok(Err(error)) => error,
            Err(_) => return Err(place.silent()),
        };
        if !error.is_transient() || Instant::now() + TRY_AGAIN > until {
            return Err(refusal(error));
        }
        if !said {
            say(&format!("{error}; retrying for {} s", START_PATIENCE.as_secs()));
            said = true;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// The pools, for people.
fn pools(config: &Config) -> String {
    let each = config.pools.iter().map(|pool| format!("{} (max {})", pool.name, pool.scale.max));
    let jobs = match config.jobs {
        DetachedJobs::Served => Some("detached jobs".to_owned()),
        DetachedJobs::Left => None,
    };
    each.chain(jobs).collect::<Vec<_>>().join(", ")
}

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of either.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
