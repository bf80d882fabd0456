//! The bomb corpus in host processes: whatever a script does, its task ends by a named cause, and nothing else notices.
//!
//! A test runs each script in one position. With `OSTLER_ROUNDS` set, it runs in all of them, and memory is bounded at a second limit. `overruns.md` is the table of a run of
//! everything on both engines; `OSTLER_UPDATE=1 ./test -p ostler-isolate -- overruns --nocapture` makes it anew, with V8's library.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, Outcome, WorkerId};
use ostler_exec::{AttemptResult, Work, WorkerFate};
use ostler_isolate::{FunctionEnd, Isolation};

use crate::bench::{Bench, output, rounds, work};
use crate::bombs::{POSITIONS, limits, module};
use crate::corpus::{ABORT, Bomb, DEAF, ENDING, bomb};
use crate::engines::{by_engine, tested};

on_each_engine_async!(
    every_script_ends_in_its_host_and_no_other_task_notices,
    the_memory_of_a_host_is_bounded
);

/// Hosts that run scripts at once.
const HOSTS: usize = 2;
/// The timeout of scripts that only wait.
const WAIT: Duration = Duration::from_millis(200);
/// Wall time beyond the limit. Generous: other tests run at the same time, and a limit is CPU time.
const MAX_OVERRUN: Duration = Duration::from_secs(60);

/// Scripts for causes that the corpus leaves out. They await, or mean something else in another position.
const MORE: [Bomb; 2] = [
    bomb(
        "rejection",
        "Promise.reject(new Error('lost')); await new Promise((done) => setTimeout(done, 1))",
        &["unhandled rejection"],
    ),
    bomb("long output", "return 'x'.repeat(1100000)", &["output"]),
];

/// Scripts that wait, and hardly use the processor: only their time ends them. Each stands wherever it may `await`.
const WAITS: [Bomb; 6] = [
    bomb("one timer", "await new Promise((done) => setTimeout(done, 3600_000))", &["wall"]),
    bomb("timers in a loop", "for (;;) await new Promise((done) => setTimeout(done, 20))", &["wall"]),
    bomb(
        "timers that reject",
        "for (;;) try { await new Promise((_, no) => setTimeout(no, 20)) } catch {}",
        &["wall"],
    ),
    bomb("interval", "setInterval(() => {}, 20); await new Promise(() => {})", &["wall"]),
    bomb(
        "race that is not won",
        "await Promise.race([new Promise(() => {}), new Promise((done) => setTimeout(done, 3600_000))])",
        &["wall"],
    ),
    bomb(
        "abort signal with a timeout",
        "await new Promise((done) => AbortSignal.timeout(3600_000).addEventListener('abort', done))",
        &["wall"],
    ),
];

/// Which positions a script is tried in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// Another one for each script, in turn.
    One,
    All,
}

/// A script in one position.
struct Charge {
    name: &'static str,
    position: &'static str,
    kind: String,
    ends: Vec<&'static str>,
    timeout: Duration,
    /// The limit that is exceeded first, at the latest.
    limit: Duration,
}

/// How it ended.
pub(crate) struct HostBlast {
    pub(crate) name: &'static str,
    pub(crate) position: &'static str,
    pub(crate) cause: &'static str,
    pub(crate) overrun: Duration,
    pub(crate) ended: AttemptResult,
    ends: Vec<&'static str>,
}

/// The cause that a result names.
fn cause(ended: &AttemptResult) -> &'static str {
    let Some(failure) = ended.outcome.failure() else { return "success" };
    let limits = [
        FunctionEnd::Cpu,
        FunctionEnd::Wall,
        FunctionEnd::Memory,
        FunctionEnd::Stack,
        FunctionEnd::Output,
        FunctionEnd::LogLines,
        FunctionEnd::Timers,
        FunctionEnd::NeverSettles,
    ];
    if let Some(end) = limits.iter().find(|end| end.to_string() == failure.message) {
        return end.cause();
    }
    if failure.class == ErrorClass::Crash {
        "crash"
    } else if failure.class == ErrorClass::Timeout {
        // The node noticed it first.
        FunctionEnd::Wall.cause()
    } else if failure.message.starts_with("a promise was rejected") {
        "unhandled rejection"
    } else {
        "thrown"
    }
}

