//! The host process, `ostler isolate-host`: runs functions for a node, out of its reach. A node starts it as a worker of a pool.
//!
//! It is the same program, and speaks the worker protocol with the private extension of `crates/process/src/worker/extension.rs`, over
//! its standard input. **It runs one task at a time**: the code of two tasks never shares a process that one of them could end. It has
//! plain threads and no runtime:
//!
//! - the main thread reads frames (`frames.rs`) and passes them on (`session.rs`);
//! - the isolate's thread runs tasks (`tasks.rs`);
//! - the watchdog's thread ends the process when a script cannot be ended otherwise. It sends the result of the task first, with the
//!   cause.
//!
//! The memory of the process is bounded by the kernel (`memory.rs`). An engine that has none to go on with ends its process: the host
//! sends the result of the task first, here too.
//!
//! Before the host takes a task, all its threads give up every system call that they do not need (`sandbox.rs`), and it tries whether
//! that holds (`self_test.rs`). A bug of the engine then gives a script nothing but the host's memory and its socket.

mod frames;
mod memory;
mod sandbox;
mod self_test;
mod session;
mod tasks;
mod weakened;

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use self::frames::{FrameReader, NodeFrame, TaskFrame};
use self::memory::DataGauge;
use self::session::HostSession;
use self::tasks::TaskRunner;
use crate::dialect::HostSetup;
use crate::exhaustion::on_exhaustion;
use crate::watchdog::Watchdog;
#[cfg(feature = "weakened")]
pub use weakened::{Weakness, run_weakened};

/// The first argument that makes a program a host. Internal.
pub const HOST: &str = "isolate-host";

/// The variable with the descriptor of a worker's socket. A host's is its standard input.
const FD_VARIABLE: &str = "OSTLER_FD";
/// How long a stopped call may run on, in CPU time, before the process is ended: what the engine can interrupt ends sooner.
const PATIENCE: Duration = Duration::from_millis(50);
/// Tasks that wait for the isolate's thread: a node sends one at a time.
const MAX_WAITING_TASKS: usize = 1;

/// Why a process cannot be a host.
#[derive(Debug, thiserror::Error)]
pub enum HostFault {
    #[error("\"{HOST}\" is started by a node, which speaks to it over its standard input")]
    NotStartedByNode,
    #[error("the node did not send what a host is to run")]
    NoSetup,
    #[error("{0}")]
    Engine(String),
    /// A script that breaks out of its engine would have them.
    #[error("a host must not have these files open: {0}")]
    OpenFiles(String),
    /// Functions must not run without the sandbox.
    #[error("system calls cannot be restricted here, so no function is run: {0}")]
    NoSandbox(String),
    #[error("the sandbox does not hold, so no function is run: {0}")]
    Broken(String),
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Runs as a host, until the node stops it or is gone. Called by `main`, before anything else runs.
///
/// # Errors
/// When the process cannot be a host. The sentence is for the node, which reads standard error.
pub fn run() -> Result<Infallible, HostFault> {
    if std::env::var(FD_VARIABLE).as_deref() != Ok("0") {
        return Err(HostFault::NotStartedByNode);
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let open = sandbox::foreign_descriptors()?;
    if !open.is_empty() {
        return Err(HostFault::OpenFiles(open.join(", ")));
    }
    let mut frames = FrameReader::new(socket.try_clone()?);
    let setup = match frames.next()? {
        Some(NodeFrame::Hello(setup)) => *setup,
        Some(_) | None => return Err(HostFault::NoSetup),
    };
    let (engine, memory_bytes) = (setup.engine, setup.limits.memory_bytes);
    // Before there is another thread.
    engine.prepare().map_err(HostFault::Engine)?;
    let session = Arc::new(HostSession::new(socket));
    let deaf = Arc::clone(&session);
    let watchdog = Arc::new(Watchdog::start(PATIENCE, move |call| deaf.is_deaf(&call))?);
    let gauge = Arc::new(DataGauge::new(memory_bytes)?);
    let tasks = start_isolate_thread(setup, &watchdog, &session, Arc::clone(&gauge))?;
    let reserve = gauge.bound()?;
    let exhausted = Arc::clone(&session);
    on_exhaustion(move || {
        reserve.release();
        exhausted.is_exhausted();
    });
    if weakened::has_sandbox() {
        sandbox::apply(engine).map_err(HostFault::NoSandbox)?;
        let breaches = self_test::breaches();
        if !breaches.is_empty() {
            return Err(HostFault::Broken(breaches.join(", ")));
        }
    }
    session.ready()?;
    while let Some(frame) = frames.next()? {
        match frame {
            NodeFrame::Task(task) => {
                session.expect(&task);
                if tasks.send(*task).is_err() {
                    break;
                }
            }
            NodeFrame::Saved { id, token, step } => session.saved(&id, token, &step),
            NodeFrame::Answer { id, token, request, answer } => {
                session.answered(&id, token, request, answer);
            }
            NodeFrame::Cancel { id, token } => session.cancel(&id, token),
            NodeFrame::Stop => break,
            NodeFrame::Hello(_) | NodeFrame::Other => {}
        }
    }
    // The watchdog may be about to send a last result.
    session.wait_if_leaving();
    end_process()
}

/// Starts the thread of the isolates, and waits until the watchdog watches it: it can open nothing afterwards.
fn start_isolate_thread(
    setup: HostSetup,
    watchdog: &Arc<Watchdog>,
    session: &Arc<HostSession>,
    gauge: Arc<DataGauge>,
) -> io::Result<mpsc::SyncSender<TaskFrame>> {
    let (tasks, waiting) = mpsc::sync_channel::<TaskFrame>(MAX_WAITING_TASKS);
    let (watched, is_watched) = mpsc::channel();
    let session = Arc::clone(session);
    let stack = setup.limits.thread_stack_bytes();
    let watchdog = Arc::clone(watchdog);
    let run = move || {
        let watch = watchdog.watch_this_thread();
        let mut runner = TaskRunner::new(setup, watch, session, gauge);
        let _ = watched.send(());
        for task in waiting {
            runner.run(task);
        }
    };
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            // What it printed is the reason that the node finds.
            end_process();
        }
    };
    thread::Builder::new().name("isolate".to_owned()).stack_size(stack).spawn(guarded)?;
    is_watched.recv().map_err(|_| io::Error::other("the thread of the isolates has ended"))?;
    Ok(tasks)
}

/// Ends the process at once, whatever its other threads do: no exit handler runs beside a script.
fn end_process() -> ! {
    loop {
        let _ = kill_process(getpid(), Signal::KILL);
        thread::yield_now();
    }
}
