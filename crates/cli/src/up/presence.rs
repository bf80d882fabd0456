//! Reports when presence in Redis fails and when it recovers, once each.

use ostler_runtime::{Presence, PresenceStatus, RedisAddress};
use tokio::sync::watch;

use crate::config::PresenceSettings;
use crate::exit::{say, warn};

pub(super) struct Watcher {
    address: RedisAddress,
    standing: watch::Receiver<PresenceStatus>,
    said: LastReport,
}

/// What was reported last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastReport {
    /// Nothing, or that Redis is reachable.
    Well,
    /// That Redis is unreachable.
    Away,
}

impl Watcher {
    /// A presence with these settings, and its watcher.
    pub(super) fn of(settings: &PresenceSettings) -> (Presence, Self) {
        let presence = settings.of_a_node();
        let standing = presence.standing();
        (presence, Self { address: settings.redis.clone(), standing, said: LastReport::Well })
    }

    /// Reports changes.
    pub(super) fn look(&mut self) {
        match (&*self.standing.borrow_and_update(), self.said) {
            (PresenceStatus::Away(fault), LastReport::Well) => {
                self.said = LastReport::Away;
                warn(&format!(
                    "no presence in {}: {fault}; work goes on, and Ostler keeps retrying",
                    self.address
                ));
            }
            (PresenceStatus::Known, LastReport::Away) => {
                self.said = LastReport::Well;
                say(&format!("{} is back, and has the node's presence again", self.address));
            }
            (PresenceStatus::Away(_), LastReport::Away)
            | (PresenceStatus::Known, LastReport::Well)
            | (PresenceStatus::Untold, _) => {}
        }
    }
}
