//! Functions through the executor: in hosts and on threads; with a store; many functions in rotation; and the memory of a host.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Outcome, TaskId, WorkerId};
use ostler_exec::{Control, Executor, Work, WorkerFate, WorkerOpening, event_channel};
use ostler_isolate::{EngineName, HostProgram, IsolateExecutor, IsolatePolicy, Isolation, Reuse, WarmPolicy};
use ostler_process::Process;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{PoolConfig, PoolSize};

use super::{FIB, FRESH, NOOP, OURS, PAYLOAD, Row, SMALL, WARM, engines, programs, share};
use crate::child::Role;
use crate::load::QUEUE;
use crate::node::drained;
use crate::stats::Samples;
use crate::workers::{js_worker, python_worker, supervisor};
use crate::{Error, Place};

/// Calls before a measurement.
const FIRST_CALLS: u32 = 50;
/// Functions in rotation, in a run of the default length.
const FUNCTIONS: u32 = 1_000;
/// Tasks that a node drains in such a run.
const DURABLE_TASKS: u32 = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn policy(scripts: &Path, engine: EngineName, isolation: Isolation, mode: &str) -> IsolatePolicy {
    let reuse = if mode == WARM { Reuse::Warm(WarmPolicy::default()) } else { Reuse::Fresh };
    let argv = ["/proc/self/exe", "child", Role::Host.name(), "-"].map(str::to_owned).to_vec();
    let program = HostProgram { argv, env: Vec::new() };
    IsolatePolicy { engine, isolation, reuse, program, ..IsolatePolicy::new("bench", scripts) }
}

pub(super) fn executor(policy: &IsolatePolicy, supervisor: &Supervisor) -> Result<Arc<dyn Executor>, Error> {
    Ok(match policy.isolation {
        Isolation::Process => IsolateExecutor::in_hosts(policy, supervisor.clone())?,
        Isolation::Thread => IsolateExecutor::on_threads(policy)?,
    })
}

/// Every engine and isolation, and workers that do nothing.
pub(super) async fn executors(time: Duration) -> Result<Vec<Row>, Error> {
    let supervisor = supervisor().await?;
    let scripts = programs().join("functions");
    let mut rows = Vec::new();
    for (engine, isolation) in sides() {
        for mode in [FRESH, WARM] {
            let executor = executor(&policy(&scripts, engine, isolation, mode), &supervisor)?;
            let who = format!("ostler, {}, {}, {mode}", engine.name(), isolation.name());
            for function in [NOOP, SMALL, FIB] {
                rows.push(measure(&executor, &who, function, OURS, time).await?);
            }
        }
    }
    for (who, policy) in [("JavaScript", js_worker()), ("Python", python_worker())] {
        let process: Arc<dyn Executor> = Arc::new(Process::new(supervisor.clone(), policy)?);
        let who = format!("ostler, worker process, {who}");
        rows.push(measure(&process, &who, NOOP, "wall", time).await?);
    }
    supervisor.stop().await;
    Ok(rows)
}

fn sides() -> impl Iterator<Item = (EngineName, Isolation)> {
    let on_threads = [(EngineName::QuickJs, Isolation::Thread)];
    engines().map(|engine| (engine, Isolation::Process)).chain(on_threads)
}

/// One worker, called until the time is over.
async fn measure(
    executor: &Arc<dyn Executor>,
    who: &str,
    function: &str,
    limits: &'static str,
    time: Duration,
) -> Result<Row, Error> {
    let mut worker = OneWorker::open(executor).await?;
    for _ in 0..FIRST_CALLS {
        worker.call(function).await?;
    }
    let (began, mut samples) = (Instant::now(), Samples::default());
    while began.elapsed() < time {
        let start = Instant::now();
        worker.call(function).await?;
        samples.add(start.elapsed());
    }
    let per_second = samples.len() as f64 / began.elapsed().as_secs_f64();
    worker.close().await;
    let micros = |percent| samples.percentile(percent).as_secs_f64() * 1e6;
    Ok(Row {
        who: who.to_owned(),
        function: function.to_owned(),
        limits,
        p50_us: micros(50),
        p99_us: micros(99),
        per_second,
        per_cpu_second: None,
    })
}

/// A worker of an executor, replaced when it is spent, as a node does it: a host that has grown leaves.
pub(super) struct OneWorker {
    executor: Arc<dyn Executor>,
    id: WorkerId,
    /// Workers that were spent.
    spent: u32,
}

