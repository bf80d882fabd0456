//! An isolate of V8: a heap, and a new context in it from the snapshot.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::callbacks;
use super::heap::Heap;
use super::modules::{self, ModuleFault, ModuleTable};
use super::start::shared;
use super::state::IsolateState;
use crate::bridge::Bridge;
use crate::end::{FunctionEnd, ThrownError};
use crate::engine::{Isolate, JobRun, LiveIsolate, PreludeEntry};
use crate::function::FunctionSource;

/// A value without a description.
const UNKNOWN: &str = "an error that cannot be described";
/// What V8 adds to a context that comes from a snapshot, and a script must not find.
const ADDED_LATER: [&str; 2] = ["SharedArrayBuffer", "WebAssembly"];

pub(super) struct V8Isolate {
    /// `None` only while it is dropped. Behind a cell, because V8 measures a heap by a mutable reference.
    heap: RefCell<Option<Heap>>,
    handles: Option<Handles>,
    state: Rc<IsolateState>,
    /// Whether every script ended by itself.
    sound: Cell<bool>,
    /// Whether no job is pending: none of this context may run in a later one.
    drained: bool,
    live: LiveIsolate,
}

/// The context, and the entry function of its prelude.
struct Handles {
    context: v8::Global<v8::Context>,
    enter: v8::Global<v8::Function>,
}

/// Why JavaScript failed.
enum Failed {
    /// An exception is pending, or a termination.
    Script,
    /// This was thrown.
    Value(v8::Global<v8::Value>),
    /// The modules cannot be used.
    Module(String),
}

impl V8Isolate {
    pub(super) fn new(bridge: Rc<Bridge>) -> Result<Self, FunctionEnd> {
        let live = LiveIsolate::new();
        let mut heap = Heap::take(bridge.limits());
        let state = IsolateState::new(bridge, Arc::clone(&heap.guard.meter), Arc::clone(&heap.ticked));
        heap.isolate.set_slot(Rc::clone(&state));
        let handles = Handles::of(&mut heap.isolate);
        // A limit that has no room for the prelude is exceeded by now.
        let is_full = state.meter.measured(heap.bytes());
        let sound = Cell::new(!is_full && handles.is_some());
        let made = Self { heap: RefCell::new(Some(heap)), handles, state, sound, drained: true, live };
        if made.sound.get() { Ok(made) } else { Err(FunctionEnd::Memory) }
    }

