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

/// Calls between two looks at a warm isolate's memory, which cost a walk over its heap. Fewer if it grows quickly.
const MAX_CALLS_PER_MEMORY_CHECK: u32 = 512;

/// Whether calls share an isolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Reuse {
    /// Each call has an isolate of its own: nothing of an earlier call is left.
    Fresh,
    /// Calls of the same function share an isolate while nothing goes wrong: globals and the state of its modules stay. What an earlier
    /// call still waits for is dropped.
    Warm(WarmPolicy),
}

/// When a warm isolate is dropped. It always is after a call that failed, and before a call of another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// Its memory at the last look, and the calls that it had run then.
    measured: (u64, u32),
    /// How many calls it runs before the next look.
    next_look: u32,
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

    /// The memory of the warm isolate, if there is one: heap, strings and buffers. Costs a walk over its heap.
    #[must_use]
    pub fn warm_memory_bytes(&self) -> Option<u64> {
        self.warm.as_ref().map(|warm| warm.isolate.memory_bytes())
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
        let wall = call.wall.unwrap_or(self.limits.wall);
        let _watched = self.watch.as_ref().map(|watch| watch.begin(&call.signal, self.limits.cpu, wall));
        let hash = function.hash();
        let kept = self.warm.take().filter(|warm| warm.function == hash);
        let (mut warm, load) = match kept {
            Some(warm) => (warm, None),
            None => {
                let bridge = Bridge::new(&self.limits);
                let isolate = self.engine.isolate(Rc::clone(&bridge))?;
                (
                    WarmIsolate { function: hash, isolate, bridge, calls: 0, measured: (0, 0), next_look: 1 },
                    Some(function),
                )
            }
        };
        let output = warm.call(load, call)?;
        warm.bridge.finish();
        warm.calls += 1;
        if self.reuse.keeps(&mut warm) {
            self.warm = Some(warm);
        }
        Ok(output)
    }
}

impl Reuse {
    fn keeps(self, warm: &mut WarmIsolate) -> bool {
        match self {
            Self::Fresh => false,
            Self::Warm(policy) => warm.calls < policy.calls && warm.has_room(policy.memory_bytes),
        }
    }
}

impl WarmIsolate {
    /// Whether its memory is below the mark, as far as it is due to be looked at.
    fn has_room(&mut self, mark: u64) -> bool {
        if self.calls < self.next_look {
            return true;
        }
        let bytes = self.isolate.memory_bytes();
        let (before, calls_before) = self.measured;
        let growth = bytes.saturating_sub(before) / u64::from(self.calls - calls_before).max(1);
        // Half of the calls that would reach the mark at this rate.
        let calls = mark.saturating_sub(bytes) / growth.max(1) / 2;
        let calls = u32::try_from(calls).unwrap_or(u32::MAX).clamp(1, MAX_CALLS_PER_MEMORY_CHECK);
        self.measured = (bytes, self.calls);
        self.next_look = self.calls.saturating_add(calls);
        bytes <= mark
    }

    /// Loads the function, if it is not loaded, and calls it.
    fn call(
        &mut self,
        load: Option<&FunctionSource>,
        call: FunctionCall,
    ) -> Result<Option<String>, FunctionEnd> {
        let FunctionCall { payload, info, host, signal, mailbox, wall } = call;
        let isolate = &mut *self.isolate;
        self.bridge.begin(host, signal, mailbox, wall);
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
        // The mail of a cancellation may have been read while the modules were loaded. A second abort changes nothing.
        if self.bridge.is_cancelled() {
            isolate.enter(PreludeEntry::Abort)?;
        }
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
