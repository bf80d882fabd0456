//! The session of a host with its node: the current task, what it waits for, and the socket that all threads write to.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use ostler_core::Failure;
use ostler_exec::ClassSource;

use super::end_process;
use super::frames::{self, AttemptKey, TaskFrame};
use crate::host::{HostAnswer, HostError, HostReply};
use crate::stop::Interrupter;
use crate::verdict;
use crate::watchdog::DeafCall;

/// How long the watchdog waits for a thread that is writing a frame.
const MAX_WRITER_WAIT: Duration = Duration::from_millis(250);
/// How often it looks meanwhile.
const WRITER_TICK: Duration = Duration::from_millis(5);

/// What the threads of a host share.
pub(super) struct HostSession {
    socket: Mutex<UnixStream>,
    current: Mutex<Option<CurrentTask>>,
    is_leaving: AtomicBool,
}

/// The task that the host runs.
struct CurrentTask {
    key: AttemptKey,
    /// Stops its call, once that has begun.
    interrupter: Option<Interrupter>,
    is_cancelled: bool,
    /// Steps that are being saved, by name.
    steps: HashMap<String, HostReply>,
    /// Calls of the node, by number.
    calls: HashMap<u64, HostReply>,
    last_call: u64,
}

impl HostSession {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket: Mutex::new(socket), current: Mutex::new(None), is_leaving: AtomicBool::new(false) }
    }

    // ---- frames to the node ----

    /// Writes a frame. When the node is gone, the thread that reads notices it.
    pub(super) fn say(&self, frame: &str) {
        let _ = write_line(&mut lock(&self.socket), frame);
    }

    pub(super) fn ready(&self) -> io::Result<()> {
        write_line(&mut lock(&self.socket), &frames::ready())
    }

    // ---- frames of the node ----

    /// A task has arrived.
    pub(super) fn expect(&self, task: &TaskFrame) {
        let key = AttemptKey { id: task.id.clone(), token: task.token };
        *lock(&self.current) = Some(CurrentTask {
            key,
            interrupter: None,
            is_cancelled: false,
            steps: HashMap::new(),
            calls: HashMap::new(),
            last_call: 0,
        });
    }

    pub(super) fn saved(&self, id: &str, token: u64, step: &str) {
        if let Some(reply) = self.of(id, token, |task| task.steps.remove(step)).flatten() {
            reply.send(Ok(HostAnswer::Nothing));
        }
    }

    pub(super) fn answered(&self, id: &str, token: u64, number: u64, answer: Result<HostAnswer, HostError>) {
        if let Some(reply) = self.of(id, token, |task| task.calls.remove(&number)).flatten() {
            reply.send(answer);
        }
    }

    /// The attempt must stop. Steps that are being saved may never be answered.
    pub(super) fn cancel(&self, id: &str, token: u64) {
        let unsaved = self.of(id, token, |task| {
            task.is_cancelled = true;
            if let Some(interrupter) = &task.interrupter {
                interrupter.cancel();
            }
            std::mem::take(&mut task.steps)
        });
        for reply in unsaved.into_iter().flat_map(HashMap::into_values) {
            reply.send(Err(HostError("the attempt is to stop".to_owned())));
        }
    }

    fn of<T>(&self, id: &str, token: u64, act: impl FnOnce(&mut CurrentTask) -> T) -> Option<T> {
        let mut current = lock(&self.current);
        let task = current.as_mut().filter(|task| task.key.id == id && task.key.token == token)?;
        Some(act(task))
    }

    // ---- the isolate's thread ----

    /// The call of the current task begins.
    pub(super) fn begin(&self, interrupter: Interrupter) {
        if let Some(task) = lock(&self.current).as_mut() {
            if task.is_cancelled {
                interrupter.cancel();
            }
            task.interrupter = Some(interrupter);
        }
    }

    /// A step is about to be sent: its reply waits for the node.
    pub(super) fn saving(&self, name: &str, reply: HostReply) {
        if let Some(task) = lock(&self.current).as_mut() {
            if task.is_cancelled {
                return reply.send(Err(HostError("the attempt is to stop".to_owned())));
            }
            task.steps.insert(name.to_owned(), reply);
        }
    }

    /// A call is about to be sent. Returns its number.
    pub(super) fn asking(&self, reply: HostReply) -> Option<u64> {
        let mut current = lock(&self.current);
        let task = current.as_mut()?;
        task.last_call += 1;
        task.calls.insert(task.last_call, reply);
        Some(task.last_call)
    }

    /// The call has ended: sends the result.
    pub(super) fn end(&self, result: &str) {
        // What still waits is answered first, by the drop of its reply.
        drop(lock(&self.current).take());
        self.say(result);
    }

    // ---- the end of the process ----

    /// The current call cannot be ended: sends its result, and ends the process. On the watchdog's thread.
    pub(super) fn is_deaf(&self, deaf: &DeafCall) {
        self.end_with(&verdict::deaf(&deaf.cause.end()));
    }

    /// The engine has no memory to go on with: the same, on the isolate's thread.
    pub(super) fn is_exhausted(&self) {
        self.end_with(&verdict::exhausted());
    }

    /// Sends the result of the current call, if there is one, and ends the process.
    fn end_with(&self, failure: &Failure) {
        // Kept until the end: if the call ends after all, its thread cannot send a second result.
        let current = lock(&self.current);
        let Some(CurrentTask { key, .. }) = current.as_ref() else { return };
        self.is_leaving.store(true, Ordering::Release);
        if let Some(mut socket) = self.wait_for_socket() {
            // From here on the node cannot send another task, which would die with this process.
            let _ = socket.shutdown(Shutdown::Read);
            let result = key.failed(failure, ClassSource::Given);
            let _ = write_line(&mut socket, &format!("{}\n{result}", frames::leaving()));
        }
        end_process();
    }

    /// The socket, unless another thread keeps it: it may hang in the middle of a frame.
    fn wait_for_socket(&self) -> Option<MutexGuard<'_, UnixStream>> {
        let until = Instant::now() + MAX_WRITER_WAIT;
        loop {
            match self.socket.try_lock() {
                Ok(socket) => return Some(socket),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => thread::park_timeout(WRITER_TICK),
            }
        }
    }

    /// Keeps the main thread from ending the process while the watchdog does.
    pub(super) fn wait_if_leaving(&self) {
        while self.is_leaving.load(Ordering::Acquire) {
            thread::park();
        }
    }
}

fn write_line(socket: &mut UnixStream, frame: &str) -> io::Result<()> {
    let mut line = Vec::with_capacity(frame.len() + 1);
    line.extend_from_slice(frame.as_bytes());
    line.push(b'\n');
    socket.write_all(&line)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