    /// Runs JavaScript, and turns what it throws into the end of the call.
    fn guarded<F>(&mut self, run: F) -> Result<(), FunctionEnd>
    where
        F: for<'s, 'i> FnOnce(&mut v8::PinScope<'s, 'i>, v8::Local<'s, v8::Function>) -> Result<(), Failed>,
    {
        self.live.assert_newest();
        let (Some(heap), Some(handles)) = (self.heap.get_mut(), &self.handles) else {
            return Err(FunctionEnd::Memory);
        };
        self.drained = false;
        let running = shared().ticker.run(&self.state.ticked);
        let result = {
            v8::scope!(let scope, &mut heap.isolate);
            let context = v8::Local::new(scope, &handles.context);
            let scope = &mut v8::ContextScope::new(scope, context);
            v8::tc_scope!(let scope, scope);
            let enter = v8::Local::new(scope, &handles.enter);
            match run(scope, enter) {
                Ok(()) => Ok(()),
                Err(Failed::Module(message)) => Err(FunctionEnd::Module(message)),
                Err(Failed::Script) if !scope.has_terminated() && scope.exception().is_some() => {
                    let value = scope.exception();
                    scope.reset();
                    Err(FunctionEnd::Thrown(described(scope, enter, value)))
                }
                Err(Failed::Script) => Err(FunctionEnd::Thrown(ThrownError::new("Error", UNKNOWN))),
                Err(Failed::Value(value)) => {
                    let value = v8::Local::new(scope, &value);
                    Err(FunctionEnd::Thrown(described(scope, enter, Some(value))))
                }
            }
        };
        drop(running);
        self.check()?;
        result.map_err(|end| {
            self.sound.set(false);
            if let FunctionEnd::Thrown(thrown) = end { self.classify(thrown) } else { end }
        })
    }

    /// The end of a call that was stopped, or has no memory left.
    fn check(&self) -> Result<(), FunctionEnd> {
        let meter = &self.state.meter;
        if meter.is_below_v8() {
            meter.measured(self.heap_bytes());
        }
        let end = if meter.is_exceeded() { Some(FunctionEnd::Memory) } else { self.state.bridge.stopped() };
        self.sound.set(self.sound.get() && end.is_none());
        end.map_or(Ok(()), Err)
    }

    fn heap_bytes(&self) -> usize {
        self.heap.borrow_mut().as_mut().map_or(0, Heap::bytes)
    }
}

impl Handles {
    /// A new context, with the entry function of the prelude.
    fn of(isolate: &mut v8::OwnedIsolate) -> Option<Self> {
        v8::scope!(let scope, isolate);
        let context = v8::Context::new(scope, v8::ContextOptions::default());
        context.set_allow_generation_from_strings(false);
        let scope = &mut v8::ContextScope::new(scope, context);
        for added in ADDED_LATER {
            let added = v8::String::new(scope, added)?;
            context.global(scope).delete(scope, added.into())?;
        }
        let enter = shared().snapshot.take_entry(scope)?;
        Some(Self { context: v8::Global::new(scope, context), enter: v8::Global::new(scope, enter) })
    }
}

impl Isolate for V8Isolate {
    fn load(&mut self, source: &FunctionSource) -> Result<(), FunctionEnd> {
        *self.state.modules.borrow_mut() = ModuleTable::new(source);
        let (name, _) = source.entry();
        self.guarded(|scope, enter| {
            let module = linked(scope, name)?;
            let evaluated = module.evaluate(scope).ok_or(Failed::Script)?;
            let load = v8::String::new(scope, "load").ok_or(Failed::Script)?;
            let namespace = module.get_module_namespace();
            call(scope, enter, &[load.into(), evaluated, namespace])
        })
    }

    fn enter(&mut self, entry: PreludeEntry<'_>) -> Result<(), FunctionEnd> {
        let (op, first, second) = entry.arguments();
        self.guarded(|scope, enter| {
            let text = |text: &str| v8::String::new(scope, text).ok_or(Failed::Script);
            let (op, first, second) = (text(op)?, text(first)?, text(second)?);
            call(scope, enter, &[op.into(), first.into(), second.into()])
        })
    }

    /// V8 executes all jobs at once.
    fn run_job(&mut self) -> Result<JobRun, FunctionEnd> {
        self.live.assert_newest();
        if let Some(heap) = self.heap.get_mut() {
            let _running = shared().ticker.run(&self.state.ticked);
            heap.isolate.perform_microtask_checkpoint();
            self.drained = true;
        }
        self.check()?;
        if let Some(thrown) = self.state.take_uncaught() {
            self.guarded(|_, _| Err(Failed::Value(thrown)))?;
        }
        Ok(JobRun::NonePending)
    }

    fn unhandled_rejection(&mut self) -> Option<FunctionEnd> {
        let reason = self.state.take_rejection()?;
        Some(match self.guarded(|_, _| Err(Failed::Value(reason))) {
            Err(FunctionEnd::Thrown(thrown)) => FunctionEnd::UnhandledRejection(thrown),
            Err(end) => end,
            Ok(()) => FunctionEnd::UnhandledRejection(ThrownError::new("Error", UNKNOWN)),
        })
    }

    fn classify(&self, thrown: ThrownError) -> FunctionEnd {
        match (thrown.name.as_str(), thrown.message.as_str()) {
            ("RangeError", "Array buffer allocation failed") => FunctionEnd::Memory,
            ("RangeError", "Maximum call stack size exceeded") => FunctionEnd::Stack,
            _ => FunctionEnd::Thrown(thrown),
        }
    }

