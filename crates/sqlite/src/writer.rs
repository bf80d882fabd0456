//! The writer thread: the only one that writes, with group commit.
//!
//! Callers send their verb and wait. The thread takes all queued verbs into one transaction and commits once: a commit
//! costs one disk sync, whatever its size. No caller gets a reply before the commit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ostler_store::transfer::Departure;
use ostler_store::{Checks, Clock, Error, ErrorKind, Rings};
use rusqlite::Connection;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot};

use crate::failpoints;
use crate::fault::fault;
use crate::liveness::LivenessFiles;
use crate::move_source::{admits, refusal};
use crate::notifier::Notifier;
use crate::open::Files;
use crate::turnstile::{Turnstile, WriteTurn};
use crate::tx::{Cache, Sql, Tx};
use ostler_sql::dependents::close_verb;
use ostler_sql::poll_now;

/// Queued verbs; above this limit, callers wait to be admitted.
const MAX_WAITING: usize = 4_096;
/// Verbs per transaction: bounds how long another process waits for its turn.
const MAX_GROUP: usize = 512;

/// How long the writer spins for another call before it sleeps.
const LINGER: Duration = Duration::from_micros(100);
/// How long the writer waits at most for callers of the last group to return, however slow the disk is.
const MAX_GATHERING: Duration = Duration::from_millis(1);

/// How long a caller waits for its verb to start. A process that was stopped during its turn, or a foreign process that
/// has the file locked, can block all callers.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Sends verbs to the writer thread.
pub(crate) struct Writer {
    calls: Option<mpsc::Sender<Box<dyn Call>>>,
    thread: Option<JoinHandle<()>>,
}

/// A verb with its caller.
trait Call: Send {
    fn verb(&self) -> &'static str;
    /// Whether the caller still waits for the verb. From then on the caller waits for the reply.
    fn take_up(&self) -> bool;
    /// Executes the verb. May run again after a rollback.
    fn run(&mut self, tx: &mut Tx<'_>) -> Sql<()>;
    /// Replies to the caller, once the result of the commit is known.
    fn answer(self: Box<Self>, committed: Result<(), Error>);
}

struct PendingCalls<T, F> {
    verb: &'static str,
    work: F,
    answer: Option<T>,
    /// Set once: by the writer that takes the verb up, or by the caller that gives it up.
    settled: Arc<AtomicBool>,
    caller: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Sql<T> + Send> Call for PendingCalls<T, F> {
    fn verb(&self) -> &'static str {
        self.verb
    }

    fn take_up(&self) -> bool {
        !self.settled.swap(true, Ordering::SeqCst)
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Sql<()> {
        self.answer = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), Error>) {
        let Self { work, answer, caller, .. } = *self;
        // Return what the verb borrowed from its caller before the caller gets its reply.
        drop(work);
        let answer = committed.and_then(|()| answer.ok_or_else(|| closed("the verb was not carried out")));
        // The caller may have stopped waiting.
        let _ = caller.send(answer);
    }
}

/// The state of the writer thread.
pub(crate) struct WriterThread {
    pub(crate) conn: Connection,
    pub(crate) path: PathBuf,
    pub(crate) files: Files,
    pub(crate) turnstile: Turnstile,
    pub(crate) liveness: Arc<LivenessFiles>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) checks: Checks,
}

