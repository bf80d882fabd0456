//! Presence without the feature `redis`: it cannot be constructed.

use super::Subject;
use crate::config::InvalidConfig;

/// The presence of a node; uninhabited without the feature `redis`.
#[derive(Clone, Debug)]
pub enum Presence {}

impl Presence {
    pub(crate) const fn check(&self) -> Result<(), InvalidConfig> {
        match *self {}
    }
}

pub(crate) async fn announce(presence: Presence, _: Subject) {
    match presence {}
}
