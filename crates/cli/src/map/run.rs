//! Runs a map job: finds or creates it, enqueues its items, serves its queue, and prints the summary.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_core::{JobId, Overrides, StateName, cut};
use ostler_exec::Executor;
use ostler_ops::OpsError;
use ostler_ops::jobs::former::{ChosenJob, FormerRuns, choose};
use ostler_ops::jobs::plan::{JobPlan, enqueue};
use ostler_ops::jobs::{self, JobSpec, ServedBy, manage};
use ostler_process::supervisor::{Containment, Supervisor};
use ostler_process::{Command, CommandPolicy, Environment, OutputForm};
use ostler_runtime::{
    EndListener, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, Prefetch, StartError, StoreNews, TakeOver,
};
use ostler_store::calls::QueueChange;
use ostler_store::jobs::{JobRecord, queue_of};
use ostler_store::{Clock as _, MAX_NAME_BYTES, Store, SystemClock};
use ostler_wire::job::{JobAction, JobActionView};
use tokio::sync::mpsc;

use super::former::remark;
use super::halt::{Halt, HaltMode};
use super::progress::{MapProgress, again};
use super::report::{OutputOrder, Printer, Reporter};
use super::results::Target;
use super::tally::{CountedCommands, Tally};
use crate::args::Map;
use crate::commands::machine;
use crate::exit::{Code, refused, say};
use crate::print::{Format, Out};
use crate::store_location::{IfMissing, OpenMode, StoreLocation, refusal};
use crate::up::{Signals, make_room, start_supervisor};

/// The capacity of the channel for store events.
const MAX_NEWS: usize = 16;
/// Items claimed ahead for each worker, as long as they are short.
const AHEAD: usize = 8;
/// The minimum interval between two looks at the progress.
const LOOK: Duration = Duration::from_millis(10);
/// The pause before items are enqueued again, while the store is unavailable.
const PAUSE: Duration = Duration::from_millis(200);
/// The timeout of an item without --timeout: practically none.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long running items may take to finish after a halt with `soon`.
const SOON: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) struct Mapping<'a> {
    pub(crate) map: &'a Map,
    pub(crate) plan: JobPlan,
    pub(crate) place: StoreLocation,
    pub(crate) out: Out,
}

/// Why the job has stopped.
enum MapEnd {
    /// All items have finished.
    Done,
    /// The halt condition is met.
    Halted(HaltMode),
    /// The job was cancelled.
    Cancelled,
    Interrupted,
    /// Its node was asked to drain.
    Drained,
}