impl OneWorker {
    pub(super) async fn open(executor: &Arc<dyn Executor>) -> Result<Self, Error> {
        Ok(Self { executor: Arc::clone(executor), id: opened(executor).await?, spent: 0 })
    }

    pub(super) async fn call(&mut self, function: &str) -> Result<(), Error> {
        let work = Work {
            traceparent: None,
            task: TaskId(ostler_core::Id::from_bits(1)),
            token: 1,
            worker: self.id,
            attempt: 1,
            queue: "bench".into(),
            kind: function.into(),
            payload: PAYLOAD.into(),
            timeout: PATIENCE,
            grace: PATIENCE,
            folder: None,
        };
        let (said, _heard) = event_channel();
        let ended = self.executor.run(work, Control::new(said)).await;
        if ended.outcome != Outcome::Success {
            return Err(format!("a call did not succeed: {:?}", ended.outcome).into());
        }
        match ended.slot {
            WorkerFate::Reusable => {}
            WorkerFate::Spent => {
                self.executor.close(self.id).await;
                self.id = opened(&self.executor).await?;
                self.spent += 1;
            }
            WorkerFate::Dead | WorkerFate::Unresponsive => {
                return Err(format!("after a call the worker is {:?}", ended.slot).into());
            }
        }
        Ok(())
    }

    pub(super) async fn close(self) {
        self.executor.close(self.id).await;
    }
}

async fn opened(executor: &Arc<dyn Executor>) -> Result<WorkerId, Error> {
    let worker = WorkerId(ostler::ids()?());
    match executor.open(worker).await {
        WorkerOpening::Ready => Ok(worker),
        WorkerOpening::Failed(failure) => Err(failure.message.into()),
        WorkerOpening::Short(why) => Err(why.into()),
    }
}

/// What is no row: rotation, memory, and tasks that are on disk.
pub(super) async fn others(place: &Place, time: Duration) -> Result<(), Error> {
    let supervisor = supervisor().await?;
    let many = place.path().join("functions");
    std::fs::create_dir(&many)?;
    let (functions, tasks) = (share(FUNCTIONS, time), share(DURABLE_TASKS, time) as usize);
    for number in 0..functions {
        let text = format!("export default (payload) => [{number}, payload.items.length];\n");
        std::fs::write(many.join(format!("f{number}.js")), text)?;
    }
    println!(
        "\n| who | calls of {functions} functions in rotation | calls/s | memory of a host, idle after it | hosts that had grown and left | tasks/s, each on disk |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    for (engine, isolation) in sides() {
        for mode in [FRESH, WARM] {
            let name = format!("{}-{}-{mode}", engine.name(), isolation.name());
            let running = executor(&policy(&many, engine, isolation, mode), &supervisor)?;
            let mut worker = OneWorker::open(&running).await?;
            let (began, mut calls) = (Instant::now(), 0_u32);
            while began.elapsed() < time || calls < functions {
                let called = worker.call(&format!("f{}", calls % functions)).await;
                called.map_err(|error| format!("{name}, call {calls} of a rotation: {error}"))?;
                calls += 1;
            }
            let rate = f64::from(calls) / began.elapsed().as_secs_f64();
            let memory = running.vitals(worker.id).pid.and_then(resident_kib);
            let memory = memory.map_or_else(String::new, |kib| format!("{:.1} MiB", kib as f64 / 1024.0));
            let spent = worker.spent;
            worker.close().await;
            let scripts = programs().join("functions");
            let pool = PoolConfig::durable(
                QUEUE,
                executor(&policy(&scripts, engine, isolation, mode), &supervisor)?,
                2,
            );
            let pool = PoolConfig { size: PoolSize { min: 2, ..pool.size }, ..pool };
            let durable = drained(&place.path().join(format!("{name}.db")), NOOP, tasks, pool).await;
            let durable = durable.map_err(|error| format!("{name}, with a store: {error}"))?;
            println!(
                "| ostler, {}, {}, {mode} | {calls} | {rate:.0} | {memory} | {spent} | {durable:.0} (2 workers) |",
                engine.name(),
                isolation.name()
            );
        }
    }
    supervisor.stop().await;
    Ok(())
}

/// The resident memory of a process.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
}
