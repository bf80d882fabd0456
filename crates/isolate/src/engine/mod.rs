//! The engine contract: what every JavaScript engine offers, in text.
//!
//! An engine executes the prelude and the modules of a function. Everything else is common to all engines: the limits and the host
//! function (`bridge.rs`), the loop that drives jobs, timers and answers (`pump.rs`), reuse (`worker.rs`).
//!
//! **Isolates of one thread are dropped in the reverse order of their creation**, and only the newest one may execute: V8 aborts
//! otherwise. [`LiveIsolate`] checks it for every engine. Its tests are below, and those of each engine in its `isolate.rs`:
//! `two_isolates_are_not_interleaved`, `an_older_isolate_does_not_execute`.

pub(crate) mod quickjs;
#[cfg(feature = "v8")]
pub(crate) mod v8;

use std::cell::RefCell;
use std::rc::Rc;

use crate::bridge::Bridge;
use crate::end::{FunctionEnd, ThrownError};
use crate::function::FunctionSource;

/// A JavaScript engine.
pub trait Engine {
    /// The module specifiers that a source imports statically, in order.
    ///
    /// # Errors
    /// The syntax error.
    fn imports(&self, name: &str, source: &str) -> Result<Vec<String>, String>;

    /// Creates an isolate with the limits of the bridge, with the prelude executed and no module loaded.
    ///
    /// # Errors
    /// [`FunctionEnd::Memory`] when there is no memory for it.
    fn isolate(&self, bridge: Rc<Bridge>) -> Result<Box<dyn Isolate>, FunctionEnd>;
}

/// One isolate: a heap, a global object, and the modules of one function.
///
/// Whatever a method returns as an error, the isolate is in an unknown state then, and is dropped.
pub trait Isolate {
    /// Evaluates the modules. The prelude reports the result to the host function when the evaluation is complete, which may need
    /// jobs, timers and answers.
    ///
    /// # Errors
    /// The end of the call, if it is known at once.
    fn load(&mut self, source: &FunctionSource) -> Result<(), FunctionEnd>;

    /// Calls the entry function of the prelude.
    ///
    /// # Errors
    /// The end of the call, if the script threw or was interrupted.
    fn enter(&mut self, entry: PreludeEntry<'_>) -> Result<(), FunctionEnd>;

    /// Executes one pending job, if there is one.
    ///
    /// # Errors
    /// The end of the call, if the job threw or was interrupted.
    fn run_job(&mut self) -> Result<JobRun, FunctionEnd>;

    /// The oldest promise that is rejected and has no handler.
    fn unhandled_rejection(&mut self) -> Option<FunctionEnd>;

    /// The end that a thrown error means: engines report an exhausted heap or stack as errors.
    fn classify(&self, thrown: ThrownError) -> FunctionEnd;

    /// Bytes in use by heap, strings and buffers. Costs a walk over the heap.
    fn memory_bytes(&self) -> u64;
}

/// A call of the prelude's entry function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreludeEntry<'a> {
    /// Calls the function: its payload and its [`CallInfo`](crate::CallInfo), both JSON.
    Call { payload: &'a str, info: &'a str },
    /// A timer is due.
    Timer { id: &'a str },
    /// A call of the host is answered: its id, and the answer after a letter for its sort.
    Answer { call: &'a str, answer: &'a str },
    /// A cancellation was requested.
    Abort,
}

impl<'a> PreludeEntry<'a> {
    /// The arguments of the entry function.
    #[must_use]
    pub const fn arguments(self) -> (&'static str, &'a str, &'a str) {
        match self {
            Self::Call { payload, info } => ("call", payload, info),
            Self::Timer { id } => ("timer", id, ""),
            Self::Answer { call, answer } => ("answer", call, answer),
            Self::Abort => ("abort", "", ""),
        }
    }
}

/// Whether a job was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRun {
    Executed,
    NonePending,
}

