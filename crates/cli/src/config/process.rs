//! The keys of a pool of long-lived workers: `executor = "process"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_process::{MAX_FRAME_BYTES, ProcessPolicy, Recycle};
use ostler_store::Bounds;

use super::pool::{MAX_LOG_BYTES, bytes, environment};
use super::section::Section;
use super::{duration, sandbox};

/// Workers that are there from the start, unless the file says otherwise.
pub(super) const MIN_WORKERS: u32 = 2;
/// How long a worker may be given to be ready. A node that waits longer looks as if it hung.
const MAX_READY: Duration = Duration::from_secs(10 * 60);
/// Tasks after which a worker may be replaced.
const TASKS: RangeInclusive<u64> = 1..=1_000_000_000;
/// Memory above which a worker may be replaced.
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// How the workers of a pool are run.
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
        return found.refuse("cannot be run: the command has no program");
    }
    if argv.iter().any(|word| word.contains("{{")) {
        return found
            .refuse("has {{ in it, and a worker is started before there is a task: nothing is replaced");
    }
    Some(argv)
}

fn ready_timeout(section: &mut Section<'_>) -> Option<Duration> {
    let found = section.find("ready_timeout")?;
    let time = found.duration()?;
    if time > MAX_READY {
        let (time, most) = (duration::show(time), duration::show(MAX_READY));
        return found.refuse(format!("is {time}, and must be at most {most}"));
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
