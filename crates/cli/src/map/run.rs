//! Runs a map job: finds or creates it, enqueues its items, serves its queue, and prints the summary.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_config::Resources;
use ostler_core::{Budget, JobId, Policy, StateName, cut};
use ostler_ops::jobs::former::{ChosenJob, FormerRuns, choose};
use ostler_ops::jobs::plan::{JobPlan, enqueue};
use ostler_ops::jobs::{self, JobPool, JobSpec, JobTotals, ServedBy, manage};
use ostler_ops::{OpsError, budgets};
use ostler_process::Command;
use ostler_process::supervisor::{Containment, Supervisor};
use ostler_runtime::{EndListener, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, StartError, TakeOver};
use ostler_store::calls::QueueChange;
use ostler_store::jobs::{JobRecord, queue_of};
use ostler_store::{Clock as _, MAX_NAME_BYTES, Store, SystemClock};
use ostler_wire::job::{JobAction, JobActionView};
use tokio::sync::mpsc;

use super::allowance::AllowanceWatch;
use super::budget::{self, BudgetAnswer};
use super::command::{policy, pool_of};
use super::former::remark;
use super::halt::{Halt, HaltMode};
use super::pilot::{self, PilotAnswer};
use super::pool;
use super::progress::{MapProgress, again};
use super::report::{ItemLines, LineTags, OutputOrder, Printer, Reporter};
use super::results::Target;
use super::table::LiveTable;
use super::tally::{CountedItems, Tally};
use super::unserved::KindWatch;
use super::watch::{MapEnd, Watch};
use crate::args::Map;
use crate::commands::machine;
use crate::config::PoolSettings;
use crate::exit::{Code, refused, say};
use crate::leftovers::{Leftovers, mark_of};
use crate::print::{Format, Out};
use crate::store_location::{IfMissing, OpenMode, StoreLocation, refusal};
use crate::up::{Signals, make_room, pools, sandbox, start_supervisor};

/// The capacity of the channel for store events.
const MAX_NEWS: usize = 16;
/// The pause before items are enqueued again, while the store is unavailable.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the removal of leftovers may take.
const MAX_SWEEP: Duration = Duration::from_secs(5);
/// How long running items may take to finish after a halt with `soon`.
const SOON: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) struct Mapping<'a> {
    pub(crate) map: &'a Map,
    pub(crate) plan: Arc<JobPlan>,
    /// The pool that runs the items here; `None`: a command does, or a node.
    pub(crate) pool: Option<MapPool>,
    pub(crate) place: StoreLocation,
    pub(crate) out: Out,
}

/// A pool that runs the items of a job in this process.
pub(crate) struct MapPool {
    pub(crate) settings: PoolSettings,
    pub(crate) containment: Containment,
}

/// What became of a job while this process served it.
enum ServeEnd {
    Over(Code),
    /// The items of its pilot have ended.
    Piloted,
    /// Its budget is reached, for this reason.
    Spent(String),
}

