//! Start backoff: after workers fail to start, the pool waits before opening others, longer each time, and gives up after a
//! few failures until the queue is resumed.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure};
use tokio::time::Instant;

/// First and longest pause after a failed start.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Consecutive failures after which the pool gives up. Concurrent ones count once.
const MAX_FAILED: u32 = 5;
/// First pause after the node was found to lack a resource.
const FIRST_SHORT_PAUSE: Duration = Duration::from_millis(500);
/// A shortage is over if none was reported for this long although workers were opened.
const RECOVERED: Duration = Duration::from_secs(60);
/// A worker that dies by itself within this time, without having run anything, counts as a failed start.
pub(crate) const STEADY: Duration = Duration::from_secs(10);

/// The backoff state of a pool.
#[derive(Debug, Default)]
pub(crate) struct StartBackoff {
    trouble: Option<StartTrouble>,
    /// Consecutive failures without a worker that proved usable.
    failed: u32,
    short: Option<Short>,
}

/// The node lacks a resource that any worker needs, such as file descriptors. That is no fault of the workers: the pool
/// waits.
#[derive(Debug)]
struct Short {
    what: String,
    pause: Duration,
    until: Instant,
}

/// Workers fail to start.
#[derive(Debug)]
struct StartTrouble {
    failure: Failure,
    pause: Duration,
    until: Instant,
}

impl StartBackoff {
    /// Records a failed start, or a worker that died right after its start. Concurrent failures count once.
    pub(crate) fn failed(&mut self, failure: Failure, now: Instant) {
        let pause = match &self.trouble {
            None => FIRST_PAUSE,
            Some(trouble) if now < trouble.until => return,
            Some(trouble) => (trouble.pause * 2).min(LONGEST_PAUSE),
        };
        self.failed = self.failed.saturating_add(1);
        self.trouble = Some(StartTrouble { failure, pause, until: now + pause });
    }

    /// Records a started worker. It is not proved usable yet.
    pub(crate) fn came_up(&mut self) {
        if self.failed < MAX_FAILED {
            self.trouble = None;
        }
    }

    /// Records that a worker has run something or lived long enough. This does not end a shortage.
    pub(crate) fn proved(&mut self) {
        (self.trouble, self.failed) = (None, 0);
    }

    /// Records a shortage of a resource. Concurrent reports count once.
    pub(crate) fn short(&mut self, what: String, now: Instant) {
        let pause = match &self.short {
            Some(short) if now < short.until => return,
            Some(short) if now < short.until + RECOVERED => (short.pause * 2).min(LONGEST_PAUSE),
            Some(_) | None => FIRST_SHORT_PAUSE,
        };
        self.short = Some(Short { what, pause, until: now + pause });
    }

    /// The current or recent shortage.
    pub(crate) fn shortage(&self, now: Instant) -> Option<Failure> {
        let short = self.short.as_ref().filter(|short| now < short.until + RECOVERED)?;
        Some(Failure::new(ErrorClass::Transient, short.what.clone()))
    }

    /// No worker is opened before this time.
    pub(crate) fn open_again(&self) -> Option<Instant> {
        let trouble = self.trouble.as_ref().map(|trouble| trouble.until);
        let short = self.short.as_ref().map(|short| short.until);
        trouble.into_iter().chain(short).max()
    }

    pub(crate) fn is_resting(&self, now: Instant) -> bool {
        self.open_again().is_some_and(|until| now < until)
    }

    /// Why workers fail to start, if they do.
    pub(crate) fn trouble(&self) -> Option<&Failure> {
        self.trouble.as_ref().map(|trouble| &trouble.failure)
    }

    /// The last failure, if the pool has given up.
    pub(crate) fn given_up(&self) -> Option<&Failure> {
        if self.failed >= MAX_FAILED { self.trouble() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(message: &str) -> Failure {
        Failure::new(ErrorClass::Crash, message)
    }

    #[test]
    fn pauses_grow_and_those_that_fail_together_count_once() {
        let (mut starts, mut now) = (StartBackoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..4 {
            (0..3).for_each(|_| starts.failed(failure("no"), now));
            let until = starts.open_again().expect("a pause");
            pauses.push(until - now);
            assert!(starts.is_resting(now) && !starts.is_resting(until));
            now = until;
        }
        assert_eq!(pauses, [100, 200, 400, 800].map(Duration::from_millis));
        assert_eq!(starts.given_up(), None);
        starts.failed(failure("still no"), now);
        assert_eq!(starts.given_up(), Some(&failure("still no")));
    }

    #[test]
    fn who_comes_up_and_dies_at_once_has_not_come_up() {
        let (mut starts, mut now) = (StartBackoff::default(), Instant::now());
        for _ in 0..MAX_FAILED {
            assert_eq!(starts.given_up(), None);
            starts.came_up();
            assert_eq!(starts.trouble(), None, "it looks well");
            starts.failed(failure("short-lived"), now);
            now += LONGEST_PAUSE;
        }
        assert!(starts.given_up().is_some());
    }

    #[test]
    fn one_that_was_of_use_makes_good_for_all_before() {
        let (mut starts, mut now) = (StartBackoff::default(), Instant::now());
        for _ in 0..MAX_FAILED * 3 {
            starts.failed(failure("now and then"), now);
            now += LONGEST_PAUSE;
            starts.proved();
        }
        assert_eq!((starts.trouble(), starts.given_up()), (None, None));
    }

    #[test]
    fn a_shortage_is_waited_for_and_never_given_up() {
        let (mut starts, mut now) = (StartBackoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..MAX_FAILED + 3 {
            (0..3).for_each(|_| starts.short("no descriptors".to_owned(), now));
            let until = starts.open_again().expect("a pause");
            pauses.push((until - now).as_millis());
            // Workers that do start do not end the shortage.
            starts.came_up();
            starts.proved();
            assert!(starts.is_resting(now) && !starts.is_resting(until));
            now = until;
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!((starts.trouble(), starts.given_up()), (None, None));
        assert_eq!(starts.shortage(now).map(|failure| failure.message).as_deref(), Some("no descriptors"));
        now += RECOVERED;
        assert_eq!(starts.shortage(now), None, "it is over");
        starts.short("again".to_owned(), now);
        assert_eq!(starts.open_again(), Some(now + FIRST_SHORT_PAUSE));
    }
}
