//! The bomb corpus on a thread: each script, in each position, ends by a named cause, and the next call runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ostler_isolate::{FunctionEnd, FunctionLimits};

use crate::children;
#[cfg(feature = "v8")]
use crate::corpus::ABORT;
use crate::corpus::{Bomb, ENDING};
use crate::desk::{Output, run_in};
use crate::engines::{Tested, on, tested};

on_each_engine!(every_bomb_ends_by_a_named_cause_in_every_position);

/// Where a script stands.
pub(crate) const POSITIONS: [(&str, &str); 7] = [
    ("direct", "export default async (payload, ctx) => { SCRIPT }"),
    ("promise job", "export default (payload, ctx) => Promise.resolve().then(async () => { SCRIPT })"),
    (
        "timer",
        "export default (payload, ctx) => new Promise((done, failed) => setTimeout(() => { (async () => { SCRIPT })().then(done, failed) }))",
    ),
    ("getter of the output", "export default (payload, ctx) => ({ get x() { SCRIPT } })"),
    ("toJSON", "export default (payload, ctx) => ({ toJSON() { SCRIPT } })"),
    ("value of a step", "export default (payload, ctx) => ctx.step('s', () => ({ get x() { SCRIPT } }))"),
    ("top level", "SCRIPT; export default () => 1"),
];

/// Wall time between the CPU limit and the end of a call. Generous: other tests run at the same time.
const MAX_OVERRUN: Duration = Duration::from_secs(60);

pub(crate) fn limits() -> FunctionLimits {
    FunctionLimits {
        memory_bytes: 8 << 20,
        cpu: Duration::from_millis(50),
        wall: Duration::from_secs(60),
        ..FunctionLimits::default()
    }
}

/// How a script ended in one position.
struct Blast {
    position: &'static str,
    cause: String,
    took: Duration,
}

/// A script that awaits cannot stand in a getter.
pub(crate) fn module(position: &str, frame: &str, script: &str) -> Option<String> {
    let is_function = ["getter of the output", "toJSON", "value of a step"].contains(&position);
    (!is_function || !script.contains("await ")).then(|| frame.replace("SCRIPT", script))
}

fn cause(output: &Output) -> &'static str {
    output.as_ref().err().map_or("output", FunctionEnd::cause)
}

/// Runs a script in the positions from this one on, with a harmless call after each.
fn blast(bomb: &Bomb, from: usize, mut ended: impl FnMut(Blast)) {
    for (position, frame) in POSITIONS.into_iter().skip(from) {
        let Some(module) = module(position, frame, bomb.script) else { continue };
        let started = Instant::now();
        let (output, _) = run_in(limits(), &module, "null");
        ended(Blast { position, cause: cause(&output).to_owned(), took: started.elapsed() });
        let (output, _) = run_in(limits(), "export default () => 1 + 1", "null");
        assert_eq!(output, Ok(Some("2".to_owned())), "after {} ({position})", bomb.name);
    }
}

/// The same in a child. The position that ends its process is followed by a child for the next ones.
#[cfg(feature = "v8")]
fn blast_apart(bomb: &Bomb, engine: Tested) -> Vec<Blast> {
    let mut all: Vec<Blast> = Vec::new();
    let mut from = 0;
    loop {
        let child = children::run("bombs::child", engine, &format!("{from} {}", bomb.name));
        for line in child.lines {
            let [position, cause, took] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let at = POSITIONS.iter().position(|(name, _)| *name == position).expect("a position");
            from = at + 1;
            let took = Duration::from_millis(took.parse().expect("a number"));
            all.push(Blast { position: POSITIONS[at].0, cause: cause.to_owned(), took });
        }
        if child.signal.is_none() {
            return all;
        }
        while module(POSITIONS[from].0, POSITIONS[from].1, bomb.script).is_none() {
            from += 1;
        }
        all.push(Blast { position: POSITIONS[from].0, cause: ABORT.to_owned(), took: Duration::ZERO });
        from += 1;
        if from == POSITIONS.len() {
            return all;
        }
    }
}

/// Runs in a child: one script, from a position on.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let Some((engine, topic)) = children::assignment() else { return };
    let (from, name) = topic.split_once(' ').expect("a position and a name");
    let bomb = ENDING.iter().find(|bomb| bomb.name == name).expect("a bomb");
    on(engine, || {
        blast(bomb, from.parse().expect("a number"), |blast| {
            children::report(&format!("{}|{}|{}", blast.position, blast.cause, blast.took.as_millis()));
        });
    });
}

/// All positions of a script. V8 may abort its process.
fn blasts(bomb: &Bomb) -> Vec<Blast> {
    match tested() {
        Tested::QuickJs => {
            let mut all = Vec::new();
            blast(bomb, 0, |blast| all.push(blast));
            all
        }
        #[cfg(feature = "v8")]
        Tested::V8 => blast_apart(bomb, Tested::V8),
    }
}

fn every_bomb_ends_by_a_named_cause_in_every_position() {
    let mut worst: BTreeMap<String, (Duration, &str)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for bomb in ENDING {
        for Blast { position, cause, took } in blasts(bomb) {
            if !bomb.ends().contains(&cause.as_str()) {
                wrong.push(format!("{} ({position}): {cause}, not {:?}", bomb.name, bomb.ends()));
            }
            let overrun = took.saturating_sub(limits().cpu);
            assert!(overrun < MAX_OVERRUN, "{} ({position}) took {took:?}", bomb.name);
            let known = worst.entry(cause).or_default();
            *known = (*known).max((overrun, bomb.name));
        }
    }
    println!("worst over-run in wall time beyond a CPU limit of {:?}: {worst:?}", limits().cpu);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
