//! Transactor: executes each verb as one transaction, retries it on conflicts, and determines its result even if the
//! connection is lost during the commit.

use std::sync::Arc;
use std::time::Duration;

use ostler_store::{Bells, Checks, Clock, Error};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::commit_mark::{CommitMark, CommitMarks, Fate};
use crate::conn::{Conn, Names, get};
use crate::counts::fold;
use crate::fault::{Abort, Sql, fault};
use crate::inbox::{self, Which};
use crate::locks::{LockTarget, Locks, Mode};
use crate::notifier::Notifier;
use crate::pools::Pools;
use crate::tx::{InboxMode, Tx};
use ostler_sql::dependents::close_verb;

/// How often a transaction restarts because it needs a queue that it had not locked.
const MAX_GROWING: usize = 64;
/// How often a transaction is retried because of conflicts, or because its connection was lost before the commit.
const MAX_TRIES: u32 = 10;
/// The pause before the first retry; doubles with each retry.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest of these pauses.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// How many batches of the inbox a verb takes in before its own work.
const MAX_INBOXES: usize = 20;
/// How often the result of an unconfirmed commit is queried.
const MAX_QUESTIONS: u32 = 400;
/// For how long, in multiples of the statement timeout: the server ends a silent transaction before that.
const MAX_SETTLING: u32 = 2;

/// The future of a verb.
pub(crate) type VerbFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = Sql<T>> + Send + 'a>>;

/// The source of the time.
#[derive(Clone)]
pub(crate) enum Time {
    /// From the server: all nodes share it.
    Server,
    /// From the clock in the options.
    Given(Arc<dyn Clock>),
}

impl Time {
    /// The time, unless it is the server's.
    pub(crate) fn given(&self) -> Option<i64> {
        match self {
            Self::Server => None,
            Self::Given(clock) => Some(clock.now().millis()),
        }
    }
}

/// The state shared by all verbs.
pub(crate) struct Transactor {
    pub(crate) pools: Pools,
    pub(crate) names: Arc<Names>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) marks: CommitMarks,
    pub(crate) checks: Checks,
    pub(crate) time: Time,
    pub(crate) bells: Arc<Bells>,
    pub(crate) notifier: Notifier,
}

impl Transactor {
    /// Takes a connection from the pool.
    pub(crate) async fn conn(&self) -> Sql<Conn> {
        Conn::get(&self.pools, &self.names).await
    }

    /// Executes a verb, and returns once it is on disk.
    pub(crate) async fn write<A, T, W>(&self, locks: Locks, input: &A, work: W) -> Result<T, Error>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t mut Tx, &'t A) -> VerbFuture<'t, T> + Sync,
    {
        let mut patience = Patience::default();
        loop {
            match self.carry_out(locks.clone(), input, &work, patience.inbox()).await {
                Err(Abort::Inbox) => {
                    patience.inboxes += 1;
                    self.take_in(Which::New).await?;
                }
                other => return other.map_err(fault),
            }
        }
    }

    /// Takes in a batch of the inbox. Returns how many rows there were.
    pub(crate) async fn take_in(&self, which: Which) -> Result<usize, Error> {
        let mut tries = 0;
        let locks = loop {
            let looked = async { inbox::locks(&self.conn().await?, which).await };
            match looked.await {
                Ok(locks) => break locks,
                Err(stop) if stop.is_passing() && tries < MAX_TRIES => {
                    pause(tries).await;
                    tries += 1;
                }
                Err(stop) => return Err(fault(stop)),
            }
        };
        fn work<'t>(tx: &'t mut Tx, which: &'t Which) -> VerbFuture<'t, usize> {
            Box::pin(inbox::take_in(tx, *which))
        }
        self.carry_out(locks, &which, &work, InboxMode::Passed).await.map_err(fault)
    }