thread_local! {
    /// The isolates of this thread, oldest first.
    static LIVE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The place of an isolate in its thread's order. Not `Send`, as an isolate is not.
#[derive(Debug)]
pub(crate) struct LiveIsolate {
    id: u64,
    not_send: std::marker::PhantomData<Rc<()>>,
}

impl LiveIsolate {
    pub(crate) fn new() -> Self {
        LIVE.with_borrow_mut(|live| {
            let id = live.last().map_or(1, |last| last + 1);
            live.push(id);
            Self { id, not_send: std::marker::PhantomData }
        })
    }

    /// Whether this is the newest isolate of the thread.
    pub(crate) fn is_newest(&self) -> bool {
        LIVE.with_borrow(|live| live.last() == Some(&self.id))
    }

    /// Checks that this is the newest isolate of the thread.
    ///
    /// # Panics
    /// When a newer one lives.
    pub(crate) fn assert_newest(&self) {
        assert!(self.is_newest(), "an isolate runs while a newer one of its thread lives");
    }
}

impl Drop for LiveIsolate {
    fn drop(&mut self) {
        let newest = LIVE.with_borrow_mut(|live| {
            let newest = live.last().copied();
            live.retain(|id| *id != self.id);
            newest
        });
        if !std::thread::panicking() {
            assert_eq!(newest, Some(self.id), "an isolate is dropped before a newer one of its thread");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::call::{CallInfo, FunctionCall};
    use crate::host::{FunctionHost, FunctionProgress, HostCall, HostReply};
    use crate::limits::FunctionLimits;

    /// Isolates that live at once.
    const MAX_DEPTH: usize = 5;

    /// A host that is asked nothing.
    pub(crate) struct NoHost;

    impl FunctionHost for NoHost {
        fn log(&self, _level: ostler_core::Level, _line: &str) {}
        fn progress(&self, _progress: &FunctionProgress) {}
        fn secret(&self, _name: &str) -> Option<String> {
            None
        }
        fn call(&self, _call: HostCall, _reply: HostReply) {}
    }

    /// Begins a call without an end.
    pub(crate) fn begin(bridge: &Bridge) {
        let call = FunctionCall::new("null", CallInfo::default(), Rc::new(NoHost));
        bridge.begin(call.host, call.signal, call.mailbox, None);
    }

    /// Makes and drops isolates at random, as far as their order allows it: only the newest one is dropped, or runs.
    fn many_are_made_and_dropped(engine: &dyn Engine) {
        let (mut live, mut made, mut draw) = (Vec::new(), 0, 17_u64);
        while made < 200 || !live.is_empty() {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let grows = live.is_empty() || (live.len() < MAX_DEPTH && (draw >> 33).is_multiple_of(2));
            if made < 200 && grows {
                let bridge = Bridge::new(&FunctionLimits::default());
                live.push((engine.isolate(Rc::clone(&bridge)).expect("there is memory"), bridge));
                made += 1;
            } else {
                live.pop();
            }
            if let Some((newest, bridge)) = live.last_mut() {
                begin(bridge);
                newest.enter(PreludeEntry::Abort).expect("it returns");
                while newest.run_job().expect("there is none that fails") == JobRun::Executed {}
            }
        }
    }

    #[test]
    fn two_hundred_isolates_of_quickjs_are_made_and_dropped_on_one_thread() {
        many_are_made_and_dropped(&quickjs::QuickJs::default());
    }

    #[cfg(feature = "v8")]
    #[test]
    fn two_hundred_isolates_of_v8_are_made_and_dropped_on_one_thread() {
        many_are_made_and_dropped(&v8::V8::initialize_among_threads().expect("it starts"));
    }

    #[test]
    fn isolates_of_a_thread_are_nested() {
        let outer = LiveIsolate::new();
        drop(LiveIsolate::new());
        outer.assert_newest();
    }

    #[test]
    #[should_panic(expected = "dropped before a newer one")]
    fn an_older_isolate_is_not_dropped_first() {
        let older = LiveIsolate::new();
        let newer = LiveIsolate::new();
        drop(older);
        drop(newer);
    }

    #[test]
    #[should_panic(expected = "runs while a newer one")]
    fn an_older_isolate_does_not_run() {
        let older = LiveIsolate::new();
        let _newer = LiveIsolate::new();
        older.assert_newest();
    }
}
