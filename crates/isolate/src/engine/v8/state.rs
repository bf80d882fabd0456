//! What callbacks of V8 find of an isolate: the bridge, rejected promises, an uncaught error, modules.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::memory::MemoryMeter;
use super::modules::ModuleTable;
use super::ticker::Ticked;
use crate::bridge::Bridge;

/// Rejected promises that may be without a handler at one time. A lookup is linear, and no script can be interrupted in it.
const MAX_REJECTIONS: usize = 1_000;

/// The state of an isolate, in a slot of it.
pub(super) struct IsolateState {
    pub(super) bridge: Rc<Bridge>,
    pub(super) meter: Arc<MemoryMeter>,
    pub(super) ticked: Arc<Ticked>,
    pub(super) modules: RefCell<ModuleTable>,
    rejections: RefCell<Vec<Rejection>>,
    /// The first error that a job threw.
    uncaught: RefCell<Option<v8::Global<v8::Value>>>,
}

/// A rejected promise without a handler, and the reason.
struct Rejection {
    promise: v8::Global<v8::Promise>,
    reason: v8::Global<v8::Value>,
}

impl IsolateState {
    pub(super) fn new(bridge: Rc<Bridge>, meter: Arc<MemoryMeter>, ticked: Arc<Ticked>) -> Rc<Self> {
        Rc::new(Self {
            bridge,
            meter,
            ticked,
            modules: RefCell::default(),
            rejections: RefCell::default(),
            uncaught: RefCell::default(),
        })
    }

    /// Whether the script that runs must be terminated.
    pub(super) fn must_stop(&self) -> bool {
        self.ticked.looks() && (self.meter.is_exceeded() || self.bridge.must_stop())
    }

    pub(super) fn rejected(&self, promise: v8::Global<v8::Promise>, reason: v8::Global<v8::Value>) {
        let mut rejections = self.rejections.borrow_mut();
        if rejections.len() < MAX_REJECTIONS {
            rejections.push(Rejection { promise, reason });
        }
    }

    pub(super) fn handled(&self, promise: &v8::Global<v8::Promise>) {
        self.rejections.borrow_mut().retain(|rejection| rejection.promise != *promise);
    }

    /// The reason of the oldest rejection. All are forgotten.
    pub(super) fn take_rejection(&self) -> Option<v8::Global<v8::Value>> {
        let first = self.rejections.borrow_mut().drain(..).next();
        first.map(|rejection| rejection.reason)
    }

    pub(super) fn threw(&self, error: v8::Global<v8::Value>) {
        self.uncaught.borrow_mut().get_or_insert(error);
    }

    pub(super) fn take_uncaught(&self) -> Option<v8::Global<v8::Value>> {
        self.uncaught.borrow_mut().take()
    }

    /// Drops all handles.
    pub(super) fn clear(&self) {
        self.rejections.borrow_mut().clear();
        self.uncaught.borrow_mut().take();
        *self.modules.borrow_mut() = ModuleTable::default();
    }
}

/// The state of the isolate that a scope belongs to.
pub(super) fn state_of(isolate: &v8::Isolate) -> Option<Rc<IsolateState>> {
    isolate.get_slot::<Rc<IsolateState>>().cloned()
}
