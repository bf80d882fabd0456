//! An isolate of QuickJS: a runtime of its own with one context.

use std::cell::RefCell;
use std::rc::Rc;

use rquickjs::context::intrinsic::{
    Date, Eval, Json, MapSet, Promise, Proxy, RegExp, RegExpCompiler, TypedArrays, WeakRef,
};
use rquickjs::{CatchResultExt as _, Context, Ctx, Error, Exception, Function, Persistent, Runtime, Value};

use super::compiled::CompiledCode;
use super::modules::{Modules, syntax_error};
use crate::bridge::Bridge;
use crate::end::{FunctionEnd, ThrownError};
use crate::engine::{Isolate, JobRun, LiveIsolate, PreludeEntry};
use crate::function::FunctionSource;

/// What a script finds of the language itself. There is no `performance`.
pub(super) type Intrinsics =
    (Date, Eval, RegExpCompiler, RegExp, Json, Proxy, MapSet, TypedArrays, Promise, WeakRef);

/// Rejected promises that may be without a handler at one time. A lookup is linear, and no script can be interrupted in it.
const MAX_REJECTIONS: usize = 1_000;
/// Bytes that are allocated before cycles are collected for the first time.
const FIRST_GC_BYTES: usize = 1 << 20;
/// A value without a description.
const UNKNOWN: &str = "an error that cannot be described";

/// A rejected promise without a handler, and the reason.
struct Rejection {
    promise: Persistent<Value<'static>>,
    reason: Persistent<Value<'static>>,
}

type Rejections = Rc<RefCell<Vec<Rejection>>>;

/// Fields are dropped in this order: values, context, runtime, and then the place in the thread's order.
pub(super) struct QuickIsolate {
    rejections: Rejections,
    enter: Persistent<Function<'static>>,
    context: Context,
    runtime: Runtime,
    modules: Modules,
    code: Rc<CompiledCode>,
    bridge: Rc<Bridge>,
    live: LiveIsolate,
}

impl QuickIsolate {
    pub(super) fn new(bridge: Rc<Bridge>, code: Rc<CompiledCode>) -> Result<Self, FunctionEnd> {
        code.prelude();
        let live = LiveIsolate::new();
        let no_memory = |_: Error| FunctionEnd::Memory;
        let runtime = Runtime::new().map_err(no_memory)?;
        let limits = bridge.limits();
        runtime.set_max_stack_size(limits.stack_bytes);
        runtime.set_gc_threshold(FIRST_GC_BYTES.min(limits.memory_bytes / 4));
        let context = Context::custom::<Intrinsics>(&runtime).map_err(no_memory)?;
        let modules = Modules::default();
        runtime.set_loader(modules.clone(), modules.clone());
        let rejections = Rejections::default();
        track(&runtime, &rejections);
        let enter = context.with(|ctx| run_prelude(&ctx, &bridge, &code));
        let enter = enter.unwrap_or_else(|error| panic!("the prelude fails: {error}"));
        // From here on the limits count.
        runtime.set_memory_limit(limits.memory_bytes.max(1));
        let asked = Rc::clone(&bridge);
        runtime.set_interrupt_handler(Some(Box::new(move || asked.must_stop())));
        Ok(Self { rejections, enter, context, runtime, modules, code, bridge, live })
    }

    /// Runs JavaScript, and turns what it throws into the end of the call.
    fn guarded<F>(&self, run: F) -> Result<(), FunctionEnd>
    where
        F: for<'js> FnOnce(&Ctx<'js>, &Function<'js>) -> Result<(), Failed>,
    {
        self.live.assert_newest();
        let result = self.context.with(|ctx| {
            let enter = self.enter.clone().restore(&ctx).map_err(Failed::Script)?;
            run(&ctx, &enter).map_err(|failed| match failed {
                Failed::Script(error) => Failed::Described(described(&ctx, &enter, &error)),
                other @ (Failed::Described(_) | Failed::Module(_)) => other,
            })
        });
        if let Some(end) = self.bridge.stopped() {
            return Err(end);
        }
        match result {
            Ok(()) => Ok(()),
            Err(Failed::Described(thrown)) => Err(self.classify(thrown)),
            Err(Failed::Module(message)) => Err(FunctionEnd::Module(message)),
            Err(Failed::Script(error)) => Err(self.classify(ThrownError::new("Error", error.to_string()))),
        }
    }

