//! Carries verbs out: each is one transaction, which is tried again when others were in its way, and whose end is known even
//! when the connection is lost at its commit.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use ostler_store::{Bells, Checks, Clock, Error};

use crate::conn::{Conn, Names, get};
use crate::counts::fold;
use crate::dependents::close_verb;
use crate::fault::{Sql, Stop, fault};
use crate::herald::Herald;
use crate::locks::{Locks, Mode, What};
use crate::memo::Memo;
use crate::tx::{Done, Tx};

/// How often a transaction begins anew because it met a queue that it had not locked.
const MAX_GROWING: usize = 64;
/// How often a transaction is tried again because others were in its way, or its connection was lost before the commit.
const MAX_TRIES: u32 = 10;
/// The pause before the first of these tries; each one is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest of these pauses.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// How often it is asked what became of a commit whose answer was lost.
const MAX_QUESTIONS: u32 = 40;

/// A future of a verb.
pub(crate) type Work<'a, T> = std::pin::Pin<Box<dyn Future<Output = Sql<T>> + Send + 'a>>;

/// Where the time comes from.
#[derive(Clone)]
pub(crate) enum Time {
    /// From the server: all nodes share it.
    Server,
    /// From whoever opened the store.
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

/// What all verbs share.
pub(crate) struct Desk {
    pub(crate) pool: Pool,
    pub(crate) names: Arc<Names>,
    pub(crate) memo: Arc<Memo>,
    pub(crate) checks: Checks,
    pub(crate) time: Time,
    pub(crate) bells: Arc<Bells>,
    pub(crate) herald: Herald,
}

impl Desk {
    /// A connection.
    pub(crate) async fn conn(&self) -> Sql<Conn> {
        Conn::get(&self.pool, &self.names).await
    }

    /// Carries a verb out, and answers when it is on disk.
    pub(crate) async fn write<A, T, W>(&self, locks: Locks, input: &A, work: W) -> Result<T, Error>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t mut Tx, &'t A) -> Work<'t, T> + Sync,
    {
        let mut locks = self.memo.strengthened(locks);
        let (mut grown, mut tries) = (0, 0);
        loop {
            match self.attempt(locks.clone(), input, &work).await {
                Ok(answer) => return Ok(answer),
                Err(Stop::Needs(more)) if grown < MAX_GROWING => {
                    grown += 1;
                    locks = self.memo.strengthened(locks.with(more));
                }
                Err(stop) if stop.is_passing() && tries < MAX_TRIES => {
                    tokio::time::sleep((PAUSE * 2_u32.pow(tries)).min(MAX_PAUSE)).await;
                    tries += 1;
                }
                Err(stop) => return Err(fault(stop)),
            }
        }
    }

    async fn attempt<A, T, W>(&self, locks: Locks, input: &A, work: &W) -> Sql<T>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t mut Tx, &'t A) -> Work<'t, T> + Sync,
    {
        let conn = self.conn().await?;
        let mut tx = match Tx::begin(conn, locks, &self.memo, self.checks, self.time.given()).await {
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
        let Done { mut conn, rings, written } = tx.close().await?;
        if let Err(stop) = conn.commit().await {
            drop(conn);
            self.settle(stop, written.transaction.as_deref()).await?;
        } else if written.fold {
            // A sum that is not made now is made the next time.
            let lock = Locks::none().and(What::Fold, Mode::Alone).columns(&self.memo.schema).0;
            let _ = fold(&conn, &lock[0]).await;
        }
        self.bells.ring(rings);
        self.herald.tell(rings);
        Ok(answer)
    }

    /// The answer to a commit did not come. Asks what became of the transaction.
    async fn settle(&self, stop: Stop, transaction: Option<&str>) -> Sql<()> {
        if !stop.is_open_question() {
            return Err(stop);
        }
        // It has written nothing.
        let Some(transaction) = transaction else { return Ok(()) };
        let mut pause = PAUSE;
        for _ in 0..MAX_QUESTIONS {
            if let Ok(status) = self.status(transaction).await {
                match status.as_deref() {
                    Some("committed") => return Ok(()),
                    Some("in progress") => {}
                    _ => return Err(stop),
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        Err(stop)
    }

    async fn status(&self, transaction: &str) -> Sql<Option<String>> {
        let conn = self.conn().await?;
        let row = conn.one("SELECT pg_xact_status($1::text::xid8)", &[&transaction]).await?;
        get(&row, 0)
    }

    /// Looks at one moment of the store.
    pub(crate) async fn look<A, T, W>(&self, input: &A, work: W) -> Result<T, Error>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t Conn, &'t A) -> Work<'t, T> + Sync,
    {
        let mut tries = 0;
        loop {
            match self.look_once(input, &work).await {
                Ok(answer) => return Ok(answer),
                Err(stop) if stop.is_passing() && tries < MAX_TRIES => {
                    tokio::time::sleep((PAUSE * 2_u32.pow(tries)).min(MAX_PAUSE)).await;
                    tries += 1;
                }
                Err(stop) => return Err(fault(stop)),
            }
        }
    }

    async fn look_once<A, T, W>(&self, input: &A, work: &W) -> Sql<T>
    where
        A: Sync + ?Sized,
        T: Send,
        W: for<'t> Fn(&'t Conn, &'t A) -> Work<'t, T> + Sync,
    {
        let mut conn = self.conn().await?;
        conn.begin_look().await?;
        match work(&conn, input).await {
            Ok(answer) => {
                conn.commit().await?;
                Ok(answer)
            }
            Err(stop) => Err(undone(conn, stop).await),
        }
    }
}

/// Undoes a transaction. The connection goes back to the pool if that worked.
async fn undone(mut conn: Conn, stop: Stop) -> Stop {
    // After a lost connection there is nothing to undo, and one that does not answer is given up.
    let _ = conn.roll_back().await;
    stop
}
