//! The watchdog: a thread that watches calls from outside, and reports those that cannot be ended on their thread.
//!
//! An engine looks at the limits itself, but many of its builtins never do. The watchdog stops a call that exceeds its CPU or wall time,
//! and if the call runs on, it is *deaf*: only the end of the process ends it, and that is the caller's to decide.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::stop::{Interrupter, LimitCause};

/// How often running calls are looked at.
const TICK: Duration = Duration::from_millis(5);
/// Ticks without a running call before the thread waits for one.
const IDLE_TICKS: u32 = 20;

/// How long a stopped call is waited for whose thread gets no CPU time.
const MAX_STARVED: Duration = Duration::from_secs(2);

/// A call that runs on although it was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeafCall {
    /// The name of the call's thread.
    pub thread: String,
    /// Why it was stopped.
    pub cause: LimitCause,
    /// The CPU time that the call has used, if the system tells it.
    pub cpu: Option<Duration>,
    /// How long the call has run.
    pub wall: Duration,
}

/// Watches the threads of a process that run functions.
pub struct Watchdog {
    shared: Arc<WatchdogState>,
    thread: Option<JoinHandle<()>>,
}

struct WatchdogState {
    threads: Mutex<Vec<Weak<Watched>>>,
    /// Whether the watchdog's thread waits for a call.
    idle: AtomicBool,
    ended: AtomicBool,
    patience: Duration,
    report: Box<dyn Fn(DeafCall) + Send + Sync>,
}

/// One thread.
struct Watched {
    name: String,
    /// CPU time of the thread in nanoseconds, as the first number.
    clock: Option<File>,
    running: Mutex<Option<Running>>,
}

/// The call of a thread.
struct Running {
    signal: Interrupter,
    cpu_limit: Duration,
    cpu_start: Option<Duration>,
    wall_limit: Duration,
    started: Instant,
    /// When the watchdog first saw that the call is stopped, and its CPU time then.
    stopped: Option<(Instant, Option<Duration>)>,
    reported: bool,
}

impl Watchdog {
    /// Starts the watchdog. A call that runs on for `patience` after it was stopped is reported, once. The patience is CPU time of its
    /// thread: on a busy machine, a call that would stop may wait long for a processor.
    ///
    /// # Errors
    /// When its thread cannot be started.
    pub fn start(patience: Duration, report: impl Fn(DeafCall) + Send + Sync + 'static) -> io::Result<Self> {
        let shared = Arc::new(WatchdogState {
            threads: Mutex::new(Vec::new()),
            idle: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            patience,
            report: Box::new(report),
        });
        let watching = Arc::clone(&shared);
        let (started, is_started) = mpsc::channel();
        let watch = move || {
            let _ = started.send(());
            watching.watch();
        };
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(watch)?;
        // A thread that begins to run makes system calls that its process may give up next.
        is_started.recv().map_err(|_| io::Error::other("the thread of the watchdog has ended"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Watches the current thread.
    #[must_use]
    pub fn watch_this_thread(&self) -> ThreadWatch {
        let id = rustix::thread::gettid().as_raw_nonzero();
        let name = thread::current().name().unwrap_or("unnamed").to_owned();
        // Opened once: a process that runs functions may not open files later.
        let clock = File::open(format!("/proc/self/task/{id}/schedstat")).ok();
        let watched = Arc::new(Watched { name, clock, running: Mutex::new(None) });
        lock(&self.shared.threads).push(Arc::downgrade(&watched));
        let unpark = self.thread.as_ref().map(|thread| thread.thread().clone());
        ThreadWatch { watched, shared: Arc::clone(&self.shared), unpark }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A report that panicked has nothing to add here.
            let _ = thread.join();
        }
    }
}

/// A thread that the watchdog watches.
pub struct ThreadWatch {
    watched: Arc<Watched>,
    shared: Arc<WatchdogState>,
    unpark: Option<thread::Thread>,
}

impl ThreadWatch {
    /// Watches a call until the result is dropped.
    pub(crate) fn begin(&self, signal: &Interrupter, cpu: Duration, wall: Duration) -> WatchedCall {
        *lock(&self.watched.running) = Some(Running {
            signal: signal.clone(),
            cpu_limit: cpu,
            cpu_start: None,
            wall_limit: wall,
            started: Instant::now(),
            stopped: None,
            reported: false,
        });
        if self.shared.idle.swap(false, Ordering::AcqRel)
            && let Some(thread) = &self.unpark
        {
            thread.unpark();
        }
        WatchedCall(Arc::clone(&self.watched))
    }
}

/// A call that is being watched.
pub(crate) struct WatchedCall(Arc<Watched>);

impl Drop for WatchedCall {
    fn drop(&mut self) {
        *lock(&self.0.running) = None;
    }
}

impl WatchdogState {
    fn watch(&self) {
        let mut idle_ticks = 0;
        while !self.ended.load(Ordering::Acquire) {
            if self.look() {
                idle_ticks = 0;
            } else {
                idle_ticks += 1;
            }
            if idle_ticks > IDLE_TICKS {
                self.idle.store(true, Ordering::Release);
                // A call that began before the store did not wake this thread.
                if !self.look() {
                    thread::park();
                }
                idle_ticks = 0;
            } else {
                thread::park_timeout(TICK);
            }
        }
    }

    /// Looks at every thread. Returns whether a call runs.
    fn look(&self) -> bool {
        let watched: Vec<Arc<Watched>> = {
            let mut threads = lock(&self.threads);
            threads.retain(|thread| thread.strong_count() > 0);
            threads.iter().filter_map(Weak::upgrade).collect()
        };
        let mut runs = false;
        for thread in watched {
            let deaf = lock(&thread.running).as_mut().and_then(|running| {
                runs = true;
                running.look(&thread, self.patience)
            });
            if let Some(deaf) = deaf {
                (self.report)(deaf);
            }
        }
        runs
    }
}

impl Running {
    /// Stops the call if it is beyond a limit. Returns a report if it is deaf.
    fn look(&mut self, thread: &Watched, patience: Duration) -> Option<DeafCall> {
        let now = Instant::now();
        let wall = now.duration_since(self.started);
        let clock = thread.cpu();
        // The first look comes within a tick of the start.
        let start = *self.cpu_start.get_or_insert(clock.unwrap_or_default());
        let cpu = clock.map(|clock| clock.saturating_sub(start));
        if self.signal.cause().is_none() {
            if cpu.is_some_and(|cpu| cpu > self.cpu_limit) {
                self.signal.stop(LimitCause::Cpu);
            } else if wall > self.wall_limit {
                self.signal.stop(LimitCause::Wall);
            }
        }
        let cause = self.signal.cause()?;
        let (stopped, cpu_then) = *self.stopped.get_or_insert((now, cpu));
        let waited = now.duration_since(stopped);
        let ran_on = match (cpu, cpu_then) {
            (Some(cpu), Some(then)) => cpu.saturating_sub(then),
            (None, _) | (_, None) => waited,
        };
        if self.reported || (ran_on < patience && waited < MAX_STARVED.max(patience)) {
            return None;
        }
        self.reported = true;
        Some(DeafCall { thread: thread.name.clone(), cause, cpu, wall })
    }
}

impl Watched {
    /// The CPU time of the thread.
    fn cpu(&self) -> Option<Duration> {
        let mut buffer = [0; 64];
        let read = self.clock.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(buffer.get(..read)?).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
