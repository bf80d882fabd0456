//! Files that are replaced while tasks run: each task runs one version as a whole, and no older one than was there when it began.
//!
//! `OSTLER_ROUNDS=1 ./test -p ostler-isolate -- file_changes --nocapture` runs 10,000 tasks while a file is replaced 50 times.

use std::sync::atomic::{AtomicU32, Ordering};

use ostler_isolate::{Isolation, Reuse, WarmPolicy};

use crate::bench::{Bench, output, rounds, work};
use crate::engines::{isolations, tested};

on_each_engine_async!(a_replaced_file_is_used_as_a_whole_from_the_next_task_on);

/// Tasks, and replacements, of the short test and of the long one.
const SHORT: (u32, u32) = (300, 15);
const LONG: (u32, u32) = (10_000, 50);
/// A part of the module between its two version numbers.
const PADDING_LINES: usize = 500;

/// A module that tells its version by its beginning and by its end.
fn version(number: u32) -> String {
    let padding = "// a line that is neither here nor there\n".repeat(PADDING_LINES);
    format!("const first = {number};\n{padding}export default () => [first, last];\nconst last = {number};\n")
}

async fn a_replaced_file_is_used_as_a_whole_from_the_next_task_on() {
    let (tasks, versions) = if rounds().is_some() { LONG } else { SHORT };
    for &isolation in isolations() {
        for reuse in [Reuse::Fresh, Reuse::Warm(WarmPolicy::default())] {
            load(isolation, reuse, tasks / 2, versions / 2).await;
        }
    }
}

async fn load(isolation: Isolation, reuse: Reuse, tasks: u32, versions: u32) {
    let bench = Bench::new(isolation, |policy| policy.reuse = reuse).await;
    bench.function("change", &version(0));
    let (begun, installed) = (AtomicU32::new(0), AtomicU32::new(0));
    let run = async || {
        let worker = bench.open().await;
        let mut seen = Vec::new();
        while begun.fetch_add(1, Ordering::SeqCst) < tasks {
            let least = installed.load(Ordering::SeqCst);
            let (ended, _) = bench.run(worker, work("change", "null")).await;
            let ran: [u32; 2] = serde_json::from_str(&output(ended)).expect("two numbers");
            assert_eq!(ran[0], ran[1], "parts of two versions");
            assert!(ran[0] >= least, "version {} ran, though {least} was there before", ran[0]);
            seen.push(ran[0]);
        }
        bench.executor.close(worker).await;
        seen
    };
    let replace = async {
        for number in 1..=versions {
            let due = tasks * number / (versions + 1);
            while begun.load(Ordering::SeqCst) < due {
                tokio::task::yield_now().await;
            }
            bench.function("change", &version(number));
            installed.store(number, Ordering::SeqCst);
        }
    };
    let (mut seen, more, ()) = tokio::join!(run(), run(), replace);
    seen.extend(more);
    assert_eq!(seen.len(), usize::try_from(tasks).expect("it is small"));
    seen.sort_unstable();
    seen.dedup();
    println!(
        "{}, {isolation:?}, {reuse:?}: {tasks} tasks, {} of {} versions ran",
        tested().name(),
        seen.len(),
        versions + 1
    );
    assert!(seen.len() > 1, "{seen:?}");
}
