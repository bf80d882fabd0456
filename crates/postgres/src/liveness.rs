//! Heartbeat connection, on its own thread. It renews the node's session and stays idle in between; other nodes detect
//! the node's death by the end of this connection. It also watches the connections of the other nodes.
//!
//! A lost connection is not a death: a live node renews over a new one. A session counts as dead only if its connection
//! was gone and it did not renew for a whole [`GRACE`], observed over a connection that existed all the time: had the
//! server closed all connections, it would have closed the observer's, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::calls::Renewed;
use ostler_store::{Bells, Checks, LeaseRef};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::backend::Backend;
use crate::conn::{Conn, Names};
use crate::connect::Connector;
use crate::fault::{Abort, Sql};
use crate::verbs::{expire, sessions};

/// How long a node whose connection is lost may take to reconnect before it counts as dead.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// The timeout of a renewal: a node has to learn in time that it failed.
const MAX_RENEWAL: Duration = Duration::from_secs(10);
/// How long a check of other nodes' connections may delay a renewal.
const MAX_LOOK: Duration = Duration::from_secs(2);
/// Calls queued for the heartbeat.
const MAX_ASKS: usize = 64;

/// When the tasks of a dead node are handed to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failover {
    /// Some seconds after its connection is lost, where that can be detected; otherwise when its lease expires. A network
    /// that cuts the connection of a live node, and lets it open no other, can cause two concurrent runs of a task; only
    /// one of them counts.
    #[default]
    Known,
    /// When its lease expires: for work where running twice is costly. Applies to the node that sets it, whatever the
    /// others use.
    Strict,
}

/// A session whose connection is gone, and its renewal count when that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoneSession {
    pub(crate) session: SessionId,
    pub(crate) renewals: i64,
}

/// Sends heartbeats for the node that has the store open, from its first renewal on.
pub(crate) struct Heartbeat {
    deps: HeartbeatDeps,
    asks: Mutex<Option<mpsc::Sender<HeartbeatCall>>>,
}

/// The dependencies of the heartbeat.
#[derive(Clone)]
pub(crate) struct HeartbeatDeps {
    pub(crate) connector: Connector,
    pub(crate) names: Arc<Names>,
    pub(crate) checks: Checks,
    pub(crate) bells: Arc<Bells>,
    pub(crate) failover: Failover,
}

/// A call to the heartbeat thread.
enum HeartbeatCall {
    /// Renew a session.
    Renew { renewal: Renewal, answer: oneshot::Sender<Sql<Renewed>> },
    /// Record that a node is shutting down on purpose.
    Depart { session: SessionId, answer: oneshot::Sender<Sql<bool>> },
    /// List the sessions known to be dead.
    Dead { answer: oneshot::Sender<Vec<GoneSession>> },
}

/// The session to renew, its leases, and the time, unless it is the server's.
pub(crate) struct Renewal {
    pub(crate) session: SessionId,
    pub(crate) held: Vec<LeaseRef>,
    pub(crate) now: Option<i64>,
}

impl Heartbeat {
    pub(crate) const fn new(deps: HeartbeatDeps) -> Self {
        Self { deps, asks: Mutex::new(None) }
    }

    /// Renews a session, independently of the caller's runtime.
    pub(crate) async fn renew(&self, renewal: Renewal) -> Sql<Renewed> {
        let asks = self.beating()?;
        let (answer, answered) = oneshot::channel();
        let asked = async {
            asks.send(HeartbeatCall::Renew { renewal, answer }).await.map_err(|_| stopped())?;
            answered.await.map_err(|_| stopped())?
        };
        timeout(MAX_RENEWAL, asked).await.unwrap_or(Err(Abort::Silent))
    }

    /// Records that a session's node is shutting down on purpose. False: the session has ended.
    pub(crate) async fn depart(&self, session: SessionId) -> Sql<bool> {
        let asks = self.beating()?;
        let (answer, answered) = oneshot::channel();
        let asked = async {
            asks.send(HeartbeatCall::Depart { session, answer }).await.map_err(|_| stopped())?;
            answered.await.map_err(|_| stopped())?
        };
        timeout(MAX_RENEWAL, asked).await.unwrap_or(Err(Abort::Silent))
    }