    /// The heap is walked for it, so it is asked after failures only.
    fn is_nearly_full(&self) -> bool {
        let limit = u64::try_from(self.bridge.limits().memory_bytes).unwrap_or(u64::MAX);
        self.memory_bytes() >= limit - limit / 8
    }
}

/// Why JavaScript failed.
enum Failed {
    /// An exception is pending.
    Script(Error),
    /// The exception, taken.
    Described(ThrownError),
    /// The modules cannot be used.
    Module(String),
}

impl Isolate for QuickIsolate {
    fn load(&mut self, source: &FunctionSource) -> Result<(), FunctionEnd> {
        let hash = source.hash();
        self.modules.set(source, self.code.functions.borrow().find(&hash));
        let (name, _) = source.entry();
        let nearly_full = self.guarded(|ctx, enter| {
            let faulty = |error: Error| Failed::Module(syntax_error(ctx, name, &error));
            let module = self.modules.declare(ctx, name).map_err(faulty)?;
            // Before anything of it is executed.
            self.code.functions.borrow_mut().keep(hash, self.modules.take_compiled());
            // Evaluation itself reports through the promise; what throws here is the linking.
            let (module, evaluated) = module.eval().map_err(faulty)?;
            let namespace = module.namespace().map_err(Failed::Script)?;
            enter.call(("load", evaluated, namespace)).map_err(Failed::Script)
        });
        match nearly_full {
            Err(FunctionEnd::Module(_)) if self.is_nearly_full() => Err(FunctionEnd::Memory),
            loaded => loaded,
        }
    }

    fn enter(&mut self, entry: PreludeEntry<'_>) -> Result<(), FunctionEnd> {
        self.guarded(|_, enter| enter.call(entry.arguments()).map_err(Failed::Script))
    }

    fn run_job(&mut self) -> Result<JobRun, FunctionEnd> {
        match self.runtime.execute_pending_job() {
            Ok(true) => Ok(JobRun::Executed),
            Ok(false) => Ok(JobRun::NonePending),
            Err(_) => {
                // The exception is pending in the only context that there is.
                self.guarded(|_, _| Err(Failed::Script(Error::Exception)))?;
                Ok(JobRun::Executed)
            }
        }
    }

    fn unhandled_rejection(&mut self) -> Option<FunctionEnd> {
        let first = self.rejections.borrow_mut().drain(..).next()?;
        let ended = self.guarded(|ctx, _| {
            let reason = first.reason.restore(ctx).map_err(Failed::Script)?;
            Err(Failed::Script(ctx.throw(reason)))
        });
        Some(match ended {
            Err(FunctionEnd::Thrown(thrown)) => FunctionEnd::UnhandledRejection(thrown),
            Err(end) => end,
            Ok(()) => FunctionEnd::UnhandledRejection(ThrownError::new("Error", UNKNOWN)),
        })
    }

    fn classify(&self, thrown: ThrownError) -> FunctionEnd {
        match (thrown.name.as_str(), thrown.message.as_str()) {
            // Without a message when there is no memory for it.
            ("InternalError", "out of memory" | "") => FunctionEnd::Memory,
            ("RangeError", "Maximum call stack size exceeded") => FunctionEnd::Stack,
            // The engine throws it when there is no memory for an error. By now the script's objects are freed, so the heap tells
            // nothing. A script that throws `null` itself looks the same.
            ("", "null") => FunctionEnd::Memory,
            ("Error", UNKNOWN) if self.is_nearly_full() => FunctionEnd::Memory,
            _ => FunctionEnd::Thrown(thrown),
        }
    }

