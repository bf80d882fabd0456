//! Announces a node in Redis with periodic heartbeats, over one connection and without a queue: a failed heartbeat is not
//! repeated, the next one carries the current state.

use std::time::Duration;

use ostler_core::Seed;
use tokio::sync::watch;
use tokio::time::Instant;

use super::beat::{Beat, Connection, pause, word};
use super::event::{NodeSnapshot, PoolSnapshot};
use super::link::RedisLink;
use super::{RedisAddress, RedisFault, Subject};
use crate::config::InvalidConfig;
use crate::lifecycle::NodeState;
use crate::session::host;
use crate::workers::WorkerSet;

/// How long an exiting node waits for Redis to remove its presence. A key that is left expires by itself.
const FAREWELL: Duration = Duration::from_secs(1);

/// The presence of a node in Redis. Clones share the same status.
#[derive(Clone, Debug)]
pub struct Presence {
    address: RedisAddress,
    times: PresenceTimes,
    standing: watch::Sender<PresenceStatus>,
}

/// The interval and lifetime of the presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresenceTimes {
    /// The interval between heartbeats. Default: 10 s.
    pub interval: Duration,
    /// How long the key lasts without a heartbeat; at least two intervals. Default: 30 s.
    pub ttl: Duration,
}

impl Default for PresenceTimes {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), ttl: Duration::from_secs(30) }
    }
}

/// Whether the node is announced in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceStatus {
    /// Not announced yet.
    Untold,
    /// Announced.
    Known,
    /// The last heartbeat failed. It is retried as long as the node is up.
    Away(RedisFault),
}

impl Presence {
    /// Presence at this address, with default times.
    #[must_use]
    pub fn new(address: RedisAddress) -> Self {
        let (times, standing) = (PresenceTimes::default(), watch::Sender::new(PresenceStatus::Untold));
        Self { address, times, standing }
    }

    /// Sets interval and lifetime.
    #[must_use]
    pub fn beating(self, times: PresenceTimes) -> Self {
        Self { times, ..self }
    }

    /// Checks the times.
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        let PresenceTimes { interval, ttl } = self.times;
        if interval.is_zero() {
            return Err(InvalidConfig::new("presence.interval must be longer than zero"));
        }
        if ttl < interval.saturating_mul(2) {
            let sentence =
                format!("presence.ttl is {ttl:?}, but must be at least two intervals ({interval:?} each)");
            return Err(InvalidConfig::new(sentence));
        }
        Ok(())
    }

    /// Watches whether the node is announced in Redis.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<PresenceStatus> {
        self.standing.subscribe()
    }
}

/// Announces a node until its session is over.
pub(crate) async fn announce(presence: Presence, subject: Subject) {
    let key = format!("ostler:node:{}", subject.session);
    Announcer { presence, subject, key, link: None }.serve().await;
}

struct Announcer {
    presence: Presence,
    subject: Subject,
    key: String,
    link: Option<RedisLink>,
}

impl Announcer {
    async fn serve(mut self) {
        let mut state = self.subject.state.clone();
        let mut chance = Seed::new(self.subject.session.0.bits() as u64);
        let mut failures = 0_u32;
        loop {
            let began = Instant::now();
            let sent = tokio::select! {
                biased;
                () = over(&mut state) => break,
                sent = self.beat() => sent,
            };
            let wait = match sent {
                Ok(()) => {
                    failures = 0;
                    self.stands(PresenceStatus::Known);
                    self.presence.times.interval
                }
                Err(fault) => {
                    // Late replies are not awaited.
                    self.link = None;
                    failures = failures.saturating_add(1);
                    self.stands(PresenceStatus::Away(fault));
                    pause(failures, self.presence.times.interval, &mut chance)
                }
            };
            tokio::select! {
                biased;
                () = over(&mut state) => break,
                () = tokio::time::sleep_until(began + wait) => {}
            }
        }
        // Without a connection, the key expires by itself.
        let _ = tokio::time::timeout(FAREWELL, self.farewell()).await;
    }

    async fn beat(&mut self) -> Result<(), RedisFault> {
        let line = if self.link.is_some() { Connection::Kept } else { Connection::New };
        let link = match &mut self.link {
            Some(link) => link,
            none => none.insert(RedisLink::open(&self.presence.address).await?),
        };
        let seen = self.subject.seen();
        let key = link.refresh(&self.key, &seen.event(Beat::Heartbeat), self.presence.times.ttl).await?;
        link.publish(&seen.event(word(line, key))).await
    }

    async fn farewell(&mut self) -> Result<(), RedisFault> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.remove(&self.key).await?;
        link.publish(&self.subject.seen().event(Beat::Offline)).await
    }

    fn stands(&self, now: PresenceStatus) {
        self.presence.standing.send_if_modified(|standing| {
            let changes = *standing != now;
            *standing = now;
            changes
        });
    }
}

impl Subject {
    /// A snapshot of the node.
    fn seen(&self) -> NodeSnapshot {
        let pool = |workers: &WorkerSet| PoolSnapshot {
            name: workers.pool().to_owned(),
            workers: workers.workers(),
        };
        let pools = self.worker_sets.all().iter().map(pool).collect();
        NodeSnapshot {
            node: self.session,
            name: self.name.clone(),
            host: host(),
            pools,
            now: self.clock.now(),
        }
    }
}

/// Waits until the session is over.
async fn over(state: &mut watch::Receiver<NodeState>) {
    let is_over = |state: &NodeState| matches!(state, NodeState::Ended | NodeState::Fenced);
    // If the sender is gone, the session is over as well.
    let _ = state.wait_for(is_over).await;
}