    /// Retries until the verb succeeds or fails permanently.
    async fn carry_out<A, T, W>(&self, locks: Locks, input: &A, work: &W, inbox: InboxMode) -> Sql<T>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t mut Tx, &'t A) -> VerbFuture<'t, T> + Sync,
    {
        let mut locks = self.cache.strengthened(locks);
        let (mut grown, mut tries) = (0, 0);
        loop {
            match self.attempt(locks.clone(), input, work, inbox).await {
                Err(Abort::Needs(more)) if grown < MAX_GROWING => {
                    grown += 1;
                    locks = self.cache.strengthened(locks.with(more));
                }
                Err(Abort::Inbox) => return Err(Abort::Inbox),
                Err(stop) if stop.is_passing() && tries < MAX_TRIES => {
                    pause(tries).await;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    async fn attempt<A, T, W>(&self, locks: Locks, input: &A, work: &W, inbox: InboxMode) -> Sql<T>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t mut Tx, &'t A) -> VerbFuture<'t, T> + Sync,
    {
        let conn = self.conn().await?;
        let mut tx = match Tx::begin(conn, locks, &self.cache, self.checks, self.time.given(), inbox).await {
            Ok(tx) => tx,
            Err((conn, stop)) => return Err(undone(conn, stop).await),
        };
        let worked = match work(&mut tx, input).await {
            Ok(answer) => close_verb(&mut tx).await.map(|()| answer),
            Err(stop) => Err(stop),
        };
        let answer = match worked {
            Ok(answer) => answer,
            Err(stop) => return Err(undone(tx.give_up(), stop).await),
        };
        let mut done = tx.close().await?;
        let (rings, learned) = (done.rings, std::mem::take(&mut done.learned));
        let notice = done.notice(&self.notifier);
        let mark = self.marks.take(done.began.millis());
        match done.commit(notice.as_ref(), &mark).await {
            Ok((conn, written)) => {
                if written.marked {
                    self.marks.committed(&mark);
                } else {
                    self.marks.unused(&mark);
                }
                if written.fold {
                    // A skipped fold is made up for by the next one.
                    let lock =
                        Locks::none().and(LockTarget::Fold, Mode::Exclusive).columns(&self.cache.schema).0;
                    let _ = fold(&conn, &lock[0]).await;
                }
            }
            // A hint must not fail a commit: it is dropped, and the transaction restarts.
            Err(stop) if notice.is_some() && stop.is_over_a_limit() => {
                self.notifier.hold_back();
                return Err(Abort::Needs(Locks::none()));
            }
            Err(stop) => self.settle(stop, &mark).await?,
        }
        learned.keep(&self.cache);
        self.bells.ring(rings);
        self.notifier.tell(notice.map_or(rings, |notice| notice.rest)).await;
        Ok(answer)
    }

    /// Determines the result of a transaction whose commit was not confirmed: it is committed, or never will be.
    async fn settle(&self, stop: Abort, mark: &CommitMark) -> Sql<()> {
        if !stop.is_open_question() {
            return Err(stop);
        }
        let until = Instant::now() + self.names.patience() * MAX_SETTLING;
        let mut pause = PAUSE;
        for _ in 0..MAX_QUESTIONS {
            let asked = async { mark.ask(self.conn().await?, self.time.given()).await };
            match asked.await {
                Ok(Fate::Committed) => return Ok(()),
                Ok(Fate::GivenUp) => return Err(stop),
                Ok(Fate::Unknown) => break,
                // The server is unavailable, or the transaction is still open.
                Err(_) => {}
            }
            if Instant::now() >= until {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        // Must not be retried: it may have been committed.
        Err(Abort::Away("the connection was lost during COMMIT, and its outcome is unknown".to_owned()))
    }

    /// Runs `work` on one snapshot of the store.
    pub(crate) async fn look<A, T, W>(&self, input: &A, work: W) -> Result<T, Error>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t Conn, &'t A) -> VerbFuture<'t, T> + Sync,
    {
        let mut patience = Patience::default();
        let mut tries = 0;
        loop {
            match self.look_once(input, &work, patience.inbox()).await {
                Ok(answer) => return Ok(answer),
                Err(Abort::Inbox) => {
                    patience.inboxes += 1;
                    self.take_in(Which::New).await?;
                }
                Err(stop) if stop.is_passing() && tries < MAX_TRIES => {
                    pause(tries).await;
                    tries += 1;
                }
                Err(stop) => return Err(fault(stop)),
            }
        }
    }

    async fn look_once<A, T, W>(&self, input: &A, work: &W, inbox: InboxMode) -> Sql<T>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t Conn, &'t A) -> VerbFuture<'t, T> + Sync,
    {
        let mut conn = self.conn().await?;
        let looked = match begin_look(&mut conn, inbox).await {
            Ok(()) => work(&conn, input).await,
            Err(stop) => Err(stop),
        };
        match looked {
            Ok(answer) => {
                conn.commit().await?;
                Ok(answer)
            }
            Err(stop) => Err(undone(conn, stop).await),
        }
    }
}

/// Begins a read transaction, unless the inbox has to be taken in first.
async fn begin_look(conn: &mut Conn, inbox: InboxMode) -> Sql<()> {
    conn.begins();
    let any = conn.prepare(inbox::ANY).await?;
    let (begun, any) = tokio::join!(biased; conn.begin_look(), async { conn.run(&any, &[]).await });
    begun?;
    match any?.first() {
        Some(row) if inbox == InboxMode::First && get(row, 0)? => Err(Abort::Inbox),
        Some(_) | None => Ok(()),
    }
}

/// How long a verb tolerates an inbox that keeps filling.
#[derive(Default)]
struct Patience {
    inboxes: usize,
}

impl Patience {
    const fn inbox(&self) -> InboxMode {
        if self.inboxes < MAX_INBOXES { InboxMode::First } else { InboxMode::Passed }
    }
}

/// Waits before the next attempt.
async fn pause(tries: u32) {
    tokio::time::sleep((PAUSE * 2_u32.pow(tries)).min(MAX_PAUSE)).await;
}

/// Rolls back a transaction. The connection returns to the pool if that succeeds.
async fn undone(mut conn: Conn, stop: Abort) -> Abort {
    // After a lost connection there is nothing to roll back, and an unresponsive one is dropped.
    let _ = conn.roll_back().await;
    stop
}