impl Writer {
    pub(crate) fn start(writer: WriterThread) -> Result<Self, Error> {
        let (calls, inbox) = mpsc::channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("ostler-write".into())
            .spawn(move || writer.serve(inbox))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("no thread for the writer: {error}"))
            })?;
        Ok(Self { calls: Some(calls), thread: Some(thread) })
    }

    /// Executes a verb, and returns once it is on disk.
    pub(crate) async fn write<T, F>(&self, verb: &'static str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Sql<T> + Send + 'static,
    {
        let (caller, mut answer) = oneshot::channel();
        let settled = Arc::new(AtomicBool::new(false));
        let call: Box<dyn Call> =
            Box::new(PendingCalls { verb, work, answer: None, settled: Arc::clone(&settled), caller });
        let calls = self.calls.as_ref().ok_or_else(|| closed("it was closed"))?;
        let busy = || Error::new(ErrorKind::Busy, "another process has kept the store busy for ten minutes");
        match calls.try_send(call) {
            Ok(()) => {}
            Err(TrySendError::Full(call)) => {
                let sent = tokio::time::timeout(MAX_WAIT, calls.send(call)).await.map_err(|_| busy())?;
                sent.map_err(|_| closed("its writer has ended"))?;
            }
            Err(TrySendError::Closed(_)) => return Err(closed("its writer has ended")),
        }
        let waited = tokio::time::timeout(MAX_WAIT, &mut answer).await;
        let answer = match waited {
            Ok(answer) => answer,
            Err(_) if !settled.swap(true, Ordering::SeqCst) => {
                return Err(busy());
            }
            // The verb is being written: the result of the commit is the reply.
            Err(_) => answer.await,
        };
        answer.map_err(|_| closed("its writer has ended"))?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread finishes the queued verbs, then exits: no admitted caller is dropped.
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn closed(why: &str) -> Error {
    Error::new(ErrorKind::Closed, format!("the store is closed: {why}"))
}

/// Receives the next call. A caller that was just answered often has another one: sleeping at once and being woken takes
/// longer than a short spin.
fn next(inbox: &mut mpsc::Receiver<Box<dyn Call>>) -> Option<Box<dyn Call>> {
    let began = Instant::now();
    while began.elapsed() < LINGER {
        match inbox.try_recv() {
            Ok(call) => return Some(call),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    inbox.blocking_recv()
}

/// The size and duration of the last group. Concurrent callers return together, shortly after their replies: a commit
/// that waits a fraction of its own duration for them includes them all, whereas an immediate one would include the first
/// and leave the others to wait for two commits. A single caller never waits.
#[derive(Default)]
struct CommitPacing {
    calls: usize,
    took: Duration,
}

impl CommitPacing {
    /// Takes the queued calls, and waits until there are as many as last time.
    fn gather(&self, group: &mut Vec<Box<dyn Call>>, inbox: &mut mpsc::Receiver<Box<dyn Call>>) {
        let patience = (self.took / 2).min(MAX_GATHERING);
        let began = Instant::now();
        loop {
            while group.len() < MAX_GROUP
                && let Ok(call) = inbox.try_recv()
            {
                group.push(call);
            }
            if group.len() >= self.calls.min(MAX_GROUP) || began.elapsed() >= patience {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl WriterThread {
    fn serve(self, mut inbox: mpsc::Receiver<Box<dyn Call>>) {
        let mut cache = Cache::default();
        let mut group: Vec<Box<dyn Call>> = Vec::with_capacity(MAX_GROUP);
        let mut pace = CommitPacing::default();
        while let Some(first) = next(&mut inbox) {
            group.push(first);
            pace.gather(&mut group, &mut inbox);
            let began = Instant::now();
            pace.calls = group.len();
            self.carry_out(&mut group, &mut cache);
            pace.took = began.elapsed();
        }
    }

    /// Executes a group in one transaction. If that fails, executes each verb alone: one bad verb must not fail the
    /// others.
    fn carry_out(&self, group: &mut Vec<Box<dyn Call>>, cache: &mut Cache) {
        crash_point(group, "taken");
        match self.turnstile.enter() {
            Ok(turn) => {
                group.retain(|call| call.take_up());
                self.take_turn(turn, group, cache);
            }
            Err(error) => answer(group, &Err(error)),
        }
    }

    fn take_turn(&self, turn: WriteTurn<'_>, group: &mut Vec<Box<dyn Call>>, cache: &mut Cache) {
        let done = self.transact(group, cache);
        if done.is_err() && group.len() > 1 {
            for call in std::mem::take(group) {
                let mut alone = vec![call];
                let done = self.transact(&mut alone, cache).and_then(|rings| self.make_known(rings));
                answer(&mut alone, &done);
            }
            return;
        }
        drop(turn);
        let done = done.and_then(|rings| self.make_known(rings));
        answer(group, &done);
    }

    /// Executes one transaction. Returns the signals to send; an error means that nothing was written.
    fn transact(&self, group: &mut Vec<Box<dyn Call>>, cache: &mut Cache) -> Result<Rings, Error> {
        self.try_to_transact(group, cache).map_err(|error| self.files.explain(error))
    }

    fn try_to_transact(&self, group: &mut Vec<Box<dyn Call>>, cache: &mut Cache) -> Result<Rings, Error> {
        self.files.check()?;
        let mut tx =
            Tx::begin(&self.conn, self.checks, &self.liveness, cache, self.clock.now()).map_err(fault)?;
        match tx.departure() {
            Ok(None) => {}
            Ok(Some(departure)) => turn_away(group, departure, &self.path),
            Err(error) => {
                tx.roll_back();
                return Err(fault(error));
            }
        }
        crash_point(group, "begun");
        for call in group.iter_mut() {
            tx.now = self.clock.now();
            if let Err(error) = call.run(&mut tx).and_then(|()| poll_now(close_verb(&mut tx))) {
                tx.roll_back();
                return Err(fault(error));
            }
        }
        crash_point(group, "written");
        let committed = tx.commit().map_err(|error| {
            if !self.conn.is_autocommit() {
                let _ = self.conn.execute_batch("ROLLBACK");
            }
            *cache = Cache::default();
            fault(error)
        });
        if committed.is_ok() {
            crash_point(group, "committed");
        }
        committed
    }

    /// Notifies other processes after the commit. If the file at the path was replaced, the commit is lost: it is not in
    /// the store that is at the path now, though it may be in the former file.
    fn make_known(&self, rings: Rings) -> Result<(), Error> {
        match self.files.check() {
            Err(error) if error.kind() == ErrorKind::Replaced => return Err(error),
            // A commit stays committed, even if the path cannot be inspected just now.
            Ok(()) | Err(_) => {}
        }
        self.notifier.tell(rings);
        Ok(())
    }
}

/// Refuses the callers that are no longer served, and names the target of the move.
fn turn_away(group: &mut Vec<Box<dyn Call>>, departure: &Departure, path: &Path) {
    for call in group.extract_if(.., |call| !admits(departure.stage, call.verb())) {
        call.answer(Err(refusal(departure, path)));
    }
}

fn crash_point(group: &[Box<dyn Call>], place: &str) {
    group.iter().for_each(|call| failpoints::point(call.verb(), place));
}

fn answer(group: &mut Vec<Box<dyn Call>>, done: &Result<(), Error>) {
    for call in group.drain(..) {
        let verb = call.verb();
        call.answer(done.clone());
        failpoints::point(verb, "answered");
    }
}
