//! The one thread that writes.
//!
//! Callers send their verb and wait. The thread takes all that has come in the meantime into one transaction and
//! commits once: a commit costs a sync of the disk, whatever is in it. Nobody is answered before the commit.

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

/// Verbs that wait to be carried out; over it, callers wait to be let in.
const MAX_WAITING: usize = 4_096;
/// Verbs in one transaction: it bounds how long another process waits for its turn.
const MAX_GROUP: usize = 512;

/// How long the writer looks out for another call before it falls asleep.
const LINGER: Duration = Duration::from_micros(100);
/// How long the writer waits at most for callers of the last group to come back, however slow the disk is.
const MAX_GATHERING: Duration = Duration::from_millis(1);

/// How long a caller waits for its verb to be begun. Another process that was stopped in the middle of its turn, or a
/// stranger with the file locked, can hold everybody up.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Sends verbs to the writer thread.
pub(crate) struct Writer {
    calls: Option<mpsc::Sender<Box<dyn Call>>>,
    thread: Option<JoinHandle<()>>,
}

/// A verb with its caller.
trait Call: Send {
    fn verb(&self) -> &'static str;
    /// Whether the caller still waits for it. From then on the caller waits for the answer.
    fn take_up(&self) -> bool;
    /// Carries the verb out. May be done again, after a rollback.
    fn run(&mut self, tx: &mut Tx<'_>) -> Sql<()>;
    /// Tells the caller, once it is known whether the verb is on disk.
    fn answer(self: Box<Self>, committed: Result<(), Error>);
}

struct PendingCalls<T, F> {
    verb: &'static str,
    work: F,
    answer: Option<T>,
    /// Set once: by the writer who takes the verb up, or by the caller who gives it up.
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
        // What the verb borrowed from its caller goes back before the caller hears of it.
        drop(work);
        let answer = committed.and_then(|()| answer.ok_or_else(|| closed("the verb was not carried out")));
        // Whoever no longer waits has no use for the answer.
        let _ = caller.send(answer);
    }
}

/// What the writer thread works with.
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
    pub(crate) fn start(desk: WriterThread) -> Result<Self, Error> {
        let (calls, inbox) = mpsc::channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("ostler-write".into())
            .spawn(move || desk.serve(inbox))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("no thread for the writer: {error}"))
            })?;
        Ok(Self { calls: Some(calls), thread: Some(thread) })
    }

    /// Carries a verb out, and answers when it is on disk.
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
            // It is being written: what the disk says is the answer.
            Err(_) => answer.await,
        };
        answer.map_err(|_| closed("its writer has ended"))?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread carries out what is waiting, then ends: nobody who was let in is forgotten.
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn closed(why: &str) -> Error {
    Error::new(ErrorKind::Closed, format!("the store is closed: {why}"))
}

/// The next call. Whoever was just answered often has another: falling asleep at once and being woken again takes longer
/// than looking out for a moment.
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

/// How the last group went. Callers who work side by side come back together, a moment after they were answered: a
/// commit that waits a fraction of its own time for them carries them all, where one that runs at once would carry the
/// first and leave the others to wait for two. A lone caller is never kept waiting.
#[derive(Default)]
struct CommitPacing {
    calls: usize,
    took: Duration,
}

impl CommitPacing {
    /// Takes in what is there, and waits for as many as there were last time.
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

    /// Carries out a group in one transaction. If that fails, each one alone: one bad verb must not take its
    /// neighbours along.
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

    /// One transaction. Answers which bells to ring; an error means that nothing was written.
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

    /// After the commit: others are told. What was committed is worth nothing if the file is no longer the one that
    /// others open: nothing of it is in the store that is at the path now. It may be in the file that was there.
    fn make_known(&self, rings: Rings) -> Result<(), Error> {
        match self.files.check() {
            Err(error) if error.kind() == ErrorKind::Replaced => return Err(error),
            // What is committed stays committed, also when the path cannot be looked at just now.
            Ok(()) | Err(_) => {}
        }
        self.notifier.tell(rings);
        Ok(())
    }
}

/// Tells those who are not served any more where the store goes.
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