impl Mapping<'_> {
    pub(crate) async fn run(self) -> anyhow::Result<Code> {
        let target = self.map.results.as_deref().map(Target::of).transpose()?;
        let mut signals = Signals::listen()?;
        // While this process is small: the supervisor is a copy of it.
        let supervisor =
            if self.map.detach { None } else { Some(start_supervisor(Containment::Auto).await?) };
        let jobs = self.map.jobs.map_or_else(cores, u32::from);
        if supervisor.is_some() {
            make_room(usize::try_from(jobs).unwrap_or(usize::MAX))?;
        }
        let stay = if self.map.detach { OpenMode::Brief } else { OpenMode::Long };
        let store = self.place.open_for(stay, IfMissing::Make).await?.store();
        let served_by = if self.map.detach { ServedBy::Node } else { ServedBy::Mapper };
        let spec = self.plan.spec(served_by, jobs, self.map.retries + 1);
        let runs = match (self.map.fresh, self.map.once) {
            (true, _) => FormerRuns::Ignore,
            (false, true) => FormerRuns::Once,
            (false, false) => FormerRuns::Resume,
        };
        let ids = ostler::ids().context("cannot get random bytes from the system")?;
        let chosen = choose(store.as_ref(), &self.plan, &spec, runs, &*ids).await?;
        if let Some(remark) = remark(&chosen, SystemClock.now()) {
            self.remark(&remark);
        }
        let job = match chosen {
            ChosenJob::New(job, _) => job,
            ChosenJob::Resumed { found, .. } => found.job.id,
            ChosenJob::Enough(done) => return self.nothing_to_do(store.as_ref(), &done, target).await,
        };
        match supervisor {
            None => self.leave(store.as_ref(), job).await,
            Some(supervisor) => {
                let done = self.serve(&store, &supervisor, job, &spec, target, &mut signals).await;
                supervisor.stop().await;
                done
            }
        }
    }

    /// Everything was done in an earlier run: prints its results.
    async fn nothing_to_do(
        &self,
        store: &dyn Store,
        done: &JobRecord,
        target: Option<Target>,
    ) -> anyhow::Result<Code> {
        if let Some(target) = target {
            target.write(store, done.job.id).await?;
        }
        if self.out.format() == Format::Json {
            self.out.json(&jobs::view(done))?;
        }
        Ok(Code::Done)
    }

    fn remark(&self, sentence: &str) {
        if !self.map.quiet {
            say(sentence);
        }
    }

    /// Enqueues the items, and leaves them to a running node.
    async fn leave(&self, store: &dyn Store, job: JobId) -> anyhow::Result<Code> {
        let items = enqueue(store, &self.plan, job).await?;
        let done = JobActionView::new(job, JobAction::Enqueued, items);
        self.out.answer(&done, |_| format!("{job}\n"))?;
        Ok(Code::Done)
    }

    async fn serve(
        self,
        store: &Arc<dyn Store>,
        supervisor: &Supervisor,
        job: JobId,
        spec: &JobSpec,
        target: Option<Target>,
        signals: &mut Signals,
    ) -> anyhow::Result<Code> {
        let items = self.plan.items().len() as u64;
        let before = jobs::existing(store.as_ref(), job).await?.counts;
        let mut progress = if self.map.quiet {
            MapProgress::quiet(items)
        } else {
            MapProgress::visible(items, before.completed)
        };
        let (reporter, ends) = Reporter::new(self.plan.items().len());
        let order = if self.map.keep_order {
            OutputOrder::Kept(self.open_numbers(store.as_ref(), job).await?)
        } else {
            OutputOrder::AsTheyCome
        };
        let printer = Printer { store: Arc::clone(store), beside: progress.beside(), order };
        let printing = match self.out.format() {
            Format::People => Some(tokio::spawn(printer.serve(ends))),
            Format::Json => None,
        };
        let halt = if self.map.fail_fast { Some(Halt::FIRST_FAILURE) } else { self.map.halt };
        let tally = Tally::new(halt, items, spec.attempts, before.completed);
        let command = Command::of_payload(supervisor.clone(), policy())?;
        let executor = Arc::new(CountedCommands { command, tally: Arc::clone(&tally) });
        let listener: Arc<dyn EndListener> = Arc::clone(&reporter) as Arc<dyn EndListener>;
        let pool = PoolConfig { listeners: vec![listener], ..pool_of(executor, job, spec) };
        let (store_news, news) = mpsc::channel(MAX_NEWS);
        let config = NodeConfig {
            retention: self.place.keep(),
            store_news: Some(store_news),
            ..NodeConfig::new(node_name(&machine(), job), vec![pool])
        };
        let node = start(store, supervisor, config).await?;
        let enqueued = {
            let (store, plan) = (Arc::clone(store), self.plan);
            tokio::spawn(async move { enqueue_patiently(store.as_ref(), &plan, job).await })
        };
        let mut watching = Watch { store: store.as_ref(), node: &node, job, items, news };
        let over = tokio::select! {
            over = watching.until_over(&mut progress, enqueued) => match over {
                Ok(over) => over,
                Err(error) => {
                    node.stop_now().await;
                    return Err(error);
                }
            },
            how = tally.enough() => MapEnd::Halted(how),
            () = signals.next() => MapEnd::Interrupted,
            () = supervisor.gone() => {
                let sentence = "the supervisor process was killed; run the same command again to continue";
                return Err(refused(Code::WorkFailed, sentence));
            }
        };
        match over {
            MapEnd::Interrupted => {
                progress.clear();
                let running = node.running();
                if running > 0 && !self.map.quiet {
                    let items = if running == 1 { "item" } else { "items" };
                    say(&format!("stopping {running} {items}; interrupt again to stop at once"));
                }
            }
            MapEnd::Done | MapEnd::Halted(_) | MapEnd::Cancelled | MapEnd::Drained => {}
        }
        let patience = match over {
            MapEnd::Halted(HaltMode::Soon) | MapEnd::Drained => SOON,
            MapEnd::Done | MapEnd::Halted(HaltMode::Now) | MapEnd::Cancelled | MapEnd::Interrupted => {
                Duration::ZERO
            }
        };
        let (mut state, stopper) = (node.state(), node.stopper());
        let mut draining = std::pin::pin!(async {
            let drains = async {
                // If the node stops by itself, the channel is closed, which ends the wait too.
                let _ = state.wait_for(|state| *state != NodeState::Running).await;
                tally.drains();
            };
            tokio::join!(node.drain(patience), drains);
        });
        tokio::select! {
            () = &mut draining => {}
            () = signals.next() => {
                stopper.stop_now();
                tokio::select! {
                    () = draining => {}
                    () = signals.next() => {}
                }
                // Nothing is waited for any longer. The supervisor notices that this process has exited and kills the remaining children.
                std::process::exit(Code::Interrupted.number().into());
            }
        }
        reporter.close();
        let sum_up = async {
            if let Some(printing) = printing {
                printing.await??;
            }
            let counts = jobs::existing(store.as_ref(), job).await?.counts;
            progress.finish(&counts);
            if let Some(target) = target {
                target.write(store.as_ref(), job).await?;
            }
            if self.out.format() == Format::Json {
                self.out.json(&jobs::view(&jobs::existing(store.as_ref(), job).await?))?;
            }
            if !self.map.quiet && counts.completed < items {
                say(&again(items, &counts));
            }
            Ok(match over {
                MapEnd::Interrupted => Code::Interrupted,
                MapEnd::Cancelled | MapEnd::Drained => Code::WorkFailed,
                MapEnd::Done | MapEnd::Halted(_) if counts.failed + counts.cancelled > 0 => Code::WorkFailed,
                MapEnd::Done | MapEnd::Halted(_) => Code::Done,
            })
        };
        tokio::select! {
            summed_up = sum_up => summed_up,
            () = signals.next() => std::process::exit(Code::Interrupted.number().into()),
        }
    }

    /// The numbers of the unfinished items.
    async fn open_numbers(&self, store: &dyn Store, job: JobId) -> anyhow::Result<Vec<u64>> {
        let done: std::collections::HashSet<_> =
            manage::tasks(store, job, StateName::Completed).await?.into_iter().collect();
        let places = 0..self.plan.items().len();
        let open = places.filter(|place| !done.contains(&self.plan.task_id(job, *place)));
        Ok(open.map(|place| place as u64 + 1).collect())
    }
}

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(1)
}

