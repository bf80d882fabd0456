//! Settings of a pool of persistent workers: `executor = "process"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_process::{MAX_FRAME_BYTES, ProcessPolicy, Recycle};
use ostler_store::Bounds;

use super::pool::{MAX_LOG_BYTES, bytes, environment};
use super::section::Section;
use super::{duration, sandbox};

/// The default of `min_workers`.
pub(super) const MIN_WORKERS: u32 = 2;
/// The maximum of `ready_timeout`. A node that waits longer seems to hang.
const MAX_READY: Duration = Duration::from_secs(10 * 60);
/// The range of `recycle.after_tasks`.
const TASKS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The range of `recycle.above_memory`.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 40;

pub(super) fn read(pool: &str, section: &mut Section<'_>, grace: Duration) -> Option<ProcessPolicy> {
    let argv = command(section);
    let default = ProcessPolicy::new(pool, argv.clone().unwrap_or_default());
    let max_output = Bounds::default().output_bytes.min(MAX_FRAME_BYTES) as u64;
    let policy = ProcessPolicy {
        environment: environment(section, default.environment.clone()),
        ready_timeout: ready_timeout(section).unwrap_or(default.ready_timeout),
        grace,
        recycle: recycle(section.section("recycle")),
        max_output_bytes: bytes(section.find("max_output"), max_output).unwrap_or(default.max_output_bytes),
        max_log_bytes: bytes(section.find("max_log"), MAX_LOG_BYTES).unwrap_or(default.max_log_bytes),
        folders: sandbox::folders(pool, section),
        sandbox: sandbox::read(section),
        ..default
    };
    argv.map(|_| policy)
}

fn command(section: &mut Section<'_>) -> Option<Vec<String>> {
    const EXAMPLE: &str = "[\"python3\", \"worker.py\"]";
    let Some(found) = section.find("command") else {
        section.fault("command", format!("is missing: the program and its arguments, such as {EXAMPLE}"));
        return None;
    };
    let argv = found.texts(EXAMPLE)?;
    if argv.first().is_none_or(String::is_empty) {
        return found.refuse("has no program");
    }
    if argv.iter().any(|word| word.contains("{{")) {
        return found
            .refuse("contains {{, but a worker starts before there is a task: nothing can be replaced");
    }
    Some(argv)
}

fn ready_timeout(section: &mut Section<'_>) -> Option<Duration> {
    let found = section.find("ready_timeout")?;
    let time = found.duration()?;
    if time > MAX_READY {
        let (time, most) = (duration::show(time), duration::show(MAX_READY));
        return found.refuse(format!("is {time}, but must be at most {most}"));
    }
    Some(time)
}

fn recycle(mut section: Section<'_>) -> Recycle {
    let recycle = Recycle {
        after_tasks: section.find("after_tasks").and_then(|found| found.whole(TASKS)),
        above_memory: section.find("above_memory").and_then(|found| found.size(MEMORY)),
    };
    section.close(&[]);
    recycle
}