    fn memory_bytes(&self) -> u64 {
        u64::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0)
    }
}

impl Drop for QuickIsolate {
    fn drop(&mut self) {
        // The runtime aborts the process if a value outlives it, and its tracker holds the list too.
        self.rejections.borrow_mut().clear();
    }
}

/// Keeps the list of rejected promises without a handler.
fn track(runtime: &Runtime, rejections: &Rejections) {
    let rejections = Rc::clone(rejections);
    runtime.set_host_promise_rejection_tracker(Some(Box::new(move |ctx, promise, reason, is_handled| {
        let promise = Persistent::save(&ctx, promise);
        let mut rejections = rejections.borrow_mut();
        if is_handled {
            rejections.retain(|rejection| rejection.promise != promise);
        } else if rejections.len() < MAX_REJECTIONS {
            rejections.push(Rejection { promise, reason: Persistent::save(&ctx, reason) });
        }
    })));
}

/// Executes the prelude, and returns its entry function.
fn run_prelude(
    ctx: &Ctx<'_>,
    bridge: &Rc<Bridge>,
    code: &Rc<CompiledCode>,
) -> Result<Persistent<Function<'static>>, String> {
    let made = make_entry(ctx, bridge, code).catch(ctx).map_err(|error| error.to_string())?;
    Ok(Persistent::save(ctx, made))
}

fn make_entry<'js>(
    ctx: &Ctx<'js>,
    bridge: &Rc<Bridge>,
    code: &Rc<CompiledCode>,
) -> rquickjs::Result<Function<'js>> {
    let bridge = Rc::clone(bridge);
    let host = Function::new(ctx.clone(), move |ctx: Ctx<'js>, op: String, text: String| {
        bridge.host(&op, &text).map_err(|message| Exception::throw_type(&ctx, &message))
    })?;
    let parts = Rc::clone(code);
    let part = Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: String| {
        let part = parts.prelude().part(&ctx, &name);
        part.unwrap_or_else(|| Err(Exception::throw_type(&ctx, "no such part")))
    })?;
    code.prelude().core(ctx)?.call((host, part))
}

/// The pending exception as text. The prelude describes it, so that a getter of a thrown object runs under the limits.
fn described<'js>(ctx: &Ctx<'js>, enter: &Function<'js>, error: &Error) -> ThrownError {
    if !error.is_exception() {
        return ThrownError::new("Error", error.to_string());
    }
    let value = ctx.catch();
    let described: rquickjs::Result<String> = enter.call(("describe", value));
    match described {
        Ok(text) => serde_json::from_str::<ThrownError>(&text)
            .unwrap_or_else(|_| ThrownError::new("Error", UNKNOWN))
            .bounded(),
        Err(_) => {
            ctx.catch();
            ThrownError::new("Error", UNKNOWN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FunctionLimits;

    fn isolate() -> QuickIsolate {
        let bridge = Bridge::new(&FunctionLimits::default());
        QuickIsolate::new(bridge, Rc::default()).expect("there is memory")
    }

    #[test]
    fn isolates_are_created_and_dropped_like_a_stack() {
        for _ in 0..200 {
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

    #[test]
    fn a_function_is_compiled_once() {
        let code = Rc::<CompiledCode>::default();
        let mut kept = None;
        for _ in 0..3 {
            let bridge = Bridge::new(&FunctionLimits::default());
            let mut isolate =
                QuickIsolate::new(Rc::clone(&bridge), Rc::clone(&code)).expect("there is memory");
            let source = FunctionSource::single("test.js", "export default () => 1");
            isolate.load(&source).expect("it is right");
            let now = code.functions.borrow().find(&source.hash()).expect("it is kept");
            assert!(Rc::ptr_eq(kept.get_or_insert_with(|| Rc::clone(&now)), &now));
        }
    }
}
