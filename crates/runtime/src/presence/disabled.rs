//! A program without the feature `redis`: nobody has presence.

use super::Subject;
use crate::config::InvalidConfig;

/// Where a node says that it is there. There is none without the feature `redis`.
#[derive(Clone, Debug)]
pub enum Presence {}

impl Presence {
    pub(crate) const fn check(&self) -> Result<(), InvalidConfig> {
        match *self {}
    }
}

/// Nobody is told.
pub(crate) async fn announce(presence: Presence, _: Subject) {
    match presence {}
}
