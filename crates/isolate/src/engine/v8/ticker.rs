//! The ticker: a thread that makes running isolates look at their limits, as V8 never does by itself.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use super::callbacks;

/// How often a running isolate looks at its limits.
const TICK: Duration = Duration::from_millis(5);
/// Ticks without a running isolate before the thread waits for one.
const IDLE_TICKS: u32 = 20;

/// Knows the isolates of the process.
pub(super) struct Ticker {
    isolates: Mutex<Vec<Weak<Ticked>>>,
    /// Whether the thread waits for an isolate that runs.
    idle: AtomicBool,
    thread: OnceLock<Thread>,
}

/// One isolate.
pub(super) struct Ticked {
    handle: v8::IsolateHandle,
    running: AtomicBool,
    /// Whether it has been asked to look, and has not looked yet. A builtin may run for long without an interrupt.
    asked: AtomicBool,
}

/// An isolate that runs, until this is dropped.
pub(super) struct Running<'a>(&'a Ticked);

impl Ticker {
    /// Starts the thread. It ends with the process.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let ticker = Arc::new(Self {
            isolates: Mutex::new(Vec::new()),
            idle: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let ticking = Arc::clone(&ticker);
        let started = thread::Builder::new().name("v8-ticker".to_owned()).spawn(move || ticking.tick())?;
        let _ = ticker.thread.set(started.thread().clone());
        Ok(ticker)
    }

    /// Adds an isolate, which stays until the result is dropped.
    pub(super) fn add(&self, handle: v8::IsolateHandle) -> Arc<Ticked> {
        let ticked =
            Arc::new(Ticked { handle, running: AtomicBool::new(false), asked: AtomicBool::new(false) });
        let mut isolates = lock(&self.isolates);
        isolates.retain(|isolate| isolate.strong_count() > 0);
        isolates.push(Arc::downgrade(&ticked));
        ticked
    }

    /// Marks an isolate as running. Its order with `idle` matters to both sides.
    pub(super) fn run<'a>(&self, ticked: &'a Ticked) -> Running<'a> {
        ticked.running.store(true, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst)
            && self.idle.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
        Running(ticked)
    }

    fn tick(&self) {
        let mut idle_ticks = 0;
        loop {
            idle_ticks = if self.ask_all() { 0 } else { idle_ticks + 1 };
            if idle_ticks > IDLE_TICKS {
                self.idle.store(true, Ordering::SeqCst);
                // An isolate that began to run before the store did not wake this thread.
                if !self.ask_all() {
                    thread::park();
                }
                idle_ticks = 0;
            } else {
                thread::park_timeout(TICK);
            }
        }
    }

    /// Asks every running isolate to look. Returns whether there is one.
    fn ask_all(&self) -> bool {
        let isolates: Vec<Arc<Ticked>> = lock(&self.isolates).iter().filter_map(Weak::upgrade).collect();
        let mut any = false;
        for isolate in isolates.iter().filter(|isolate| isolate.running.load(Ordering::SeqCst)) {
            any = true;
            if !isolate.asked.swap(true, Ordering::SeqCst) {
                isolate.handle.request_interrupt(callbacks::look_at_limits, std::ptr::null_mut());
            }
        }
        any
    }
}

impl Ticked {
    /// The isolate looks now: whether it runs, and can be asked again.
    pub(super) fn looks(&self) -> bool {
        self.asked.store(false, Ordering::SeqCst);
        self.running.load(Ordering::SeqCst)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
