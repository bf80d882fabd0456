//! The real claude, codex, gemini and opencode, from the package registry, with a scripted LLM server on loopback: what its log has is true, whatever the
//! store says.
//!
//! `llm.rs`: the server. `site.rs`: a place with pools of agents. The other files have a topic each. `OSTLER_ROUNDS=20` makes them long:
//! more items, more deaths, and no hold is released by hand.

mod acp;
mod deaths;
mod gateway;
mod left_behind;
mod limits_go_on;
mod llm;
mod prompts;
mod refusals;
mod resumes;
mod schemas;
mod site;
mod spending;
mod usage_limits;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ostler_testkit::npm_modules;

/// The versions whose lines were recorded.
const PACKAGES: [&str; 2] = ["@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0"];
/// Agents that speak the Agent Client Protocol.
const ACP_PACKAGES: [&str; 2] = ["@google/gemini-cli@0.61.0", "opencode-ai@1.18.33"];
/// How long agents may take: each start costs a second of processor time, and other tests want it too.
const MAX_AGENT_WAIT: Duration = Duration::from_secs(600);
/// The polling interval. A look is often a process of its own.
const LOOK: Duration = Duration::from_millis(100);
/// The polling interval of long forms, whose processor time the agents need.
const SELDOM: Duration = Duration::from_secs(1);

/// The folder with the programs, installed once and kept with the build. `None` where the registry cannot be reached.
fn programs() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| install("agents", PACKAGES, ["claude", "codex"])).as_deref()
}

/// The folder with gemini and opencode, likewise.
fn acp_programs() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| install("acp-agents", ACP_PACKAGES, ["gemini", "opencode"])).as_deref()
}

fn install(folder: &str, packages: [&str; 2], programs: [&str; 2]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let files = programs.map(|program| format!(".bin/{program}"));
    Some(npm_modules(&folder, &packages, &[&files[0], &files[1]])?.join(".bin"))
}

/// How many rounds the long forms have; `None`: the short ones are run.
fn rounds() -> Option<u64> {
    std::env::var("OSTLER_ROUNDS").ok().map(|text| text.parse().expect("OSTLER_ROUNDS is a number"))
}

/// The seed that a long form begins with: `OSTLER_FIRST_SEED=10` goes on after the ten of an earlier run.
fn first_seed() -> u64 {
    std::env::var("OSTLER_FIRST_SEED").map_or(0, |text| text.parse().expect("OSTLER_FIRST_SEED is a number"))
}

/// Polls until a value is found, with the patience that agents need.
fn in_time<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(what, LOOK, String::new, look)
}

/// The same for what the program shows. A long form looks less often. A test that fails says this too.
fn in_time_or<T>(what: &str, story: impl Fn() -> String, look: impl FnMut() -> Option<T>) -> T {
    poll(what, if rounds().is_some() { SELDOM } else { LOOK }, story, look)
}

fn poll<T>(
    what: &str,
    every: Duration,
    story: impl Fn() -> String,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let until = Instant::now() + MAX_AGENT_WAIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}\n{}", story());
        pause(every);
    }
}

fn pause(time: Duration) {
    let (_never, nothing) = channel::<()>();
    let _ = nothing.recv_timeout(time);
}
