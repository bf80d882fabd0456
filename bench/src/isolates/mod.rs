//! JavaScript functions, compared with other runtimes: the engine alone, the executor in hosts and on threads, the executor of processes
//! with a worker that does nothing, Node's `vm` and worker threads, and workerd. All call the same function texts with the same payload.
//!
//! Who has limits switched on is a column. What is one thread's work is counted by its CPU time as well, because the machine may be busy.

mod engine;
mod peers;
mod side_by_side;
mod through;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_isolate::EngineName;

use crate::workers::Beside;
use crate::{Bench, Error, Place, Scale, machine};
use peers::Peers;

pub(crate) use engine::run_alone;

/// The requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How long each row is measured.
    pub(crate) millis: u64,
    pub(crate) peers: Beside,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { millis: DEFAULT_MILLIS, peers: Beside::Peers }
    }
}

/// How long each row is measured by default.
const DEFAULT_MILLIS: u64 = 2_000;

/// How many of what is counted, not timed, belong to a row: all of them by default, and fewer in a run that is shorter.
fn share(of: u32, time: Duration) -> u32 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(DEFAULT_MILLIS);
    let share = u64::from(of) * millis / DEFAULT_MILLIS;
    u32::try_from(share).unwrap_or(of).max(1)
}

/// The functions: files in `bench/peers/isolates/functions`.
const SMALL: &str = "small";
const FIB: &str = "fib";
const NOOP: &str = "noop";
/// What functions are called with.
const PAYLOAD: &str = r#"{"name":"ostler","items":[1,2,3,4,5]}"#;
/// The limits of ours.
const OURS: &str = "memory, CPU, wall, stack, output, logs, timers";

/// Whether calls share an isolate, as a word.
const FRESH: &str = "fresh";
const WARM: &str = "warm";

/// One measured row.
#[derive(Clone, Debug, Default)]
struct Row {
    who: String,
    function: String,
    limits: &'static str,
    p50_us: f64,
    p99_us: f64,
    per_second: f64,
    /// `None` where several threads or processes work.
    per_cpu_second: Option<f64>,
}

impl Row {
    fn print(&self) {
        let cpu = self.per_cpu_second.map_or_else(String::new, |rate| format!("{rate:.0}"));
        println!(
            "| {} | {} | {} | {:.0} µs | {:.0} µs | {:.0} | {cpu} |",
            self.who, self.function, self.limits, self.p50_us, self.p99_us, self.per_second
        );
    }
}

fn heading(title: &str) {
    println!("\n{title}; load {}\n", machine::load());
    println!("| who | function | limits on | p50 | p99 | calls/s | calls per CPU second |");
    println!("|---|---|---|---:|---:|---:|---:|");
}

/// The engines of this build.
fn engines() -> impl Iterator<Item = EngineName> {
    EngineName::ALL.into_iter().filter(|engine| engine.missing().is_none())
}

/// The folder with the programs of all sides.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/isolates")
}

fn function_text(name: &str) -> Result<String, Error> {
    Ok(std::fs::read_to_string(programs().join(format!("functions/{name}.js")))?)
}

/// Measures, and prints tables.
pub(crate) fn run(wanted: &Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let bench = Bench::new(Scale::QUICK, None)?;
    let under = dir.unwrap_or_else(machine::default_dir);
    let place = Place::new(&under)?;
    let peers = match wanted.peers {
        Beside::Peers => Peers::set_up(&under),
        Beside::None => Peers::default(),
    };
    let time = Duration::from_millis(wanted.millis);
    heading("One thread, without a host");
    let mut memory = Vec::new();
    for engine in engines() {
        let alone = engine::measure(engine, time)?;
        alone.rows.iter().for_each(Row::print);
        memory.push((engine, alone));
    }
    peers.contexts(time)?.iter().for_each(Row::print);
    println!("\n| engine | memory of an isolate after its first call | after 1,000 more |");
    println!("|---|---:|---:|");
    for (engine, alone) in memory {
        let kib = |bytes: u64| bytes / 1024;
        println!("| {} | {} KiB | {} KiB |", engine.name(), kib(alone.fresh_bytes), kib(alone.warm_bytes));
    }
    heading("Through the executor, without a store, one worker");
    bench.runtime.block_on(through::executors(time))?.iter().for_each(Row::print);
    peers.programs(time)?.iter().for_each(Row::print);
    bench.runtime.block_on(side_by_side::run(time))?;
    bench.runtime.block_on(through::others(&place, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_counts_less_and_a_long_one_no_more() {
        let shares = [1, 20, 1_000, 2_000, 5_000].map(|millis| share(1_000, Duration::from_millis(millis)));
        assert_eq!(shares, [1, 10, 500, 1_000, 1_000]);
    }
}