impl Mapping<'_> {
    pub(crate) async fn run(self) -> anyhow::Result<Code> {
        let target = self.map.results.as_deref().map(Target::of).transpose()?;
        let mut signals = Signals::listen()?;
        // While this process is small: the supervisor is a copy of it.
        let containment = self.pool.as_ref().map_or(Containment::Auto, |pool| pool.containment);
        let supervisor = if self.map.detach { None } else { Some(start_supervisor(containment).await?) };
        if let Some(MapPool { settings, .. }) = &self.pool {
            let source =
                if self.map.agent.is_some() { pool::PoolSource::Agent } else { pool::PoolSource::Config };
            if self.map.max_cost.is_some() {
                budgets::check_priced(settings.executor.unpriced(self.map.model.as_deref()))
                    .map_err(OpsError::from)?;
            }
            pool::check(settings, source).await?;
        }
        let given = self.map.jobs.map(u32::from);
        let jobs = if self.is_of_pool() { given } else { Some(given.unwrap_or_else(cores)) };
        if supervisor.is_some() {
            let workers = jobs.or(self.pool.as_ref().map(|pool| pool.settings.scale.max));
            make_room(workers.and_then(|workers| usize::try_from(workers).ok()).unwrap_or(usize::MAX))?;
        }
        let stay = if self.map.detach { OpenMode::Brief } else { OpenMode::Long };
        let store = self.place.open_for(stay, IfMissing::Make).await?.store();
        if self.map.detach
            && self.map.max_cost.is_some()
            && let Some(pool) = self.plan.pool().and_then(JobPool::priced_by)
        {
            budgets::check(store.as_ref(), &[pool]).await?;
        }
        let served_by = if self.map.detach { ServedBy::Node } else { ServedBy::Mapper };
        let attempts = self.map.retries.map(|retries| retries + 1);
        let attempts = if self.is_of_pool() { attempts } else { Some(attempts.unwrap_or(1)) };
        let delay_ms = self.map.delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        let spec = JobSpec { delay_ms, ..self.plan.spec(served_by, jobs, attempts) };
        // What agents and models did was paid for: a complete job of it is enough.
        let once = self.map.once || spec.pool.as_ref().is_some_and(JobPool::is_paid);
        let runs = match (self.map.fresh, once) {
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
        if let Some(total) = self.map.max_cost {
            let budget = Budget { total: Some(total), reserve: self.map.reserve, ..Budget::default() };
            store.configure(&queue_of(job), vec![QueueChange::Budget(Some(budget))]).await?;
        }
        match supervisor {
            None => self.leave(store.as_ref(), job).await,
            Some(supervisor) => {
                let done = self.serve_all(&store, &supervisor, job, &spec, target, &mut signals).await;
                supervisor.stop().await;
                if self.is_of_pool() || self.plan.item_folders().is_some() {
                    self.sweep(store.as_ref()).await;
                }
                done
            }
        }
    }

    /// Removes what was kept for tasks that were pruned since: there may be no node that does.
    async fn sweep(&self, store: &dyn Store) {
        let pools = self.pool.as_ref().map(|pool| slice::from_ref(&pool.settings)).unwrap_or_default();
        let leftovers = Leftovers::new(pools, self.place.url());
        // What is not done in time, or without the store, is done another time.
        let _ = tokio::time::timeout(MAX_SWEEP, leftovers.sweep(store)).await;
    }

    /// Whether a pool runs the items, here or on a node.
    fn is_of_pool(&self) -> bool {
        self.map.pool.is_some() || self.map.agent.is_some()
    }

    /// Serves a job, and once more if its pilot is approved.
    async fn serve_all(
        &self,
        store: &Arc<dyn Store>,
        supervisor: &Supervisor,
        job: JobId,
        now: &JobSpec,
        target: Option<Target>,
        signals: &mut Signals,
    ) -> anyhow::Result<Code> {
        let record = jobs::existing(store.as_ref(), job).await?;
        let stored: JobSpec = serde_json::from_str(&record.job.spec)?;
        // How items run is up to this command, not to the one that created the job.
        let spec = JobSpec { jobs: now.jobs, attempts: now.attempts, delay_ms: now.delay_ms, ..stored };
        loop {
            let format = self.out.format();
            match self.serve(store, supervisor, job, &spec, target.as_ref(), signals).await? {
                ServeEnd::Over(code) => return Ok(code),
                ServeEnd::Piloted => {}
                ServeEnd::Spent(why) => {
                    match budget::decide(store.as_ref(), job, &why, format, signals).await? {
                        BudgetAnswer::Raised => continue,
                        BudgetAnswer::Later => return Ok(Code::NeedsApproval),
                        BudgetAnswer::Interrupted => return Ok(Code::Interrupted),
                    }
                }
            }
            let at_once = spec.jobs.or(self.pool.as_ref().map(|pool| pool.settings.scale.max)).unwrap_or(1);
            match pilot::decide(store.as_ref(), job, at_once, format, signals).await? {
                PilotAnswer::Approved => {}
                PilotAnswer::Later => return Ok(Code::NeedsApproval),
                PilotAnswer::Rejected => return Ok(Code::WorkFailed),
                PilotAnswer::Interrupted => return Ok(Code::Interrupted),
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
        &self,
        store: &Arc<dyn Store>,
        supervisor: &Supervisor,
        job: JobId,
        spec: &JobSpec,
        target: Option<&Target>,
        signals: &mut Signals,
    ) -> anyhow::Result<ServeEnd> {
        let items = self.plan.items().len() as u64 + spec.more_tasks();
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
        let lines = if self.is_of_pool() && !self.map.quiet && !progress.is_bar() {
            ItemLines::Printed
        } else {
            ItemLines::LeftOut
        };
        let tags = if self.map.tag { LineTags::Printed } else { LineTags::LeftOut };
        let printer = Printer { store: Arc::clone(store), beside: progress.beside(), order, lines, tags };
        let printing = match self.out.format() {
            Format::People => Some(tokio::spawn(printer.serve(ends))),
            Format::Json => None,
        };
        let halt = if self.map.fail_fast { Some(Halt::FIRST_FAILURE) } else { self.map.halt };
        let mut pool = self.pool_for(store, supervisor, job, spec).await?;
        let attempts = attempts_of(&pool).unwrap_or(Policy::default().retry.attempts);
        let kinds = spec.pool.as_ref().map(|asked| KindWatch::new(Arc::clone(&pool.executor), asked));
        let tally = Tally::new(halt, items, attempts, before.completed);
        pool.executor = Arc::new(CountedItems { executor: pool.executor, tally: Arc::clone(&tally) });
        pool.listeners.push(Arc::clone(&reporter) as Arc<dyn EndListener>);
        let (store_news, news) = mpsc::channel(MAX_NEWS);
        let config = NodeConfig {
            retention: self.place.keep(),
            store_news: Some(store_news),
            ..NodeConfig::new(node_name(&machine(), job), vec![pool])
        };
        let node = start(store, supervisor, config).await?;
        let enqueued = {
            let (store, plan) = (Arc::clone(store), Arc::clone(&self.plan));
            tokio::spawn(async move { enqueue_patiently(store.as_ref(), &plan, job).await })
        };
        let mut watching = Watch {
            store: store.as_ref(),
            node: &node,
            job,
            items,
            news,
            payload_bytes: self.place.bounds().payload_bytes,
            table: (self.is_of_pool() && progress.is_bar()).then(LiveTable::default),
            kinds,
            allowance: self
                .pool
                .as_ref()
                .and_then(|pool| pool.settings.account.clone())
                .map(AllowanceWatch::new),
        };
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
        watching.tell_near_limit(&progress).await;
        match over {
            MapEnd::Interrupted => {
                progress.clear();
                let running = node.running();
                if running > 0 && !self.map.quiet {
                    let items = if running == 1 { "item" } else { "items" };
                    say(&format!(
                        "stopping: waiting for {running} running {items}; Ctrl-C again to stop now"
                    ));
                }
            }
            MapEnd::Done
            | MapEnd::Piloted
            | MapEnd::Spent
            | MapEnd::Halted(_)
            | MapEnd::Cancelled
            | MapEnd::Drained => {}
        }
        let patience = match over {
            MapEnd::Halted(HaltMode::Soon) | MapEnd::Drained => SOON,
            MapEnd::Done
            | MapEnd::Piloted
            | MapEnd::Spent
            | MapEnd::Halted(HaltMode::Now)
            | MapEnd::Cancelled
            | MapEnd::Interrupted => Duration::ZERO,
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
            let record = jobs::existing(store.as_ref(), job).await?;
            let counts = record.counts;
            let cost =
                if self.is_of_pool() { JobTotals::of(store.as_ref(), &record).await?.cost } else { None };
            progress.finish(&counts, cost);
            if let Some(target) = target {
                target.write(store.as_ref(), job).await?;
            }
            if self.out.format() == Format::Json {
                self.out.json(&jobs::view(&jobs::existing(store.as_ref(), job).await?))?;
            }
            if let MapEnd::Piloted = over {
                return Ok(ServeEnd::Piloted);
            }
            if let MapEnd::Spent = over {
                return Ok(ServeEnd::Spent(record.paused.unwrap_or_default()));
            }
            if !self.map.quiet && counts.completed < items {
                say(&again(items, &counts));
            }
            Ok(ServeEnd::Over(match over {
                MapEnd::Interrupted => Code::Interrupted,
                MapEnd::Cancelled | MapEnd::Drained => Code::WorkFailed,
                MapEnd::Done | MapEnd::Halted(_) if counts.failed + counts.cancelled > 0 => Code::WorkFailed,
                MapEnd::Done | MapEnd::Halted(_) | MapEnd::Piloted | MapEnd::Spent => Code::Done,
            }))
        };
        tokio::select! {
            summed_up = sum_up => summed_up,
            () = signals.next() => std::process::exit(Code::Interrupted.number().into()),
        }
    }

    /// The pool of the job's queue, with its executor.
    async fn pool_for(
        &self,
        store: &Arc<dyn Store>,
        supervisor: &Supervisor,
        job: JobId,
        spec: &JobSpec,
    ) -> anyhow::Result<PoolConfig> {
        let Some(MapPool { settings, .. }) = &self.pool else {
            let policy = policy(spec, mark_of(self.place.url()));
            return Ok(pool_of(Arc::new(Command::of_payload(supervisor.clone(), policy)?), job, spec));
        };
        let resources = Resources::default().with(supervisor.clone()).with(mark_of(self.place.url()));
        sandbox::prove_all(slice::from_ref(settings), &resources).await?;
        pools::of_job(settings, job, spec, store, self.place.bounds(), &resources).await
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

/// The maximum number of attempts of an item, if the pool has one of its own.
fn attempts_of(pool: &PoolConfig) -> Option<u32> {
    pool.settings.iter().find_map(|change| {
        let overrides = if let QueueChange::Overrides(overrides) = change { Some(overrides) } else { None };
        overrides.and_then(|overrides| overrides.attempts)
    })
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
