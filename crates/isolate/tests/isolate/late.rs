//! What a task leaves behind in a warm isolate (timers, promises, answers) never reaches the next one's events, whenever it is cancelled.
//! And what many tasks leave behind in a host: neither memory nor descriptors.
//!
//! `OSTLER_ROUNDS=1000 ./test -p ostler-isolate -- nothing_late --nocapture` makes 1,000 rounds.
//! `OSTLER_ROUNDS=200 ./test -p ostler-isolate -- rotation --nocapture` runs 1,000 functions in rotation, 200 times each.

use std::time::Duration;

use ostler_core::{Id, WorkerId};
use ostler_exec::{Control, event_channel};
use ostler_isolate::{Isolation, Reuse, WarmPolicy};

use crate::bench::{Bench, lines, output, rounds, work};
use crate::engines::{isolations, tested};

on_each_engine_async!(
    nothing_late_of_a_task_reaches_the_next,
    a_rotation_of_functions_leaves_no_memory_and_no_descriptors_behind,
);

/// Rounds of the short test.
const ROUNDS: u32 = 60;
/// Rounds and functions of a rotation: of the short test, and functions of the long one.
const SHORT_ROTATION: (u32, u32) = (8, 30);
const FUNCTIONS: u32 = 1_000;
/// Tasks from which on the memory of a host must not grow any more, but for this much: KiB per 1,000 tasks.
const SETTLED_TASKS: u32 = 100_000;
const MAX_SLOPE: f64 = 1.0;

/// A leaves timers, promises and calls behind, and ends by itself or when it is cancelled. B reports what it finds.
const MODULE: &str = r#"
let calls = 0;
export default async (payload, ctx) => {
  calls++;
  console.log(payload.id);
  if (payload.id.startsWith("A")) {
    for (let ms = 0; ms < 5; ms++) setTimeout(() => { console.log("late timer"); ctx.progress(1) }, ms);
    setInterval(() => console.log("late interval"), 1);
    (async () => { for (;;) { await new Promise((done) => setTimeout(done, 0)); console.log("late promise") } })().catch(() => {});
    ctx.file("late.txt", "late").then(() => console.log("late answer"), () => console.log("late failure"));
    if (payload.waits) await new Promise((done) => ctx.signal.addEventListener("abort", done));
    return calls;
  }
  await new Promise((done) => setTimeout(done, 3));
  return calls;
};
"#;

