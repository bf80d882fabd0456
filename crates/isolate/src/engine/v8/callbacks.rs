//! Callbacks and pointers that V8 takes: the only file of the engine with `unsafe` in it.
//!
//! V8 calls back in C, with raw pointers to an isolate or to what was registered. Here they become references, and the work is done
//! elsewhere.
#![allow(unsafe_code, reason = "V8 calls back in C, and takes an address as the limit of a stack")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use super::memory::MemoryMeter;
use super::modules;
use super::state::state_of;
use crate::exhaustion::exhausted;

/// The alignment that V8 expects of a buffer.
const BUFFER_ALIGNMENT: usize = 16;

/// Terminates scripts of an isolate whose heap is full. It outlives the isolate.
pub(super) struct HeapGuard {
    pub(super) meter: Arc<MemoryMeter>,
    pub(super) handle: v8::IsolateHandle,
}

/// Sets the stack limit to this many bytes below the caller's frame.
pub(super) fn with_stack_limit(params: v8::CreateParams, bytes: usize) -> v8::CreateParams {
    let here = 0_u8;
    let limit = (&raw const here).addr().saturating_sub(bytes) & !7;
    // SAFETY: V8 compares the address with that of its frames, and reads nothing there. The isolate stays on this thread.
    unsafe { params.set_stack_limit(std::ptr::without_provenance_mut(limit)) }
}

/// Registers the callbacks of an isolate. The guard must outlive the isolate.
pub(super) fn register(isolate: &mut v8::Isolate, guard: &Arc<HeapGuard>) {
    let data = Arc::as_ptr(guard).cast_mut().cast::<c_void>();
    isolate.add_near_heap_limit_callback(near_heap_limit, data);
    isolate.add_gc_epilogue_callback(collected, data, v8::GCType::kGCTypeMarkSweepCompact);
    isolate.set_oom_error_handler(out_of_memory);
    isolate.set_promise_reject_callback(promise_rejected);
    isolate.add_message_listener(job_threw);
}

extern "C" fn near_heap_limit(data: *mut c_void, current: usize, _initial: usize) -> usize {
    // SAFETY: it is the guard that `register` was given, which outlives the isolate.
    let guard = unsafe { &*data.cast::<HeapGuard>() };
    guard.meter.exceed();
    guard.handle.terminate_execution();
    guard.meter.last_heap_limit(current)
}

extern "C" fn collected(
    mut isolate: v8::UnsafeRawIsolatePtr,
    _type: v8::GCType,
    _flags: v8::GCCallbackFlags,
    data: *mut c_void,
) {
    // SAFETY: it is the guard that `register` was given, which outlives the isolate.
    let guard = unsafe { &*data.cast::<HeapGuard>() };
    // SAFETY: V8 calls this on the isolate's thread, and nothing else uses the isolate meanwhile.
    let isolate = unsafe { v8::Isolate::ref_from_raw_isolate_ptr_mut(&mut isolate) };
    if guard.meter.measured(isolate.get_heap_statistics().used_heap_size()) {
        guard.handle.terminate_execution();
    }
}

/// V8 has no way on: the process ends, by one signal that its parent can expect, unless it does something else first.
extern "C" fn out_of_memory(place: *const c_char, _details: &v8::OomDetails) {
    exhausted();
    let place = if place.is_null() {
        "an unknown place".into()
    } else {
        // SAFETY: V8 gives a text that ends with a zero.
        unsafe { CStr::from_ptr(place) }.to_string_lossy()
    };
    eprintln!("V8 is out of memory at {place}");
    std::process::abort();
}

