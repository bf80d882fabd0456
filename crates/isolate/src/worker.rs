//! The function worker: runs calls on one thread, each in a fresh isolate or in a warm one.

use std::rc::Rc;

use crate::bridge::{Bridge, Settled};
use crate::call::FunctionCall;
use crate::end::{FunctionEnd, ThrownError};
use crate::engine::{Engine, Isolate, PreludeEntry};
use crate::function::FunctionSource;
use crate::limits::FunctionLimits;
use crate::pump;
use crate::watchdog::ThreadWatch;

/// Calls between two looks at a warm isolate's memory, which cost a walk over its heap.
const CALLS_PER_MEMORY_CHECK: u32 = 64;

/// Whether calls share an isolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Each call has an isolate of its own: nothing of an earlier call is left.
    Fresh,
    /// Calls of the same function share an isolate while nothing goes wrong: globals and the state of its modules stay. What an earlier
    /// call still waits for is dropped.
    Warm(WarmPolicy),
}

/// When a warm isolate is dropped. It always is after a call that failed, and before a call of another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmPolicy {
    /// Calls that one isolate runs.
    pub calls: u32,
    /// Memory in use after a call.
    pub memory_bytes: u64,
}

impl Default for WarmPolicy {
    fn default() -> Self {
        Self { calls: 10_000, memory_bytes: 16 << 20 }
    }
}

/// Runs calls, one at a time, on the thread that created it.
pub struct FunctionWorker {
    engine: Box<dyn Engine>,
    limits: FunctionLimits,
    reuse: Reuse,
    warm: Option<WarmIsolate>,
    watch: Option<ThreadWatch>,
}

/// An isolate that has run calls of one function.
struct WarmIsolate {
    function: [u8; 32],
    isolate: Box<dyn Isolate>,
    bridge: Rc<Bridge>,
    calls: u32,
}

impl FunctionWorker {
    /// A worker without a watchdog.
    #[must_use]
    pub fn new(engine: Box<dyn Engine>, limits: FunctionLimits, reuse: Reuse) -> Self {
        Self { engine, limits, reuse, warm: None, watch: None }
    }

    /// The same, with a watchdog for this thread.
    #[must_use]
    pub fn watched(self, watch: ThreadWatch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// The engine, to read functions with.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Runs one call. The output is JSON text, or `None` if the function returned nothing that JSON has.
    ///
    /// # Errors
    /// Why there is no output.
    pub fn run(
        &mut self,
        function: &FunctionSource,
        call: FunctionCall,
    ) -> Result<Option<String>, FunctionEnd> {
        let _watched = self.watch.as_ref().map(|watch| watch.begin(&call.signal, &self.limits));
        let hash = function.hash();
        let kept = self.warm.take().filter(|warm| warm.function == hash);
        let (mut warm, load) = match kept {
            Some(warm) => (warm, None),
            None => {
                let bridge = Bridge::new(&self.limits);
                let isolate = self.engine.isolate(Rc::clone(&bridge))?;
                (WarmIsolate { function: hash, isolate, bridge, calls: 0 }, Some(function))
            }
        };
        let output = warm.call(load, call)?;
        warm.bridge.finish();
        warm.calls += 1;
        if self.reuse.keeps(&warm) {
            self.warm = Some(warm);
        }
        Ok(output)
    }
}

impl Reuse {
    fn keeps(self, warm: &WarmIsolate) -> bool {
        match self {
            Self::Fresh => false,
            Self::Warm(policy) => {
                let checked = warm.calls == 1 || warm.calls.is_multiple_of(CALLS_PER_MEMORY_CHECK);
                warm.calls < policy.calls && !(checked && warm.isolate.memory_bytes() > policy.memory_bytes)
            }
        }
    }
}

impl WarmIsolate {
    /// Loads the function, if it is not loaded, and calls it.
    fn call(
        &mut self,
        load: Option<&FunctionSource>,
        call: FunctionCall,
    ) -> Result<Option<String>, FunctionEnd> {
        let FunctionCall { payload, info, host, signal, mailbox } = call;
        let isolate = &mut *self.isolate;
        self.bridge.begin(host, signal, mailbox);
        if let Some(function) = load {
            isolate.load(function)?;
            match pump::drive(isolate, &self.bridge)? {
                Settled::Loaded => {}
                Settled::Fault(message) => return Err(FunctionEnd::Module(message)),
                Settled::Threw(thrown) => return Err(isolate.classify(thrown)),
                Settled::Output(_) => return Err(reported_too_early()),
            }
        }
        let info = serde_json::to_string(&info).unwrap_or_else(|_| "{}".to_owned());
        isolate.enter(PreludeEntry::Call { payload: &payload, info: &info })?;
        match pump::drive(isolate, &self.bridge)? {
            Settled::Output(output) => Ok(output),
            // What a function throws after a cancellation is its way to stop.
            Settled::Threw(_) if self.bridge.is_cancelled() => Err(FunctionEnd::Cancelled),
            Settled::Threw(thrown) => Err(isolate.classify(thrown)),
            Settled::Loaded | Settled::Fault(_) => Err(reported_too_early()),
        }
    }
}

/// The prelude reports in order, so only a script that got hold of its host function can cause this.
fn reported_too_early() -> FunctionEnd {
    FunctionEnd::Thrown(ThrownError::new("Error", "the function reported a result out of order"))
}
