//! V8, behind the feature `v8`.
//!
//! Rules of the engine that the code relies on, each with its test in `tests/isolate`, unless it names another:
//!
//! - **Threads that exist before V8 is initialised cannot run it** where the processor has memory protection keys: they get no access to
//!   its pages. So [`V8::initialize`] refuses to be second (`tests/v8_start.rs`), and a value of [`V8`] is the proof that it has run.
//! - **V8 uses no threads of its own here** (`--single-threaded`): compilers and garbage collection count as CPU time of the call, and
//!   a process that may not create threads runs it. The ticker is the only thread, and is started with it (`hosts.rs` counts them).
//! - **There is no handler that V8 polls.** The ticker asks a running isolate to interrupt itself, and the isolate asks the bridge, on its
//!   own thread, as QuickJS does. A script inside of a builtin that is never interrupted is deaf (`deaf.rs`).
//! - **A termination cannot be caught by a script**, and stays pending if no script notices it: the isolate is dropped then (`bombs.rs`).
//! - **Near the heap limit, V8 asks once for more memory, and aborts the process the next time.** It gets more, for the script to come to
//!   a point where it is terminated (`src/engine/v8/memory.rs`). A builtin that needs still more is the end of the process (`bombs.rs`).
//! - **Buffers are outside of the heap.** Their allocator counts them, and refuses what exceeds the limit together with the heap.
//!   V8 takes a refusal for the last of its memory, so the call ends. Resizable buffers do not use the allocator, so there are none
//!   (`v8.rs`).
//! - **A context shares nothing with an earlier one of the same heap**, so a heap serves further calls, each in a new context
//!   (`leaks.rs`, `heap.rs`). One whose call was stopped, or left jobs behind, is dropped.
//! - **Contexts are created from a snapshot that has executed the prelude.** What V8 adds to a context afterwards is removed again:
//!   `WebAssembly` and `SharedArrayBuffer` (`escapes.rs`). `Error.stackTraceLimit` stays, because without it no error has a stack.
//! - **`Error.prepareStackTrace` of a script is never called**, because the isolate has a callback in its place; call sites would show
//!   the functions of the prelude (`escapes.rs`).
//! - **Without the data of locales V8 aborts the process**, at the first text of a date in a locale. So `adapt.js` replaces all functions
//!   that need them, and there is one locale, as in QuickJS (`differences.rs`).
//! - **The heap limit is not hard**: one long text may exceed it by half a gigabyte before V8 notices (`bombs.rs`, "long text as JSON"). The
//!   bound of the process is the last word (`host_bombs.rs`).
//! - **V8 aborts its process when it has no memory to go on with**, and when an array is longer than any may be. It calls a handler first,
//!   by which a host sends the result of its task (`host_bombs.rs`).
//!
//! A slot of the isolate leads from a callback back to its state. `callbacks.rs` is the only file of the engine with `unsafe` in it.

mod callbacks;
mod heap;
mod isolate;
mod memory;
mod modules;
mod snapshot;
mod stack;
mod start;
mod state;
mod ticker;

use std::rc::Rc;

use crate::bridge::Bridge;
use crate::end::FunctionEnd;
use crate::engine::{Engine, Isolate};

pub use start::V8StartError;

/// The engine V8. A value of it exists only when V8 is initialised.
#[derive(Clone, Copy, Debug)]
pub struct V8(());

impl V8 {
    /// Initialises V8. A program calls it first of all in `main`: where the processor has memory protection keys, V8 protects its code by
    /// one, which only threads can use that are created afterwards. A later call returns the same.
    ///
    /// # Errors
    /// When other threads exist already.
    pub fn initialize() -> Result<Self, V8StartError> {
        start::start(start::Protection::Key).map(|()| Self(()))
    }

    /// The same for a program that has threads already. No key protects the code of V8: for tests.
    ///
    /// # Errors
    /// When the ticker cannot be started.
    pub fn initialize_among_threads() -> Result<Self, V8StartError> {
        start::start(start::Protection::None).map(|()| Self(()))
    }
}

impl Engine for V8 {
    fn imports(&self, name: &str, source: &str) -> Result<Vec<String>, String> {
        modules::imports(name, source)
    }

    fn isolate(&self, bridge: Rc<Bridge>) -> Result<Box<dyn Isolate>, FunctionEnd> {
        Ok(Box::new(isolate::V8Isolate::new(bridge)?))
    }
}
