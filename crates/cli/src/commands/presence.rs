//! Says to people when Redis cannot be told of a node, and when it can again: once each, however long it takes.

use ostler_runtime::{Presence, PresenceStatus, RedisAddress};
use tokio::sync::watch;

use crate::config::PresenceSettings;
use crate::exit::say;

/// Looks after the presence of one node.
pub(super) struct Watcher {
    address: RedisAddress,
    standing: watch::Receiver<PresenceStatus>,
    said: LastReport,
}

/// What people were told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastReport {
    /// Nothing, or that all is well.
    Well,
    /// That Redis is away.
    Away,
}

impl Watcher {
    /// A presence there, and who looks after it.
    pub(super) fn of(settings: &PresenceSettings) -> (Presence, Self) {
        let presence = settings.of_a_node();
        let standing = presence.standing();
        (presence, Self { address: settings.redis.clone(), standing, said: LastReport::Well })
    }

    /// Says what has changed.
    pub(super) fn look(&mut self) {
        let sentence = match (&*self.standing.borrow_and_update(), self.said) {
            (PresenceStatus::Away(fault), LastReport::Well) => {
                self.said = LastReport::Away;
                format!(
                    "no presence in {}: {fault}; work goes on, and it is tried again and again",
                    self.address
                )
            }
            (PresenceStatus::Known, LastReport::Away) => {
                self.said = LastReport::Well;
                format!("{} is back, and knows of the node again", self.address)
            }
            (PresenceStatus::Away(_), LastReport::Away)
            | (PresenceStatus::Known, LastReport::Well)
            | (PresenceStatus::Untold, _) => return,
        };
        say(&sentence);
    }
}