extern "C" fn promise_rejected(message: v8::PromiseRejectMessage<'_>) {
    v8::callback_scope!(unsafe scope, &message);
    let Some(state) = state_of(scope) else { return };
    let promise = v8::Global::new(scope, message.get_promise());
    match (message.get_event(), message.get_value()) {
        (v8::PromiseRejectEvent::PromiseRejectWithNoHandler, Some(reason)) => {
            state.rejected(promise, v8::Global::new(scope, reason));
        }
        (v8::PromiseRejectEvent::PromiseHandlerAddedAfterReject, _) => state.handled(&promise),
        (v8::PromiseRejectEvent::PromiseRejectWithNoHandler, None)
        | (v8::PromiseRejectEvent::PromiseRejectAfterResolved, _)
        | (v8::PromiseRejectEvent::PromiseResolveAfterResolved, _) => {}
    }
}

extern "C" fn job_threw(message: v8::Local<'_, v8::Message>, error: v8::Local<'_, v8::Value>) {
    v8::callback_scope!(unsafe scope, message);
    if let Some(state) = state_of(scope) {
        state.threw(v8::Global::new(scope, error));
    }
}

/// An interrupt of a running isolate: it looks at its limits.
pub(super) extern "C" fn look_at_limits(isolate: v8::UnsafeRawIsolatePtr, _data: *mut c_void) {
    // SAFETY: V8 calls this on the isolate's thread, between two instructions of a script.
    let isolate = unsafe { v8::Isolate::ref_from_raw_isolate_ptr(&isolate) };
    if state_of(isolate).is_some_and(|state| state.must_stop()) {
        isolate.terminate_execution();
    }
}

/// Finds a module that another one imports.
pub(super) fn resolve_module<'s>(
    context: v8::Local<'s, v8::Context>,
    specifier: v8::Local<'s, v8::String>,
    _attributes: v8::Local<'s, v8::FixedArray>,
    importer: v8::Local<'s, v8::Module>,
) -> Option<v8::Local<'s, v8::Module>> {
    v8::callback_scope!(unsafe scope, context);
    modules::imported(scope, specifier, importer)
}

/// An allocator of buffers that counts them.
pub(super) fn counting_allocator(meter: &Arc<MemoryMeter>) -> v8::UniqueRef<v8::Allocator> {
    static METHODS: v8::RustAllocatorVtable<MemoryMeter> =
        v8::RustAllocatorVtable { allocate: allocate_zeroed, allocate_uninitialized, free, drop: drop_meter };
    // SAFETY: the methods take the pointer for what it is, and the last one takes it back.
    unsafe { v8::new_rust_allocator(Arc::into_raw(Arc::clone(meter)), &METHODS) }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), BUFFER_ALIGNMENT).ok()
}

fn allocate(meter: &MemoryMeter, bytes: usize, from: unsafe fn(Layout) -> *mut u8) -> *mut c_void {
    let Some(layout) = layout(bytes) else { return std::ptr::null_mut() };
    if !meter.take(bytes) {
        return std::ptr::null_mut();
    }
    // SAFETY: the layout is not empty.
    let buffer = unsafe { from(layout) };
    if buffer.is_null() {
        meter.give_back(bytes);
    }
    buffer.cast()
}

unsafe extern "C" fn allocate_zeroed(meter: &MemoryMeter, bytes: usize) -> *mut c_void {
    allocate(meter, bytes, alloc_zeroed)
}

unsafe extern "C" fn allocate_uninitialized(meter: &MemoryMeter, bytes: usize) -> *mut c_void {
    allocate(meter, bytes, alloc)
}

unsafe extern "C" fn free(meter: &MemoryMeter, buffer: *mut c_void, bytes: usize) {
    if let Some(layout) = layout(bytes)
        && !buffer.is_null()
    {
        // SAFETY: V8 gives back what it got from `allocate`, with the same size, once.
        unsafe { dealloc(buffer.cast(), layout) };
        meter.give_back(bytes);
    }
}

unsafe extern "C" fn drop_meter(meter: *const MemoryMeter) {
    // SAFETY: it is the pointer of `counting_allocator`, and V8 calls this once.
    drop(unsafe { Arc::from_raw(meter) });
}