    /// Returns the sessions known to be dead. Empty without a heartbeat, or if deaths cannot be detected: then the lease
    /// decides.
    pub(crate) async fn dead(&self) -> Vec<GoneSession> {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, answered) = oneshot::channel();
        match asks {
            Some(asks) if asks.send(HeartbeatCall::Dead { answer }).await.is_ok() => {
                answered.await.unwrap_or_default()
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Starts the heartbeat, unless it is running.
    fn beating(&self) -> Sql<mpsc::Sender<HeartbeatCall>> {
        let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asks) = asks.as_ref().filter(|asks| !asks.is_closed()) {
            return Ok(asks.clone());
        }
        let (sender, receiver) = mpsc::channel(MAX_ASKS);
        let beat = HeartbeatThread { deps: self.deps.clone(), link: None };
        let no_thread = |error| Abort::Away(format!("cannot start the heartbeat's thread: {error}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let thread = std::thread::Builder::new().name("ostler-heartbeat".into());
        thread.spawn(move || runtime.block_on(beat.serve(receiver))).map_err(no_thread)?;
        Ok(asks.insert(sender).clone())
    }
}

fn stopped() -> Abort {
    Abort::Away("the heartbeat has stopped".to_owned())
}

/// The part that runs on the thread.
struct HeartbeatThread {
    deps: HeartbeatDeps,
    link: Option<HeartbeatConnection>,
}

/// The connection, and the suspects seen over it.
struct HeartbeatConnection {
    conn: Conn,
    lost: oneshot::Receiver<()>,
    /// `None`: a pooler is in between.
    backend: Option<Backend>,
    suspects: Suspects,
}

impl HeartbeatThread {
    /// Serves calls until all senders are gone.
    async fn serve(mut self, mut asks: mpsc::Receiver<HeartbeatCall>) {
        loop {
            let ask = tokio::select! {
                ask = asks.recv() => ask,
                () = lost(self.link.as_mut()) => {
                    self.let_go();
                    continue;
                }
            };
            match ask {
                Some(HeartbeatCall::Renew { renewal, mut answer }) => {
                    tokio::select! {
                        renewed = self.renew(&renewal) => drop(answer.send(renewed)),
                        // The caller has given up. The connection is in the middle of an exchange, so drop it, too.
                        () = answer.closed() => {}
                    }
                }
                Some(HeartbeatCall::Depart { session, mut answer }) => {
                    tokio::select! {
                        noted = self.depart(session) => drop(answer.send(noted)),
                        () = answer.closed() => {}
                    }
                }
                Some(HeartbeatCall::Dead { answer }) => drop(answer.send(self.dead().await)),
                None => return,
            }
        }
    }

    async fn renew(&mut self, renewal: &Renewal) -> Sql<Renewed> {
        match self.renew_once(renewal).await {
            // This is how a connection that was lost since the last renewal is detected.
            Err(stop) if stop.is_passing() => self.renew_once(renewal).await,
            renewed => renewed,
        }
    }

    async fn renew_once(&mut self, renewal: &Renewal) -> Sql<Renewed> {
        // A renewal abandoned in the middle must leave no partial reply for the next one.
        let link = match self.link.take().filter(|link| !link.conn.is_closed()) {
            Some(link) => link,
            None => self.open().await?,
        };
        let shown = match self.deps.failover {
            Failover::Known => link.backend,
            Failover::Strict => None,
        };
        let renewed = sessions::renew(&link.conn, self.deps.checks, renewal, shown).await?;
        self.link = Some(link);
        Ok(renewed)
    }

    async fn depart(&mut self, session: SessionId) -> Sql<bool> {
        match self.depart_once(session).await {
            // This is how a connection that was lost since the last renewal is detected; recording the departure twice is
            // harmless.
            Err(stop) if stop.is_passing() => self.depart_once(session).await,
            noted => noted,
        }
    }

    async fn depart_once(&mut self, session: SessionId) -> Sql<bool> {
        let link = match self.link.take().filter(|link| !link.conn.is_closed()) {
            Some(link) => link,
            None => self.open().await?,
        };
        let noted = sessions::depart(&link.conn, session).await?;
        self.link = Some(link);
        Ok(noted)
    }

    async fn open(&self) -> Sql<HeartbeatConnection> {
        let opened = self.deps.connector.watched().await?;
        let conn = Conn::own(opened.client, self.deps.connector.session_settings(), &self.deps.names);
        let backend = Backend::of(&conn, opened.told_pid).await?;
        Ok(HeartbeatConnection { conn, lost: opened.lost, backend, suspects: Suspects::default() })
    }

    async fn dead(&mut self) -> Vec<GoneSession> {
        let watches = self.deps.failover == Failover::Known;
        let Some(mut link) = self.link.take_if(|link| watches && link.backend.is_some()) else {
            return Vec::new();
        };
        let Ok(Ok(gone)) = timeout(MAX_LOOK, expire::gone(&link.conn)).await else {
            self.let_go();
            return Vec::new();
        };
        let dead = link.suspects.see(&gone, Instant::now());
        self.link = Some(link);
        dead
    }

    /// Drops the lost connection. The node should renew now, over another one: other nodes may be watching.
    fn let_go(&mut self) {
        self.link = None;
        self.deps.bells.control.ring();
    }
}

/// Waits for the loss of a connection; forever if there is none.
async fn lost(link: Option<&mut HeartbeatConnection>) {
    match link {
        Some(link) => drop((&mut link.lost).await),
        None => std::future::pending().await,
    }
}

/// Sessions whose connection was gone at the last check, and since when they have not renewed.
#[derive(Default)]
struct Suspects(HashMap<SessionId, (i64, Instant)>);

impl Suspects {
    /// Records the current observation, and returns the sessions that were gone for the whole grace period.
    fn see(&mut self, gone: &[GoneSession], now: Instant) -> Vec<GoneSession> {
        let before = std::mem::take(&mut self.0);
        for seen in gone {
            let since = match before.get(&seen.session) {
                Some((renewals, since)) if *renewals == seen.renewals => *since,
                Some(_) | None => now,
            };
            self.0.insert(seen.session, (seen.renewals, since));
        }
        let dead = |seen: &&GoneSession| now.duration_since(self.0[&seen.session].1) >= GRACE;
        gone.iter().filter(dead).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::Id;

    use super::*;

    const ONE: SessionId = SessionId(Id::from_bits(1));
    const OTHER: SessionId = SessionId(Id::from_bits(2));

    fn gone(session: SessionId, renewals: i64) -> GoneSession {
        GoneSession { session, renewals }
    }

    #[test]
    fn who_is_gone_for_the_whole_grace_is_dead() {
        let (mut suspects, start) = (Suspects::default(), Instant::now());
        assert_eq!(suspects.see(&[gone(ONE, 4)], start), []);
        let almost = start + GRACE - Duration::from_millis(1);
        assert_eq!(suspects.see(&[gone(ONE, 4), gone(OTHER, 1)], almost), []);
        assert_eq!(suspects.see(&[gone(ONE, 4), gone(OTHER, 1)], start + GRACE), [gone(ONE, 4)]);
    }

    #[test]
    fn who_renewed_or_was_seen_has_the_whole_grace_again() {
        let (mut suspects, start) = (Suspects::default(), Instant::now());
        suspects.see(&[gone(ONE, 4), gone(OTHER, 1)], start);
        suspects.see(&[gone(ONE, 4)], start + GRACE / 2);
        let both = [gone(ONE, 5), gone(OTHER, 1)];
        assert_eq!(suspects.see(&both, start + GRACE), [], "one renewed, the other was there between");
        assert_eq!(suspects.see(&both, start + GRACE * 2), both);
    }
}
