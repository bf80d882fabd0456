//! Initialisation of V8, once in a process: flags, platform, snapshot, ticker.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::process::{Signal, getpid, kill_process};

use super::snapshot::Snapshot;
use super::ticker::Ticker;
use crate::exhaustion::exhausted;

/// Set before anything else: V8 freezes its flags. Isolates of one thread need no help from others. `Atomics.pause` would be added to an
/// object that the prelude has removed from the snapshot, and V8 aborts if it is not there.
const FLAGS: &str = "--single-threaded --enable-queue-microtask --no-js-atomics-pause";

/// In messages of V8 that are about memory.
const OF_MEMORY: [&str; 2] = ["invalid size error", "out of memory"];

/// Why V8 cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum V8StartError {
    #[error("V8 must be initialised before other threads exist, and there are {0} already")]
    OtherThreads(usize),
    #[error("the threads of this process cannot be counted: {0}")]
    Uncounted(io::Error),
    #[error("the thread of V8 cannot be started: {0}")]
    NoThread(io::Error),
}

/// How V8 protects the pages of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    /// By a memory protection key, if the processor has them.
    Key,
    None,
}

/// What all isolates share.
pub(super) struct V8Process {
    pub(super) snapshot: Snapshot,
    pub(super) ticker: Arc<Ticker>,
}

static SHARED: OnceLock<V8Process> = OnceLock::new();
/// Held by the one that initialises.
static STARTING: Mutex<()> = Mutex::new(());

/// Initialises V8, if it is not.
pub(super) fn start(protection: Protection) -> Result<(), V8StartError> {
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if SHARED.get().is_some() {
        return Ok(());
    }
    if protection == Protection::Key {
        let others = other_threads().map_err(V8StartError::Uncounted)?;
        if others > 0 {
            return Err(V8StartError::OtherThreads(others));
        }
    }
    v8::V8::set_flags_from_string(FLAGS);
    v8::V8::set_fatal_error_handler(gives_up);
    let platform = match protection {
        Protection::Key => v8::new_single_threaded_default_platform(false),
        // It has one thread, which has nothing to do.
        Protection::None => v8::new_unprotected_default_platform(1, false),
    };
    v8::V8::initialize_platform(platform.make_shared());
    v8::V8::initialize();
    let ticker = Ticker::start().map_err(V8StartError::NoThread)?;
    let _ = SHARED.set(V8Process { snapshot: Snapshot::make(), ticker });
    Ok(())
}

/// What all isolates share.
///
/// # Panics
/// Before V8 is initialised, which a value of `V8` rules out.
pub(super) fn shared() -> &'static V8Process {
    SHARED.get().expect("a value of V8 exists")
}

/// V8 is about to abort the process. A length that no limit allows is a matter of memory, and so is memory that the system refuses.
fn gives_up(_file: &str, _line: i32, message: &str) {
    if OF_MEMORY.iter().any(|words| message.contains(words)) {
        return exhausted();
    }
    // Not by the signal of an engine that is refused memory.
    let _ = kill_process(getpid(), Signal::ILL);
}

fn other_threads() -> io::Result<usize> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    Ok(threads.saturating_sub(1))
}
