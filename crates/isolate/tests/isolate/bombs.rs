//! The bomb corpus on a thread: each script, in each position, ends by a named cause, and the next call runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ostler_isolate::{FunctionEnd, FunctionLimits};

use crate::corpus::ENDING;
use crate::desk::{Output, run_in};

/// Where a script stands.
const POSITIONS: [(&str, &str); 7] = [
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

/// A script that awaits cannot stand in a getter.
fn module(position: &str, frame: &str, script: &str) -> Option<String> {
    let is_function = ["getter of the output", "toJSON", "value of a step"].contains(&position);
    (!is_function || !script.contains("await ")).then(|| frame.replace("SCRIPT", script))
}

fn cause(output: &Output) -> &'static str {
    output.as_ref().err().map_or("output", FunctionEnd::cause)
}

#[test]
fn every_bomb_ends_by_a_named_cause_in_every_position() {
    let mut worst: BTreeMap<&str, (Duration, &str)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for bomb in ENDING {
        for (position, frame) in POSITIONS {
            let Some(module) = module(position, frame, bomb.script) else { continue };
            let started = Instant::now();
            let (output, _) = run_in(limits(), &module, "null");
            let took = started.elapsed();
            let cause = cause(&output);
            if !bomb.ends.contains(&cause) {
                wrong.push(format!("{} ({position}): {output:?}, not {:?}", bomb.name, bomb.ends));
            }
            let overrun = took.saturating_sub(limits().cpu);
            assert!(overrun < MAX_OVERRUN, "{} ({position}) took {took:?}", bomb.name);
            let known = worst.entry(cause).or_default();
            *known = (*known).max((overrun, bomb.name));
        }
        let (output, _) = run_in(limits(), "export default () => 1 + 1", "null");
        assert_eq!(output, Ok(Some("2".to_owned())), "after {}", bomb.name);
    }
    println!("worst over-run in wall time beyond a CPU limit of {:?}: {worst:?}", limits().cpu);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
