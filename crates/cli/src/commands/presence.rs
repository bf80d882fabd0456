//! Says to people when Redis cannot be told of a node, and when it can again: once each, however long it takes.

use ostler_runtime::{Presence, PresenceStatus, RedisAddress};
use tokio::sync::watch;

use crate::config::PresenceSettings;
use crate::exit::say;

/// Looks after the presence of one node.
pub(super) struct Watcher {
    address: RedisAddress,
    standing: watch::Receiver<PresenceStatus>,
    said: Said,
}

/// What people were told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
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
        (presence, Self { address: settings.redis.clone(), standing, said: Said::Well })
    }

    /// Says what has changed.
    pub(super) fn look(&mut self) {
        let sentence = match (&*self.standing.borrow_and_update(), self.said) {
            (PresenceStatus::Away(fault), Said::Well) => {
                self.said = Said::Away;
                format!(
                    "no presence in {}: {fault}; work goes on, and it is tried again and again",
                    self.address
                )
            }
            (PresenceStatus::Known, Said::Away) => {
                self.said = Said::Well;
                format!("{} is back, and knows of the node again", self.address)
            }
            (PresenceStatus::Away(_), Said::Away)
            | (PresenceStatus::Known, Said::Well)
            | (PresenceStatus::Untold, _) => return,
        };
        say(&sentence);
    }
}
