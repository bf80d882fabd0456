//! The tables `[pool.NAME]`: the executor, workers, retries and limits of a queue.

use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_core::{Backoff, Jitter, Overrides, ScalePolicy};
use ostler_process::{Codes, CommandPolicy, Environment, Input};
use ostler_runtime::Unclassed;
use ostler_store::{Bounds, MAX_CLAIM};

use super::expand::is_name;
use super::section::{FoundValue, Section, nearest};
use super::{ExecutorSettings, PoolSettings, hooks, kind, limits, process, sandbox};
use crate::print::visible;

/// The range of attempts, crashes and node deaths.
pub(super) const COUNTS: RangeInclusive<u32> = 1..=1_000_000;
/// The range of `queue_limit`.
const LIMITS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The default of `max_workers` is the number of cores, but at most this.
const MOST_BY_CORES: u32 = 10;
/// The maximum of `max_log` in bytes.
pub(super) const MAX_LOG_BYTES: u64 = 1 << 30;
/// Executors of this version.
const EXECUTORS: [&str; 2] = ["command", "process"];
/// Planned executors.
const LATER: [&str; 4] = ["agent", "llm", "http", "isolate"];
/// Executors that need Rust functions, and are for programs that use the library.
const IN_RUST: [&str; 2] = ["inline", "thread"];
/// Planned keys.
const LATER_KEYS: [&str; 1] = ["budget"];

pub(super) fn read_all(section: &Section<'_>) -> Vec<PoolSettings> {
    section.entries().into_iter().filter_map(|(name, found)| read(name, &found)).collect()
}

fn read(name: String, found: &FoundValue<'_>) -> Option<PoolSettings> {
    let named = ostler_store::check_name(found.path(), &name).map_err(|error| found.fault(error.to_string()));
    let mut section = found.table()?;
    let sort = section.find("executor").map_or_else(
        || {
            section.fault("executor", format!("is missing; this version has {}", EXECUTORS.join(", ")));
            ExecutorKind::Refused
        },
        |found| executor_named(&found),
    );
    let scale = scale(&mut section, sort);
    let grace = section.find("grace").and_then(|found| found.duration()).unwrap_or(PoolSettings::GRACE);
    let overrides = overrides(&mut section);
    let kinds = kind::read_all(&section.section("kind"));
    let limits = limits::read(&mut section, LIMITS);
    let assumptions = [("transient", Unclassed::Transient), ("permanent", Unclassed::Permanent)];
    let unclassed =
        section.find("unclassed").and_then(|found| found.one_of(&assumptions)).unwrap_or_default();
    let on_failed = section.find("on_failed").map(|found| hooks::read(&found)).unwrap_or_default();
    let executor = match sort {
        ExecutorKind::Command => ExecutorSettings::Command(command(&name, &mut section)?),
        ExecutorKind::Process => ExecutorSettings::Process(process::read(&name, &mut section, grace)?),
        // Its keys are unknown here; refusing each of them would say nothing new.
        ExecutorKind::Refused => return None,
    };
    section.close(&LATER_KEYS);
    named.ok()?;
    Some(PoolSettings { name, executor, scale, grace, overrides, kinds, unclassed, on_failed, limits })
}

#[derive(Clone, Copy)]
enum ExecutorKind {
    Command,
    Process,
    Refused,
}

fn executor_named(found: &FoundValue<'_>) -> ExecutorKind {
    let Some(text) = found.text() else {
        return ExecutorKind::Refused;
    };
    let has = EXECUTORS.join(", ");
    match text.as_str() {
        "command" => return ExecutorKind::Command,
        "process" => return ExecutorKind::Process,
        rust if IN_RUST.contains(&rust) => found.refuse::<()>(format!(
            "\"{rust}\" runs Rust functions, and is only for programs that use the library; available here: {has}"
        )),
        later if LATER.contains(&later) => {
            found.refuse(format!("\"{later}\" is not supported in this version; available: {has}"))
        }
        other => {
            let guess = match nearest(other, &EXECUTORS) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("available: {has}"),
            };
            found.refuse(format!("{} does not exist; {guess}", found.shown()))
        }
    };
    ExecutorKind::Refused
}

fn scale(section: &mut Section<'_>, sort: ExecutorKind) -> ScalePolicy {
    let most = u32::try_from(MAX_CLAIM).unwrap_or(u32::MAX);
    let min = section.find("min_workers").and_then(|found| found.count(0..=most));
    let max = section.find("max_workers").and_then(|found| found.count(1..=most));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        section.fault("min_workers", format!("({min}) must not exceed max_workers ({max})"));
    }
    let default = match sort {
        ExecutorKind::Command | ExecutorKind::Refused => PoolSettings::default_scale(),
        ExecutorKind::Process => ScalePolicy { min: process::MIN_WORKERS, ..PoolSettings::default_scale() },
    };
    // Only explicit values are compared: a file is not wrong because a machine has few cores.
    let max = max.unwrap_or_else(|| default.max.max(min.unwrap_or(default.min)));
    ScalePolicy {
        min: min.unwrap_or(default.min.min(max)),
        max,
        scale_up_at: section
            .find("scale_up_at")
            .and_then(|found| found.count(COUNTS))
            .unwrap_or(default.scale_up_at),
        idle_timeout: section
            .find("idle_timeout")
            .and_then(|found| found.duration())
            .unwrap_or(default.idle_timeout),
    }
}