async fn nothing_late_of_a_task_reaches_the_next() {
    let rounds = rounds().unwrap_or(ROUNDS);
    for &isolation in isolations() {
        let bench = Bench::new(isolation, |policy| {
            policy.reuse = Reuse::Warm(WarmPolicy::default());
            policy.limits.log_lines = 1_000_000;
        })
        .await;
        bench.function("late", MODULE);
        let (mut worker, mut shared) = (bench.open().await, 0);
        for round in 0..rounds {
            let (sender, events) = event_channel();
            let control = Control::new(sender);
            let cancel = control.cancel.clone();
            let payload = format!(r#"{{"id":"A{round}","waits":{}}}"#, round % 2 == 0);
            let running = bench.run_with(worker, work("late", &payload), control);
            let stop = async {
                if round % 2 == 0 {
                    let _ = events.recv().await;
                    // The moment differs from round to round.
                    tokio::time::sleep(Duration::from_micros(u64::from(round * 37 % 5_000))).await;
                    cancel.cancel();
                }
            };
            let (ended, ()) = tokio::join!(running, stop);
            if ended.slot != ostler_exec::WorkerFate::Reusable {
                bench.executor.close(worker).await;
                worker = bench.open().await;
            }
            let (ended, heard) = bench.run(worker, work("late", &format!(r#"{{"id":"B{round}"}}"#))).await;
            assert_eq!(lines(&heard), [format!("B{round}")], "{isolation:?}, round {round}");
            assert_eq!(heard.len(), 1, "{isolation:?}, round {round}: {heard:?}");
            let calls: u32 = output(ended).parse().expect("a number");
            shared += u32::from(calls > 1);
        }
        bench.executor.close(worker).await;
        println!(
            "{}, {isolation:?}: {rounds} rounds, {shared} of them in the isolate of the task before",
            tested().name()
        );
        assert!(shared > rounds / 3, "{isolation:?}: only {shared} tasks shared an isolate");
    }
}

/// A host after a round.
#[derive(Clone, Copy, Debug)]
struct Weight {
    worker: WorkerId,
    /// Resident memory.
    kib: u64,
    descriptors: usize,
}

fn weigh(bench: &Bench, worker: WorkerId) -> Weight {
    let pid = bench.executor.vitals(worker).pid.expect("a host is a process");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kib = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there").count();
    Weight { worker, kib, descriptors }
}

/// Growth in KiB per 1,000 tasks: the median of the slopes between any two rounds of the same host.
fn slope(weights: &[Weight], functions: u32) -> f64 {
    let mut slopes = Vec::new();
    for (at, first) in weights.iter().enumerate() {
        for (rounds, last) in (1..).zip(&weights[at + 1..]).filter(|(_, last)| last.worker == first.worker) {
            let tasks = f64::from(functions) * f64::from(rounds);
            slopes.push((last.kib as f64 - first.kib as f64) / tasks * 1_000.0);
        }
    }
    slopes.sort_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or_default()
}

#[test]
fn a_slope_is_what_most_rounds_of_a_host_say() {
    let slope_of = |kib: [(u128, u64); 5], functions| {
        let weigh = |(host, kib)| Weight { worker: WorkerId(Id::from_bits(host)), kib, descriptors: 5 };
        slope(&kib.map(weigh), functions)
    };
    let settles = |kib| slope_of([100, 100, kib, 100, 100].map(|kib| (1, kib)), 1_000);
    assert_eq!((settles(100), settles(900)), (0.0, 0.0), "one round is unlike the others");
    assert_eq!(slope_of([(1, 100), (1, 102), (1, 104), (2, 50), (2, 52)], 500), 4.0, "a host was replaced");
}

async fn a_rotation_of_functions_leaves_no_memory_and_no_descriptors_behind() {
    let is_long = rounds().is_some();
    let (rounds, functions) = rounds().map_or(SHORT_ROTATION, |rounds| (rounds, FUNCTIONS));
    for reuse in [Reuse::Fresh, Reuse::Warm(WarmPolicy::default())] {
        let bench = Bench::new(Isolation::Process, |policy| policy.reuse = reuse).await;
        for number in 0..functions {
            bench.body(&format!("f{number}"), &format!("return [{number}, JSON.stringify(payload).length]"));
        }
        let mut worker = bench.open().await;
        let mut weights = Vec::new();
        for round in 0..rounds {
            for number in 0..functions {
                let (ended, _) = bench.run(worker, work(&format!("f{number}"), "[1,2,3]")).await;
                worker = bench.next_worker(worker, ended.slot).await;
                assert_eq!(output(ended), format!("[{number},7]"), "round {round}");
            }
            weights.push(weigh(&bench, worker));
        }
        bench.executor.close(worker).await;
        // What a heap and its arenas settle at is not growth.
        let settled = weights.len() / 4;
        let Weight { kib: first, descriptors, .. } = weights[settled];
        let Weight { kib: last, descriptors: at_end, .. } = weights[weights.len() - 1];
        let slope = slope(&weights[settled..], functions);
        println!(
            "{}, {reuse:?}: {} tasks of {functions} functions; {first} KiB after {} rounds, {last} KiB at the end, {slope:.2} KiB per 1,000 tasks; {at_end} descriptors",
            tested().name(),
            rounds * functions,
            settled + 1
        );
        assert_eq!(descriptors, at_end);
        // A short run ends before the heap of V8 has settled.
        let growth = if is_long { 8 * 1_024 } else { 64 * 1_024 };
        assert!(last <= first + growth, "{first} KiB, then {last} KiB: {weights:?}");
        if rounds * functions >= SETTLED_TASKS {
            assert!(slope <= MAX_SLOPE, "{slope:.2} KiB per 1,000 tasks: {weights:?}");
        }
    }
}
