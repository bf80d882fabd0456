//! Changes: wake-up hints that a task ended or an event was written in a store, by this process or another.
//!
//! Only processes that watch are told. A watcher announces itself once it has waited for a moment; writers notice it within tens of
//! milliseconds and signal from then on, so that a store without watchers pays for none. A hint may be lost or spurious.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use crate::wake::Wakeups;

/// The pause before the first poll; doubles with each poll. Short at first: many waits are, and writers take a moment to notice a
/// new watcher.
const FIRST_POLL: Duration = Duration::from_millis(2);
/// The longest pause: what a lost hint costs.
pub const LAST_POLL: Duration = Duration::from_secs(1);
/// The longest pause of a watcher that hears no other process.
const LAST_POLL_UNHEARD: Duration = Duration::from_millis(200);
/// A watcher announces itself when the next pause is as long as this.
const ANNOUNCED_AT: Duration = Duration::from_millis(32);
/// The minimum interval between two hints, however many changes there are.
const SPACING: Duration = Duration::from_millis(20);

/// An announced watcher: other processes tell it about changes until it is dropped.
pub trait ChangeWatch: Send + Sync {
    /// Whether hints of other processes can arrive.
    fn hears(&self) -> bool;
}

/// Why a wait for a change is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There probably was a change.
    Hint,
    /// A while has passed: a hint may have been lost.
    Poll,
}

type Announce = Box<dyn Fn() -> Arc<dyn ChangeWatch> + Send + Sync>;

/// Waits for changes of a store. Create it first, then query, then wait, and query again after every wait: what happens in between
/// is not missed.
pub struct Changes {
    bell: Wakeups,
    /// `None`: no other process has this store.
    announce: Option<Announce>,
    watch: Option<Arc<dyn ChangeWatch>>,
    pause: Duration,
    /// The earliest time of the next hint.
    next_hint: Instant,
}

impl Changes {
    /// Hints of this process come by the bell, those of others too once `announce` was called.
    #[must_use]
    pub fn new(bell: Wakeups, announce: impl Fn() -> Arc<dyn ChangeWatch> + Send + Sync + 'static) -> Self {
        Self { announce: Some(Box::new(announce)), ..Self::within_process(bell) }
    }

    /// For a store that no other process has.
    #[must_use]
    pub fn within_process(bell: Wakeups) -> Self {
        Self { bell, announce: None, watch: None, pause: FIRST_POLL, next_hint: Instant::now() }
    }

    /// Waits for a change since the last wait, for a second at most. Dropping the future loses no more than a hint.
    pub async fn wait(&mut self) -> Woken {
        if self.pause >= ANNOUNCED_AT && self.watch.is_none() {
            self.watch = self.announce.as_ref().map(|announce| announce());
        }
        let heard = self.watch.as_ref().is_none_or(|watch| watch.hears());
        let longest = if heard { LAST_POLL } else { LAST_POLL_UNHEARD };
        match timeout(self.pause.min(longest), self.bell.wait()).await {
            Ok(()) => {
                sleep_until(self.next_hint).await;
                self.bell.arm();
                self.next_hint = Instant::now() + SPACING;
                Woken::Hint
            }
            Err(_) => {
                self.pause = (self.pause * 2).min(LAST_POLL);
                Woken::Poll
            }
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("pause", &self.pause).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::wake::Bell;

    #[derive(Default)]
    struct Link {
        announced: AtomicBool,
        hears: AtomicBool,
    }

    impl ChangeWatch for Link {
        fn hears(&self) -> bool {
            self.hears.load(Ordering::SeqCst)
        }
    }

    fn changes(bell: &Bell, hears: bool) -> (Changes, Arc<Link>) {
        let link = Arc::new(Link::default());
        link.hears.store(hears, Ordering::SeqCst);
        let own = Arc::clone(&link);
        let announce = move || {
            own.announced.store(true, Ordering::SeqCst);
            Arc::clone(&own) as Arc<dyn ChangeWatch>
        };
        (Changes::new(bell.listen(), announce), link)
    }

    #[tokio::test(start_paused = true)]
    async fn without_hints_a_wait_ends_after_a_second_at_most_and_only_a_long_one_is_announced() {
        let bell = Bell::default();
        let (mut changes, link) = changes(&bell, true);
        let began = Instant::now();
        assert_eq!(changes.wait().await, Woken::Poll);
        assert!(began.elapsed() < FIRST_POLL * 2 && !link.announced.load(Ordering::SeqCst));
        for _ in 0..20 {
            assert_eq!(changes.wait().await, Woken::Poll);
        }
        assert!(link.announced.load(Ordering::SeqCst));
        let began = Instant::now();
        changes.wait().await;
        assert!(began.elapsed() <= LAST_POLL + Duration::from_millis(1));
        assert!(began.elapsed() > LAST_POLL_UNHEARD, "polls are rare once hints can arrive");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_that_hears_no_other_process_polls_more_often() {
        let bell = Bell::default();
        let (mut changes, _) = changes(&bell, false);
        for _ in 0..20 {
            changes.wait().await;
        }
        let began = Instant::now();
        changes.wait().await;
        assert!(began.elapsed() <= LAST_POLL_UNHEARD + Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_ends_a_wait_at_once_and_many_are_spaced() {
        let bell = Bell::default();
        let (mut changes, _) = changes(&bell, true);
        for _ in 0..20 {
            changes.wait().await;
        }
        let began = Instant::now();
        bell.ring();
        assert_eq!((changes.wait().await, began.elapsed()), (Woken::Hint, Duration::ZERO));
        for _ in 0..10 {
            bell.ring();
            assert_eq!(changes.wait().await, Woken::Hint);
        }
        assert!(began.elapsed() >= SPACING * 10);
        bell.ring();
        bell.ring();
        assert_eq!((changes.wait().await, changes.wait().await), (Woken::Hint, Woken::Poll));
    }
}
