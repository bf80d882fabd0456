//! Heaps of V8: one that has served a call to its end serves the next one of its thread, with a new context.
//!
//! To create a heap takes longer than a context (2 ms and 0.3 ms where it was measured). A context shares nothing with an earlier one of the same heap but
//! garbage: globals, prototypes, modules, jobs and the statics of regular expressions belong to a context.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::callbacks::{self, HeapGuard};
use super::memory::MemoryMeter;
use super::modules;
use super::stack;
use super::start::shared;
use super::state::IsolateState;
use super::ticker::Ticked;
use crate::limits::FunctionLimits;

/// Contexts that one heap serves.
const MAX_CONTEXTS: u32 = 1_000;

/// A heap: what V8 calls an isolate.
pub(super) struct Heap {
    pub(super) isolate: v8::OwnedIsolate,
    pub(super) guard: Arc<HeapGuard>,
    pub(super) ticked: Arc<Ticked>,
    limits: FunctionLimits,
    contexts: u32,
}

thread_local! {
    /// The heap that waits for the next call.
    static SPARE: RefCell<Option<Heap>> = const { RefCell::new(None) };
    /// Heaps that are in use. V8 wants them dropped in the reverse order of their creation, so only the first one may be spared.
    static IN_USE: Cell<u32> = const { Cell::new(0) };
}

impl Heap {
    /// A heap with these limits, which may have served calls before.
    pub(super) fn take(limits: &FunctionLimits) -> Self {
        IN_USE.set(IN_USE.get() + 1);
        match SPARE.take() {
            Some(spare) if spare.limits == *limits => spare,
            other => {
                drop(other);
                Self::new(limits)
            }
        }
    }

    fn new(limits: &FunctionLimits) -> Self {
        let meter = Arc::new(MemoryMeter::new(limits.memory_bytes));
        let params = shared()
            .snapshot
            .params()
            .heap_limits(0, meter.heap_limit())
            .array_buffer_allocator(callbacks::counting_allocator(&meter))
            .allow_atomics_wait(false);
        let mut isolate = v8::Isolate::new(callbacks::with_stack_limit(params, limits.stack_bytes));
        let handle = isolate.thread_safe_handle();
        let guard = Arc::new(HeapGuard { meter, handle: handle.clone() });
        callbacks::register(&mut isolate, &guard);
        isolate.set_microtasks_policy(v8::MicrotasksPolicy::Explicit);
        isolate.set_prepare_stack_trace_callback(stack::text);
        isolate.set_host_import_module_dynamically_callback(modules::import_dynamically);
        Self { isolate, guard, ticked: shared().ticker.add(handle), limits: limits.clone(), contexts: 0 }
    }

    /// Bytes in use by objects, including those that are not collected yet.
    pub(super) fn bytes(&mut self) -> usize {
        self.isolate.get_heap_statistics().used_heap_size()
    }

    /// Keeps the heap for the next call, or drops it. Its scripts ended by themselves, and nothing refers to its context any more.
    pub(super) fn spare(mut self) {
        self.contexts += 1;
        self.isolate.remove_slot::<Rc<IsolateState>>();
        let used = self.bytes().saturating_add(self.guard.meter.buffers());
        let has_room = used <= self.limits.memory_bytes / 2;
        let is_first = IN_USE.get() == 1;
        if is_first && has_room && self.contexts < MAX_CONTEXTS && !self.guard.meter.is_exceeded() {
            IN_USE.set(0);
            SPARE.set(Some(self));
        } else {
            self.end();
        }
    }

    /// Drops the heap.
    pub(super) fn end(self) {
        IN_USE.set(IN_USE.get().saturating_sub(1));
        drop(self);
    }

    /// Neither uses nor drops the heap any more: V8 would abort the process.
    pub(super) fn leak(self) {
        IN_USE.set(IN_USE.get().saturating_sub(1));
        std::mem::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Bridge;
    use crate::engine::tests::begin;
    use crate::engine::v8::V8;
    use crate::engine::v8::isolate::V8Isolate;
    use crate::engine::{Isolate as _, PreludeEntry};

    fn spared() -> Option<u32> {
        SPARE.with_borrow(|spare| spare.as_ref().map(|heap| heap.contexts))
    }

    #[test]
    fn a_heap_serves_calls_until_one_leaves_jobs_behind() {
        V8::initialize_among_threads().expect("it starts");
        let bridge = Bridge::new(&FunctionLimits::default());
        for contexts in 1..4 {
            let outer = V8Isolate::new(Rc::clone(&bridge)).expect("there is memory");
            drop(V8Isolate::new(Rc::clone(&bridge)).expect("there is memory"));
            assert_eq!(spared(), None, "only the first of a thread is spared");
            drop(outer);
            assert_eq!(spared(), Some(contexts));
        }
        for (jobs, left) in [(true, Some(4)), (false, None)] {
            let mut isolate = V8Isolate::new(Rc::clone(&bridge)).expect("there is memory");
            begin(&bridge);
            isolate.enter(PreludeEntry::Abort).expect("it returns");
            if jobs {
                isolate.run_job().expect("there is none that fails");
            }
            drop(isolate);
            assert_eq!(spared(), left, "jobs may be pending");
        }
    }

    #[test]
    fn another_limit_needs_another_heap() {
        V8::initialize_among_threads().expect("it starts");
        drop(V8Isolate::new(Bridge::new(&FunctionLimits::default())).expect("there is memory"));
        let limits = FunctionLimits { memory_bytes: 32 << 20, ..FunctionLimits::default() };
        drop(V8Isolate::new(Bridge::new(&limits)).expect("there is memory"));
        assert_eq!(spared(), Some(1));
    }
}
