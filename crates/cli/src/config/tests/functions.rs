//! Pools of functions in the config: their defaults, and what is refused.

use std::path::PathBuf;
use std::time::Duration;

use ostler_isolate::{EngineName, FunctionLimits, IsolatePolicy, Isolation, Reuse, WarmPolicy};

use super::{PoolSettings, fault, good, policy, with_prices};

/// A pool of functions with only the required keys, and the example of a key that has no default.
pub(super) fn plain() -> PoolSettings {
    with_prices("[pool.functions]\nexecutor = \"isolate\"\nscripts = \"functions\"\nmax_claimed = 20")
}

fn pool(lines: &str) -> String {
    format!("[pool.functions]\nexecutor = \"isolate\"\nscripts = \"functions\"\n{lines}")
}

#[test]
fn functions_have_a_worker_for_each_core_half_a_minute_and_processes() {
    let pool = plain();
    let cores = std::thread::available_parallelism().expect("there are cores").get();
    assert_eq!((pool.scale.min, pool.scale.max as usize), (1, cores.min(256)));
    assert_eq!(pool.overrides.timeout, Some(Duration::from_secs(30)));
    let functions: &IsolatePolicy = policy(&pool);
    assert_eq!(functions.limits, FunctionLimits::default());
    assert_eq!(
        (functions.engine, functions.isolation, functions.reuse),
        (EngineName::QuickJs, Isolation::Process, Reuse::Fresh)
    );
    assert!(functions.folders.each.is_none());
}

#[test]
fn every_key_of_functions_is_read() {
    let config = good(&pool(
        "isolation = \"thread\"\nreuse = { calls = 7, memory = \"2MiB\" }\nmemory = \"8MiB\"\ncpu = \"100ms\"\n\
         stack = \"1MiB\"\noutput = \"2MiB\"\nlog_lines = 5\ntimers = 6\nfolders = \"out\"\n\
         max_workers = 3\nmax_claimed = 3",
    ));
    let functions: &IsolatePolicy = policy(&config.pools[0]);
    let limits = FunctionLimits {
        memory_bytes: 8 << 20,
        cpu: Duration::from_millis(100),
        stack_bytes: 1 << 20,
        output_bytes: 2 << 20,
        log_lines: 5,
        timers: 6,
        ..FunctionLimits::default()
    };
    assert_eq!(functions.limits, limits);
    assert_eq!(functions.isolation, Isolation::Thread);
    assert_eq!(functions.max_claimed, Some(3));
    assert_eq!(functions.reuse, Reuse::Warm(WarmPolicy { calls: 7, memory_bytes: 2 << 20 }));
    assert_eq!(functions.folders.each, Some(PathBuf::from("out/functions")));
    let warm = good(&pool("reuse = \"warm\""));
    assert_eq!(policy::<IsolatePolicy>(&warm.pools[0]).reuse, Reuse::Warm(WarmPolicy::default()));
}

#[test]
fn wrong_keys_of_functions_are_refused_with_a_sentence() {
    for (text, says) in [
        (
            "[pool.functions]\nexecutor = \"isolate\"".to_owned(),
            "scripts is missing: the folder of functions",
        ),
        (pool("reuse = \"tepid\""), "must be \"fresh\" or \"warm\""),
        (pool("reuse = { call = 1 }"), "did you mean calls?"),
        (pool("memory = \"1KiB\""), "must be from 1MiB"),
        (pool("engine = \"spidermonkey\""), "must be \"quickjs\" or \"v8\""),
        (pool("isolation = \"none\""), "must be \"process\" or \"thread\""),
        (pool("command = [\"x\"]"), "unknown key"),
        (pool("max_workers = 4\nmax_claimed = 3"), "max_claimed (3) must not be below max_workers (4)"),
        (pool("max_claimed = 0"), "must be a whole number from 1 to"),
    ] {
        let sentence = fault(&text);
        assert!(sentence.contains(says), "{sentence}");
    }
}

#[cfg(feature = "v8")]
#[test]
fn v8_on_threads_is_refused_with_a_sentence() {
    let sentence = fault(&pool("engine = \"v8\"\nisolation = \"thread\""));
    assert!(sentence.contains("possible with engine = \"quickjs\" only"), "{sentence}");
}
