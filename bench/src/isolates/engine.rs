//! The engine alone: calls on one thread of a process of its own, because V8 must be there before other threads.

use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ostler_core::Level;
use ostler_isolate::{
    CallInfo, EngineName, FunctionCall, FunctionHost, FunctionLimits, FunctionProgress, FunctionSource,
    FunctionWorker, HostCall, HostReply, Reuse, WarmPolicy,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::{FIB, FRESH, OURS, PAYLOAD, Row, SMALL, WARM, function_text};
use crate::Error;
use crate::child::Role;
use crate::stats::Samples;

/// Calls before a measurement.
const FIRST_CALLS: u32 = 50;

/// Calls before the memory of a warm isolate is looked at.
const WARM_CALLS: u32 = 1_000;

/// What a child has measured.
pub(super) struct Alone {
    pub(super) rows: Vec<Row>,
    /// Memory of an isolate after its first call, and of one that has run many.
    pub(super) fresh_bytes: u64,
    pub(super) warm_bytes: u64,
}

/// Measures an engine in a child.
pub(super) fn measure(engine: EngineName, time: Duration) -> Result<Alone, Error> {
    let what = format!("{} {}", engine.name(), time.as_millis());
    let child =
        Command::new(std::env::current_exe()?).args(["child", Role::Engine.name(), &what]).output()?;
    if !child.status.success() {
        return Err(String::from_utf8_lossy(&child.stderr).into_owned().into());
    }
    let mut alone = Alone { rows: Vec::new(), fresh_bytes: 0, warm_bytes: 0 };
    for line in String::from_utf8(child.stdout)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_f64().unwrap_or_default();
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        if let (Some(fresh), Some(warm)) = (row["fresh_bytes"].as_u64(), row["warm_bytes"].as_u64()) {
            (alone.fresh_bytes, alone.warm_bytes) = (fresh, warm);
            continue;
        }
        alone.rows.push(Row {
            who: format!("ostler, {}, {}", engine.name(), text("mode")),
            function: text("function").to_owned(),
            limits: OURS,
            p50_us: number("p50_us"),
            p99_us: number("p99_us"),
            per_second: number("per_second"),
            per_cpu_second: Some(number("per_cpu_second")),
        });
    }
    Ok(alone)
}

/// Runs in the child: prints a line for each row.
pub(crate) fn run_alone(what: &str) -> Result<(), Error> {
    let (name, millis) = what.split_once(' ').ok_or("an engine and a time")?;
    let engine = EngineName::ALL.into_iter().find(|engine| engine.name() == name).ok_or("no such engine")?;
    engine.prepare()?;
    let time = Duration::from_millis(millis.parse()?);
    println!("{}", memory(engine)?);
    for (mode, reuse) in [(FRESH, Reuse::Fresh), (WARM, Reuse::Warm(WarmPolicy::default()))] {
        for function in [SMALL, FIB] {
            let source = FunctionSource::single("bench.js", &function_text(function)?);
            let mut worker = FunctionWorker::new(engine.engine()?, FunctionLimits::default(), reuse);
            let mut call = || call(&mut worker, &source);
            for _ in 0..FIRST_CALLS {
                call()?;
            }
            let (began, cpu, mut samples) = (Instant::now(), thread_cpu(), Samples::default());
            while began.elapsed() < time {
                let start = Instant::now();
                call()?;
                samples.add(start.elapsed());
            }
            let (wall, cpu) = (began.elapsed().as_secs_f64(), thread_cpu() - cpu);
            let calls = samples.len() as f64;
            let micros = |percent| samples.percentile(percent).as_secs_f64() * 1e6;
            println!(
                "{}",
                json!({
                    "mode": mode, "function": function, "p50_us": micros(50), "p99_us": micros(99),
                    "per_second": calls / wall, "per_cpu_second": calls / cpu,
                })
            );
        }
    }
    Ok(())
}

fn call(worker: &mut FunctionWorker, source: &FunctionSource) -> Result<(), Error> {
    let call = FunctionCall::new(PAYLOAD, CallInfo::default(), Rc::new(NoHost));
    worker.run(source, call).map_err(|end| end.to_string())?.ok_or("no output")?;
    Ok(())
}

/// What one isolate holds, as it counts itself: heap, strings and buffers.
fn memory(engine: EngineName) -> Result<Value, Error> {
    let source = FunctionSource::single("bench.js", &function_text(SMALL)?);
    let warm = Reuse::Warm(WarmPolicy::default());
    let mut worker = FunctionWorker::new(engine.engine()?, FunctionLimits::default(), warm);
    call(&mut worker, &source)?;
    let fresh = worker.warm_memory_bytes();
    for _ in 0..WARM_CALLS {
        call(&mut worker, &source)?;
    }
    Ok(json!({ "fresh_bytes": fresh, "warm_bytes": worker.warm_memory_bytes() }))
}

/// The CPU time of this thread in seconds.
fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The functions of the benchmark ask nothing.
struct NoHost;

impl FunctionHost for NoHost {
    fn log(&self, _level: Level, _line: &str) {}
    fn progress(&self, _progress: &FunctionProgress) {}
    fn secret(&self, _name: &str) -> Option<String> {
        None
    }
    fn call(&self, _call: HostCall, _reply: HostReply) {}
}