/// The causes that a script may end by in a host, from those on a thread.
fn in_host(ends: &[&'static str]) -> Vec<&'static str> {
    let mut ends: Vec<&'static str> = ends
        .iter()
        .map(|end| match end.strip_prefix("ended ").unwrap_or(end) {
            "deaf" => "cpu",
            ABORT => "memory",
            "output" => "success",
            other => other,
        })
        .collect();
    // A host has less memory than a test: what V8 does not count there is refused here.
    ends.extend(by_engine(&[][..], &["memory"]));
    ends
}

fn charges(bench: &Bench, positions: Positions) -> VecDeque<Charge> {
    let ending = ENDING.iter().map(|bomb| (bomb.name, bomb.script, in_host(bomb.ends())));
    let any: &[&'static str] = &["deaf", "ended cpu", "ended memory", "ended thrown", "ended output"];
    let deaf = DEAF.iter().map(|deaf| (deaf.name, deaf.script, in_host(by_engine(any, deaf.v8))));
    let more = MORE.iter().chain(&WAITS).map(|bomb| (bomb.name, bomb.script, bomb.ends().to_vec()));
    let mut all = VecDeque::new();
    for (number, (name, script, ends)) in ending.chain(deaf).chain(more).enumerate() {
        let is_last = MORE.iter().any(|bomb| bomb.name == name);
        let turned = (0..POSITIONS.len()).map(|turn| (number + turn) % POSITIONS.len());
        let places = turned.map(|place| if is_last { 0 } else { place });
        let mut usable = places.filter_map(|place| {
            let (position, frame) = POSITIONS[place];
            Some((place, position, module(position, frame, script)?))
        });
        let chosen: Vec<_> = match positions {
            Positions::All if !is_last => usable.collect(),
            Positions::One | Positions::All => usable.next().into_iter().collect(),
        };
        for (place, position, module) in chosen {
            let kind = format!("b{number}p{place}");
            bench.function(&kind, &module);
            let waits = WAITS.iter().any(|bomb| bomb.name == name);
            let timeout = if waits { WAIT } else { limits().wall };
            let limit = if waits { WAIT } else { limits().cpu };
            all.push_back(Charge { name, position, kind, ends: ends.clone(), timeout, limit });
        }
    }
    all
}

/// Runs scripts until there are none left, each in a host that has run others before, if it survived them.
async fn run_all(bench: &Bench, charges: &Mutex<VecDeque<Charge>>) -> Vec<HostBlast> {
    let mut blasts = Vec::new();
    let (mut worker, mut is_new) = (bench.open().await, true);
    loop {
        let next = charges.lock().expect("no panic").pop_front();
        let Some(charge) = next else { break };
        let work = Work { timeout: charge.timeout, ..work(&charge.kind, "null") };
        let began = Instant::now();
        let (ended, _) = bench.run(worker, work).await;
        let overrun = began.elapsed().saturating_sub(charge.limit);
        // A host may leave after a script that it survived. What it does not receive is handed back, and runs elsewhere.
        let is_back = ended.outcome == Outcome::HandedBack;
        assert!(!(is_back && is_new), "{}: handed back by a new host", charge.name);
        is_new = ended.slot != WorkerFate::Reusable;
        if is_new {
            bench.executor.close(worker).await;
            worker = bench.open().await;
        }
        if is_back {
            charges.lock().expect("no panic").push_front(charge);
            continue;
        }
        let Charge { name, position, ends, .. } = charge;
        blasts.push(HostBlast { name, position, cause: cause(&ended), overrun, ended, ends });
    }
    bench.executor.close(worker).await;
    blasts
}

/// A host of harmless tasks, beside those of the scripts. Returns how many it ran.
async fn bystander(bench: &Bench, over: &AtomicBool) -> usize {
    bench.body("well", "await ctx.step('s', () => payload); return payload + 1");
    let worker = bench.open().await;
    let pid = |worker: WorkerId| bench.executor.vitals(worker).pid;
    let (before, mut ran) = (pid(worker), 0);
    while !over.load(Ordering::Relaxed) || ran == 0 {
        let (ended, _) = bench.run(worker, work("well", &ran.to_string())).await;
        ran += 1;
        assert_eq!(output(ended), ran.to_string());
        // A host with nothing to do leaves the processors to the others.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(pid(worker), before, "it is the same host");
    bench.executor.close(worker).await;
    ran
}

/// Runs the corpus on the engine under test.
pub(crate) async fn explode(positions: Positions, hosts: usize) -> Vec<HostBlast> {
    let bench = Bench::new(Isolation::Process, |policy| policy.limits = limits()).await;
    let charges = Mutex::new(charges(&bench, positions));
    let over = AtomicBool::new(false);
    let exploding = async {
        let second = async { if hosts > 1 { run_all(&bench, &charges).await } else { Vec::new() } };
        let (mut blasts, more) = tokio::join!(run_all(&bench, &charges), second);
        blasts.extend(more);
        over.store(true, Ordering::Relaxed);
        blasts
    };
    let (blasts, ran) = tokio::join!(exploding, bystander(&bench, &over));
    println!("{}: {} scripts in hosts, {ran} tasks beside them", tested().name(), blasts.len());
    blasts
}

async fn every_script_ends_in_its_host_and_no_other_task_notices() {
    let positions = if rounds().is_some() { Positions::All } else { Positions::One };
    let blasts = explode(positions, HOSTS).await;
    assert!(blasts.len() >= ENDING.len() + DEAF.len() + MORE.len() + WAITS.len());
    let mut wrong = Vec::new();
    for HostBlast { name, position, cause, overrun, ended, ends } in blasts {
        if !ends.contains(&cause) {
            wrong.push(format!("{name} ({position}): {cause}, not {ends:?}: {ended:?}"));
        }
        assert!(overrun < MAX_OVERRUN, "{name} ({position}) ran {overrun:?} too long");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Scripts that take memory in different ways.
const GREEDY: &[(&str, &str)] = &[
    ("objects", "let x = []; for (;;) x.push({ a: 1, b: [1, 2, 3] })"),
    ("buffers", "let x = []; for (;;) x.push(new Uint8Array(1 << 20).fill(1))"),
    ("one buffer", "return new Uint8Array(1 << 30).fill(1).length"),
    ("texts", "let x = []; for (let i = 0; ; i++) x.push(JSON.stringify('x'.repeat(1 << 20) + i))"),
    ("one text", "return JSON.stringify('x'.repeat(2 ** 29 - 25)).length"),
    ("text of two bytes", "return JSON.stringify('\u{4e00}'.repeat(2 ** 28)).length"),
    ("large integers", "let x = []; for (let i = 1n; ; i++) x.push(i << 800000n)"),
    ("array from a length", "return Array.from({ length: 1e9 }).length"),
    ("sorted", "return [].sort.call({ length: 2 ** 32 - 1 }).length"),
    (
        "copies",
        "let x = structuredClone(Array.from({ length: 1e5 }, (_, i) => ({ i }))); for (;;) x = [x, structuredClone(x)]",
    ),
];

/// The peak of a process's resident memory, in bytes.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib * 1024)
}

async fn the_memory_of_a_host_is_bounded() {
    let limits: &[u64] = if rounds().is_some() { &[32 << 20, 128 << 20] } else { &[32 << 20] };
    for limit in limits {
        memory_is_bounded(*limit).await;
    }
}

async fn memory_is_bounded(limit: u64) {
    let bench = Bench::new(Isolation::Process, |policy| {
        policy.limits.memory_bytes = usize::try_from(limit).expect("it fits");
        policy.limits.cpu = Duration::from_secs(2);
    })
    .await;
    for (name, body) in GREEDY {
        bench.body("greedy", body);
        let worker = bench.open().await;
        let pid = bench.executor.vitals(worker).pid.expect("a host is a process");
        let before = peak(pid).expect("it is there");
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let until = std::sync::Arc::clone(&over);
        let watch = std::thread::spawn(move || {
            let mut most = before;
            while let (false, Some(now)) = (until.load(Ordering::Relaxed), peak(pid)) {
                most = most.max(now);
                std::thread::park_timeout(Duration::from_millis(1));
            }
            most
        });
        let (ended, _) = bench.run(worker, work("greedy", "null")).await;
        over.store(true, Ordering::Relaxed);
        let most = watch.join().expect("it does not panic") - before;
        bench.executor.close(worker).await;
        println!(
            "{}, limit of {} MiB, {name}: {} after {} MiB more",
            tested().name(),
            limit >> 20,
            cause(&ended),
            most >> 20
        );
        assert!(most <= 2 * limit + (64 << 20), "{name}: {} MiB", most >> 20);
        let known =
            ["memory", "cpu"].contains(&cause(&ended)) || (*name == "sorted" && cause(&ended) == "thrown");
        assert!(known, "{name}: {ended:?}");
    }
}
