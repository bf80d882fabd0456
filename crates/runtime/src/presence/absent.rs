//! A program without the feature `redis`: nobody has presence.

use super::Subject;

/// Where a node says that it is there. There is none without the feature `redis`.
#[derive(Clone, Debug)]
pub enum Presence {}

/// Nobody is told.
pub(crate) async fn announce(presence: Presence, _: Subject) {
    match presence {}
}
