//! File descriptor limits (`RLIMIT_NOFILE`): how many files a node may have open, and how many it needs.
//!
//! Shells and service managers often set a soft limit below the hard limit. A node and its supervisor raise their own soft limit; the
//! children get the one that the node was started with, because some programs misbehave with a large one.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of the node itself: its store, its sockets, its runtimes.
const FOR_THE_NODE: u64 = 32;
/// Descriptors per worker: three pipes, or two and a socket. While a child is being started, both of their ends.
const FOR_A_WORKER: u64 = 6;
/// The soft limit is raised to this at most. No node needs more.
const MAX_RAISED: u64 = 65_536;

/// The limits that this process was started with.
static AT_START: OnceLock<Rlimit> = OnceLock::new();

/// Returns the number of descriptors that a node with this many workers needs.
#[must_use]
pub fn needed(workers: usize) -> u64 {
    let workers = u64::try_from(workers).unwrap_or(u64::MAX);
    workers.saturating_mul(FOR_A_WORKER).saturating_add(FOR_THE_NODE)
}

/// Raises the soft limit of this process as far as possible, and returns the limit now in force.
pub fn raise() -> u64 {
    let at_start = at_start();
    let Rlimit { current: Some(soft), maximum } = getrlimit(Resource::Nofile) else { return u64::MAX };
    let wanted = maximum.unwrap_or(MAX_RAISED).min(MAX_RAISED);
    // A limit that cannot be raised stays as it is.
    if soft < wanted
        && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: at_start.maximum }).is_ok()
    {
        return wanted;
    }
    soft
}

/// The soft limit that this process was started with; `None` if there is none.
pub(crate) fn soft_at_start() -> Option<u64> {
    at_start().current
}

/// The limits of a child with this soft limit.
pub(crate) fn of_children(soft: Option<u64>) -> Rlimit {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = match (soft, maximum) {
        (Some(soft), Some(maximum)) => Some(soft.min(maximum)),
        (None, maximum) => maximum,
        (Some(soft), None) => Some(soft),
    };
    Rlimit { current, maximum }
}

fn at_start() -> Rlimit {
    *AT_START.get_or_init(|| getrlimit(Resource::Nofile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_needs_some() {
        assert_eq!((needed(0), needed(1), needed(10)), (32, 38, 92));
        assert_eq!(needed(usize::MAX), u64::MAX);
    }

    #[test]
    fn children_have_no_more_than_the_supervisor_may_have() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        assert_eq!(of_children(Some(17)).current, Some(17));
        assert_eq!(of_children(None).current, maximum);
        assert_eq!(of_children(maximum.map(|most| most + 1)).current, maximum);
    }
}
