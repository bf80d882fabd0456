//! Exhaustion: an engine that has no memory to go on with ends its process. A host process registers what it does first: its task gets
//! a result that names the cause.

use std::sync::OnceLock;

type LastAct = Box<dyn Fn() + Send + Sync>;

static LAST_ACT: OnceLock<LastAct> = OnceLock::new();

/// Registers what the process does when its engine is exhausted. The first registration counts.
pub(crate) fn on_exhaustion(act: impl Fn() + Send + Sync + 'static) {
    let _ = LAST_ACT.set(Box::new(act));
}

/// The engine is exhausted, on the thread of the isolate. Returns if there is nothing to do first.
#[cfg(feature = "v8")]
pub(crate) fn exhausted() {
    if let Some(act) = LAST_ACT.get() {
        act();
    }
}
