//! Presence heartbeats: which event to send, and the backoff after a failure. Without I/O.

use std::time::Duration;

use ostler_core::Seed;

/// The pause after the first failed heartbeat.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The connection that a heartbeat uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// Opened for this heartbeat: at the start, or after a failure.
    New,
    /// Also used by the previous heartbeat.
    Kept,
}

/// Whether the key of the node was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundKey {
    There,
    /// It was removed or has expired.
    Gone,
}

/// The event to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// The node is up, and may not have been seen before.
    Online,
    /// The node is still up.
    Heartbeat,
    /// The node exits.
    Offline,
}

impl Beat {
    /// The event type in the JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Online => "node_online",
            Self::Heartbeat => "node_heartbeat",
            Self::Offline => "node_offline",
        }
    }
}

/// A monitor may have missed the node, or considered it gone: in that case it is online again.
pub(super) const fn word(line: Connection, key: FoundKey) -> Beat {
    match (line, key) {
        (Connection::New, FoundKey::There | FoundKey::Gone) | (Connection::Kept, FoundKey::Gone) => {
            Beat::Online
        }
        (Connection::Kept, FoundKey::There) => Beat::Heartbeat,
    }
}

/// The pause after this many consecutive failures: doubled each time, never longer than the interval, and randomly
/// shortened by up to half, so that nodes do not reconnect all at once.
pub(super) fn pause(failures: u32, every: Duration, chance: &mut Seed) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    let longest = FIRST_PAUSE.saturating_mul(doubled).min(every);
    let half = longest / 2;
    let millis = u64::try_from(half.as_millis()).unwrap_or(u64::MAX);
    half + Duration::from_millis(chance.below(millis.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_online_again_when_it_may_have_been_missed() {
        for (line, key, said) in [
            (Connection::New, FoundKey::Gone, "node_online"),
            (Connection::New, FoundKey::There, "node_online"),
            (Connection::Kept, FoundKey::Gone, "node_online"),
            (Connection::Kept, FoundKey::There, "node_heartbeat"),
        ] {
            assert_eq!(word(line, key).name(), said, "{line:?} {key:?}");
        }
    }

    #[test]
    fn pauses_grow_and_are_never_longer_than_a_beat() {
        let every = Duration::from_secs(10);
        let mut chance = Seed::new(7);
        let mut before = Duration::ZERO;
        for failures in 1..=6 {
            let longest = FIRST_PAUSE * 2_u32.pow(failures - 1);
            let pause = pause(failures, every, &mut chance);
            assert!(pause >= longest.min(every) / 2 && pause <= longest.min(every), "{failures}: {pause:?}");
            assert!(pause >= before / 2, "{failures}");
            before = pause;
        }
        for failures in [7, 40, u32::MAX] {
            let pause = pause(failures, every, &mut chance);
            assert!(pause >= every / 2 && pause <= every, "{failures}: {pause:?}");
        }
    }

    #[test]
    fn two_nodes_do_not_come_back_at_the_same_moment() {
        let pauses = |seed| {
            let mut chance = Seed::new(seed);
            (1..9).map(|failures| pause(failures, Duration::from_secs(10), &mut chance)).collect::<Vec<_>>()
        };
        assert_ne!(pauses(1), pauses(2));
    }
}