/// Enqueues the items, retried while the store is unavailable.
async fn enqueue_patiently(store: &dyn Store, plan: &JobPlan, job: JobId) -> Result<u64, OpsError> {
    loop {
        match enqueue(store, plan, job).await {
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
}

/// The node of a job is a separate node, and has the job's id in its name.
fn node_name(program: &str, job: JobId) -> String {
    let job = format!(", job {job}");
    format!("{}{job}", cut(program, MAX_NAME_BYTES - job.len()))
}

async fn start(store: &Arc<dyn Store>, supervisor: &Supervisor, config: NodeConfig) -> anyhow::Result<Node> {
    let ids = ostler::ids().context("cannot get random bytes from the system")?;
    let parts = NodeDeps { store: Arc::clone(store), clock: Arc::new(SystemClock), ids };
    let node = NodeConfig {
        // If the same job is run twice at once, the newer process wins.
        take_over: TakeOver::Yes,
        guard: Some(Arc::new(supervisor.clone())),
        ..config
    };
    Node::start(parts, node).await.map_err(|error| match error {
        StartError::Store(error) => refusal(error),
        StartError::Config(_)
        | StartError::TooManySchedules { .. }
        | StartError::Differs(_)
        | StartError::Thread(_)
        | StartError::NotNew
        | StartError::Guard(_) => error.into(),
    })
}

/// As with any program started from a shell, the environment is inherited, and the output is not changed.
pub(crate) fn policy() -> CommandPolicy {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    CommandPolicy {
        environment: Environment { keep: names.collect(), set: Vec::new() },
        output: OutputForm::Exact,
        ..CommandPolicy::new(Vec::<String>::new())
    }
}

pub(crate) fn pool_of(executor: Arc<dyn Executor>, job: JobId, spec: &JobSpec) -> PoolConfig {
    let workers = usize::try_from(spec.jobs).unwrap_or(1);
    let timeout = spec.timeout_ms.map_or(NO_TIMEOUT, Duration::from_millis);
    let overrides = Overrides { attempts: Some(spec.attempts), timeout: Some(timeout), ..Overrides::NONE };
    PoolConfig {
        // No other queue waits for these workers, so short items may be claimed ahead.
        prefetch: Prefetch::UpTo(workers.saturating_mul(AHEAD)),
        settings: vec![QueueChange::Overrides(overrides)],
        worker_name: "map".to_owned(),
        ..PoolConfig::durable(queue_of(job), executor, workers)
    }
}

/// Watches a job until it has stopped.
struct Watch<'a> {
    store: &'a dyn Store,
    node: &'a Node,
    job: JobId,
    items: u64,
    news: mpsc::Receiver<StoreNews>,
}

impl Watch<'_> {
    async fn until_over(
        &mut self,
        progress: &mut MapProgress,
        mut enqueued: tokio::task::JoinHandle<Result<u64, OpsError>>,
    ) -> anyhow::Result<MapEnd> {
        let (mut ends, mut state) = (self.node.ends(), self.node.state());
        let mut changes = self.store.changes();
        let mut all_enqueued = false;
        let mut said_paused = false;
        let mut troubles = Vec::new();
        loop {
            tokio::select! {
                done = &mut enqueued, if !all_enqueued => {
                    done??;
                    all_enqueued = true;
                }
                _ = ends.changed() => {}
                Ok(()) = state.changed() => {}
                _ = changes.wait() => {}
            }
            let found = self.node.troubles();
            for trouble in found.iter().filter(|trouble| !troubles.contains(*trouble)) {
                progress.aside(|| say(trouble));
            }
            troubles = found;
            while let Ok(news) = self.news.try_recv() {
                // The program exits with that message.
                if !matches!(news, StoreNews::Gone(_)) {
                    progress.aside(|| say(&news.to_string()));
                }
            }
            if let Some(error) = self.node.store_health().gone() {
                return Err(refusal(error));
            }
            if *state.borrow_and_update() == NodeState::Draining {
                progress.aside(|| say("drain requested"));
                return Ok(MapEnd::Drained);
            }
            let record = match jobs::existing(self.store, self.job).await {
                Err(error) if error.is_transient() => continue,
                record => record?,
            };
            progress.update(&record.counts);
            if all_enqueued && record.counts.ended() >= self.items {
                return Ok(MapEnd::Done);
            }
            if record.cancelled_at.is_some() {
                return Ok(MapEnd::Cancelled);
            }
            if let Some(why) = record.paused.filter(|_| !said_paused) {
                progress.aside(|| {
                    say(&format!("the job is paused: {why}; to resume it: ostler job resume {}", self.job));
                });
                said_paused = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