    fn memory_bytes(&self) -> u64 {
        u64::try_from(self.heap_bytes().saturating_add(self.state.meter.buffers())).unwrap_or(u64::MAX)
    }
}

impl Drop for V8Isolate {
    fn drop(&mut self) {
        self.handles = None;
        self.state.clear();
        let Some(heap) = self.heap.get_mut().take() else { return };
        if !self.live.is_newest() {
            // The place in the thread's order panics when it is dropped.
            heap.leak();
        } else if self.sound.get() && self.drained {
            heap.spare();
        } else {
            heap.end();
        }
    }
}

/// Compiles the modules of a function, and links them.
fn linked<'s>(scope: &mut v8::PinScope<'s, '_>, name: &str) -> Result<v8::Local<'s, v8::Module>, Failed> {
    v8::tc_scope!(let scope, scope);
    let fault = match modules::compiled(scope, name) {
        Ok(module) if module.instantiate_module(scope, callbacks::resolve_module).is_some() => {
            return Ok(module);
        }
        Ok(_) | Err(ModuleFault::Thrown) => {
            let (error, place) = (scope.exception(), scope.message());
            scope.reset();
            modules::syntax_error(scope, name, error, place)
        }
        Err(ModuleFault::Unresolved(message)) => format!("ReferenceError: {message} ({name})"),
    };
    Err(Failed::Module(fault))
}

fn call<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    enter: v8::Local<'s, v8::Function>,
    arguments: &[v8::Local<'s, v8::Value>],
) -> Result<(), Failed> {
    let receiver = v8::undefined(scope).into();
    enter.call(scope, receiver, arguments).map(|_| ()).ok_or(Failed::Script)
}

/// A thrown value as text. The prelude describes it, so that a getter of a thrown object runs under the limits.
fn described<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    enter: v8::Local<'s, v8::Function>,
    value: Option<v8::Local<'s, v8::Value>>,
) -> ThrownError {
    let unknown = || ThrownError::new("Error", UNKNOWN);
    let (Some(value), Some(op)) = (value, v8::String::new(scope, "describe")) else { return unknown() };
    let receiver = v8::undefined(scope).into();
    let Some(text) = enter.call(scope, receiver, &[op.into(), value]) else { return unknown() };
    let text = text.to_rust_string_lossy(scope);
    serde_json::from_str::<ThrownError>(&text).map_or_else(|_| unknown(), ThrownError::bounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::begin;
    use crate::engine::v8::V8;
    use crate::limits::FunctionLimits;

    fn isolate() -> V8Isolate {
        V8::initialize_among_threads().expect("it starts");
        V8Isolate::new(Bridge::new(&FunctionLimits::default())).expect("there is memory")
    }

    /// Loads a function into a new context, and returns the ids of its scripts: V8 gives out another one for each that it compiles.
    fn scripts_of(text: &str) -> Vec<i32> {
        let mut isolate = isolate();
        begin(&isolate.state.bridge);
        isolate.load(&FunctionSource::single("test.js", text)).expect("it is loaded");
        isolate.run_job().expect("there is none that fails");
        isolate.state.modules.borrow().script_ids()
    }

    #[test]
    fn a_function_is_compiled_once_for_all_contexts_of_a_heap() {
        let first = scripts_of("export default () => 1");
        assert_eq!(first.len(), 1);
        let other = scripts_of("export default () => 2");
        assert_ne!(other, first, "another function");
        for _ in 0..3 {
            assert_eq!(scripts_of("export default () => 1"), first);
            assert_eq!(scripts_of("export default () => 2"), other);
        }
    }

    #[test]
    fn isolates_are_created_and_dropped_like_a_stack() {
        for _ in 0..100 {
            let outer = isolate();
            drop(isolate());
            drop(outer);
        }
    }

    #[test]
    #[should_panic(expected = "dropped before a newer one")]
    fn two_isolates_are_not_interleaved() {
        let older = isolate();
        let newer = isolate();
        drop(older);
        drop(newer);
    }

    #[test]
    #[should_panic(expected = "runs while a newer one")]
    fn an_older_isolate_does_not_execute() {
        let mut older = isolate();
        let _newer = isolate();
        let _ = older.enter(PreludeEntry::Abort);
    }
}