pub(super) fn overrides(section: &mut Section<'_>) -> Overrides {
    let timeout = section.find("timeout").and_then(|found| found.duration());
    let mut retry = section.section("retry");
    let shapes = Backoff::ALL.map(|shape| (shape.name(), shape));
    let overrides = Overrides {
        attempts: retry.find("attempts").and_then(|found| found.count(COUNTS)),
        backoff: retry.find("backoff").and_then(|found| found.one_of(&shapes)),
        base: retry.find("base").and_then(|found| found.duration()),
        max: retry.find("max").and_then(|found| found.duration()),
        jitter: retry.find("jitter").and_then(|found| found.choice(Jitter::Half, Jitter::Off)),
        max_crashes: retry.find("max_crashes").and_then(|found| found.count(COUNTS)),
        max_node_deaths: retry.find("max_node_deaths").and_then(|found| found.count(COUNTS)),
        timeout,
    };
    if let (Some(base), Some(max)) = (overrides.base, overrides.max)
        && base > max
    {
        retry.fault("base", "must not be longer than max");
    }
    retry.close(&[]);
    overrides
}

fn command(pool: &str, section: &mut Section<'_>) -> Option<CommandPolicy> {
    const EXAMPLE: &str = "[\"sh\", \"-c\", \"date\"]";
    let argv = match section.find("command") {
        Some(found) => found.texts(EXAMPLE),
        None => {
            section.fault("command", format!("is missing: the program and its arguments, such as {EXAMPLE}"));
            None
        }
    };
    let default = CommandPolicy::new(argv.clone().unwrap_or_default());
    let wrong = argv.as_ref().map(|_| default.faults()).unwrap_or_default();
    for error in &wrong {
        section.fault("command", format!("cannot be run: {error}"));
    }
    let inputs = [("nothing", Input::Nothing), ("payload", Input::Payload)];
    let max_output = Bounds::default().output_bytes as u64;
    let policy = CommandPolicy {
        input: section.find("stdin").and_then(|found| found.one_of(&inputs)).unwrap_or(default.input),
        environment: environment(section, default.environment),
        codes: codes(section),
        output: default.output,
        max_output_bytes: bytes(section.find("max_output"), max_output).unwrap_or(default.max_output_bytes),
        max_log_bytes: bytes(section.find("max_log"), MAX_LOG_BYTES).unwrap_or(default.max_log_bytes),
        folders: sandbox::folders(pool, section),
        sandbox: sandbox::read(section),
        files: files(section),
        argv: default.argv,
    };
    (argv.is_some() && wrong.is_empty()).then_some(policy)
}

/// The patterns of files to record.
fn files(section: &mut Section<'_>) -> Vec<String> {
    let patterns = section.find("files").and_then(|found| {
        let patterns = found.texts("[\"*.pdf\"]")?;
        let policy = CommandPolicy { files: patterns.clone(), ..CommandPolicy::new(["true"]) };
        policy.faults().first().map_or(Some(patterns), |fault| found.refuse(format!("is invalid: {fault}")))
    });
    patterns.unwrap_or_default()
}

pub(super) fn bytes(found: Option<FoundValue<'_>>, most: u64) -> Option<usize> {
    usize::try_from(found?.size(1..=most)?).ok()
}

pub(super) fn environment(section: &mut Section<'_>, default: Environment) -> Environment {
    let no_name = "the name of a variable consists of letters, digits and _";
    let keep = section.find("keep_env").and_then(|found| {
        let names = found.texts("[\"PATH\", \"HOME\"]")?;
        for name in names.iter().filter(|name| !is_name(name)) {
            found.refuse::<()>(format!("contains \"{}\"; {no_name}", visible(name)));
        }
        Some(names)
    });
    let mut set = Vec::new();
    for (name, found) in section.section("env").entries() {
        if !is_name(&name) {
            found.refuse::<()>(format!("cannot be set; {no_name}"));
        }
        set.extend(found.text().map(|value| (name, value)));
    }
    Environment { keep: keep.unwrap_or(default.keep), set }
}

fn codes(section: &mut Section<'_>) -> Codes {
    /// Exit codes other than success.
    const CODES: RangeInclusive<u64> = 1..=255;
    let mut codes = section.section("exit_codes");
    let mut list = |key| {
        let numbers = codes.find(key).and_then(|found| found.numbers(&CODES)).unwrap_or_default();
        numbers.into_iter().filter_map(|code| i32::try_from(code).ok()).collect::<Vec<i32>>()
    };
    let read =
        Codes { permanent: list("permanent"), transient: list("transient"), queue_stop: list("queue_stop") };
    let mut all: Vec<i32> =
        [&read.permanent, &read.transient, &read.queue_stop].into_iter().flatten().copied().collect();
    all.sort_unstable();
    if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
        section.fault("exit_codes", format!("has {} twice; a code can have only one meaning", twice[0]));
    }
    codes.close(&[]);
    read
}

impl PoolSettings {
    /// The default of `grace`.
    pub(super) const GRACE: Duration = Duration::from_secs(5);

    /// The default numbers of workers.
    pub(super) fn default_scale() -> ScalePolicy {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let max = u32::try_from(cores).unwrap_or(u32::MAX).min(MOST_BY_CORES);
        ScalePolicy { min: 1, max, scale_up_at: 1, idle_timeout: Duration::from_secs(300) }
    }
}
