//! QuickJS, built in.
//!
//! Rules of the engine that the code relies on, each with its test in `tests/isolate`:
//!
//! - **The interrupt handler is asked once in 10,000 polls, and most builtins never poll.** A script inside of such a builtin cannot be
//!   ended on its thread; the watchdog reports it (`deaf.rs`).
//! - **An interrupt is an error that no script can catch**, in promise jobs too (`bombs.rs`). Before rquickjs 0.12 one in a promise job
//!   aborted the process, hence the exact version in the manifest.
//! - **The memory limit counts everything that the engine allocates**: objects, strings, buffers. It has no effect with the feature
//!   `rust-alloc` of rquickjs. An allocation that fails throws `InternalError: out of memory`, or `null` when there is no memory for the
//!   error: so an uncaught `null` is classed as memory (`bombs.rs`).
//! - **A context must not be created under a memory limit**: rquickjs ignores that an intrinsic could not be added. The limit is set
//!   when the prelude has run (`crossing.rs`).
//! - **Bytecode is trusted like native code**, so an engine loads only what it has compiled itself, from memory (`bytecode.rs`,
//!   `docs/decisions/0031-compiled-code.md`). It is read within the limits of a call, and may fail there (`compiled.rs`, `crossing.rs`).

mod bytecode;
mod compiled;
mod isolate;
mod modules;

use std::rc::Rc;

use self::compiled::CompiledCode;
use crate::bridge::Bridge;
use crate::end::FunctionEnd;
use crate::engine::{Engine, Isolate};

/// The engine QuickJS, with the code that it has compiled.
#[derive(Clone, Default)]
pub struct QuickJs {
    code: Rc<CompiledCode>,
}

impl Engine for QuickJs {
    fn imports(&self, name: &str, source: &str) -> Result<Vec<String>, String> {
        modules::imports(name, source)
    }

    fn isolate(&self, bridge: Rc<Bridge>) -> Result<Box<dyn Isolate>, FunctionEnd> {
        Ok(Box::new(isolate::QuickIsolate::new(bridge, Rc::clone(&self.code))?))
    }
}
