//! Store health: whether a node's store can be used. Every store call of the node goes through `watched_store.rs`, which
//! reports its result here; the owner of the node is notified once when an outage begins and once when it is over.
//!
//! A store that is unavailable, full or busy is waited for. One that was replaced, moved or damaged does not come back: the
//! node is fenced and does not rejoin.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_store::{Clock, Error, ErrorKind};
use tokio::sync::mpsc;

use crate::lifecycle::NodeLifecycle;
use crate::telemetry::Telemetry;

/// The minimum time between two notifications of the same kind of error.
const QUIET: Duration = Duration::from_secs(30);
/// A call that takes longer than this counts as unanswered in notifications.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(10);

/// A change in the availability of a node's store. Displays as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreNews {
    /// The store cannot be used; the node waits for it. Reports that cannot be written are kept.
    Away(Error),
    /// The store can be used again.
    Back {
        /// How long the store could not be used.
        after: Duration,
    },
    /// The store rejected one operation and would do so again; the node continues without it.
    Refused(Error),
    /// The store will not come back; the node stops its work and drains.
    Gone(Error),
}

impl fmt::Display for StoreNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(error) => {
                write!(f, "{error}; the node waits for the store, and keeps its results until then")
            }
            Self::Back { after } => write!(f, "the store is back after {}s", after.as_secs()),
            Self::Refused(error) => write!(f, "{error}; the node continues without it"),
            Self::Gone(error) => write!(f, "{error}; the node exits"),
        }
    }
}

/// The health of a node's store, for the owner of the node. Also valid after the node has ended.
#[derive(Clone)]
pub struct StoreHealth(Arc<SharedHealth>);

struct SharedHealth {
    book: Mutex<HealthRecord>,
    /// Fast path: no outage, so a success changes nothing.
    well: AtomicBool,
    clock: Arc<dyn Clock>,
    lifecycle: NodeLifecycle,
    news: Option<mpsc::Sender<StoreNews>>,
    telemetry: Telemetry,
}

/// What a successful call proves about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proof {
    /// The store can be read.
    Read,
    /// The write lock was acquired.
    Turn,
    /// Something was written.
    Written,
}

/// The origin of a call's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The node itself: if the input is rejected, the store is not usable.
    Own,
    /// A task or user: if the input is rejected, the caller gets the error.
    Work,
}

/// A method of the store contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    /// What its success proves at least.
    pub(crate) shows: Proof,
    pub(crate) input: Input,
}

impl StoreHealth {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        lifecycle: NodeLifecycle,
        news: Option<mpsc::Sender<StoreNews>>,
        telemetry: Telemetry,
    ) -> Self {
        Self(Arc::new(SharedHealth {
            book: Mutex::default(),
            well: AtomicBool::new(true),
            clock,
            lifecycle,
            news,
            telemetry,
        }))
    }

    /// The current problem of the store, if any.
    #[must_use]
    pub fn trouble(&self) -> Option<Error> {
        let book = self.lock();
        book.gone.clone().or_else(|| book.trouble.as_ref().map(|trouble| trouble.error.clone()))
    }

    /// Why the store will not come back, if that is so.
    #[must_use]
    pub fn gone(&self) -> Option<Error> {
        self.lock().gone.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HealthRecord> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn worked(&self, verb: Verb, proof: Proof) {
        if self.0.well.load(Ordering::Relaxed) {
            return;
        }
        let news = {
            let mut book = self.lock();
            let news = book.worked(verb, proof, self.0.clock.uptime());
            self.0.well.store(book.trouble.is_none(), Ordering::Relaxed);
            news
        };
        self.notify(news);
    }

    pub(crate) fn failed(&self, verb: Verb, error: &Error) {
        let news = {
            let mut book = self.lock();
            let news = book.failed(verb, error, self.0.clock.uptime());
            self.0.well.store(book.trouble.is_none(), Ordering::Relaxed);
            news
        };
        if let Some(StoreNews::Gone(_)) = news {
            self.0.lifecycle.fence();
        }
        self.notify(news);
    }

    /// Reports a call that has not been answered for a while.
    pub(crate) fn silent(&self, verb: Verb) {
        let sentence = format!("the store has not answered for {}s", SILENT_AFTER.as_secs());
        self.failed(verb, &Error::new(ErrorKind::Unavailable, sentence));
    }

    fn notify(&self, news: Option<StoreNews>) {
        let Some(news) = news else { return };
        self.0.telemetry.store_news(&news);
        if let Some(sender) = &self.0.news {
            // Never blocks: the heartbeat calls this. The channel has room for more than arrive while its owner reads.
            let _ = sender.try_send(news);
        }
    }
}

/// The state of the store.
#[derive(Default)]
struct HealthRecord {
    trouble: Option<Outage>,
    gone: Option<Error>,
    /// When each kind of error was last reported.
    said: HashMap<ErrorKind, Duration>,
}

struct Outage {
    error: Error,
    verb: Verb,
    since: Duration,
    was_said: bool,
}

impl Outage {
    /// Whether this success proves that the outage is over.
    fn is_over(&self, verb: Verb, proof: Proof) -> bool {
        match self.error.kind() {
            // Some calls are accepted throughout a move.
            ErrorKind::Moving => verb == self.verb,
            // A call with nothing to write acquires the lock on a full disk as well.
            ErrorKind::Full => proof == Proof::Written,
            ErrorKind::Busy | ErrorKind::ReadOnly => proof >= Proof::Turn,
            ErrorKind::Invalid
            | ErrorKind::Unavailable
            | ErrorKind::Foreign
            | ErrorKind::TooNew
            | ErrorKind::Damaged
            | ErrorKind::BadRow
            | ErrorKind::Replaced
            | ErrorKind::Moved
            | ErrorKind::Closed
            | ErrorKind::Internal => proof >= self.verb.shows,
        }
    }
}

/// What an error means for the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// An error for the caller alone.
    Answer,
    /// The store is waited for.
    Wait,
    /// This operation cannot be done; continue without it.
    GoOn,
    /// The store is lost.
    End,
}

fn meaning(verb: Verb, kind: ErrorKind) -> Meaning {
    match (kind, verb.input) {
        (ErrorKind::Invalid, Input::Work) => Meaning::Answer,
        (ErrorKind::Invalid, Input::Own)
        | (
            ErrorKind::Full
            | ErrorKind::Busy
            | ErrorKind::Unavailable
            | ErrorKind::ReadOnly
            | ErrorKind::Moving,
            Input::Own | Input::Work,
        ) => Meaning::Wait,
        (ErrorKind::BadRow | ErrorKind::Internal, Input::Own | Input::Work) => Meaning::GoOn,
        (
            ErrorKind::Foreign
            | ErrorKind::TooNew
            | ErrorKind::Damaged
            | ErrorKind::Replaced
            | ErrorKind::Moved
            | ErrorKind::Closed,
            Input::Own | Input::Work,
        ) => Meaning::End,
    }
}

impl HealthRecord {
    fn failed(&mut self, verb: Verb, error: &Error, now: Duration) -> Option<StoreNews> {
        if self.gone.is_some() {
            return None;
        }
        match meaning(verb, error.kind()) {
            Meaning::Answer => None,
            Meaning::GoOn => self.may_say(error.kind(), now).then(|| StoreNews::Refused(error.clone())),
            Meaning::End => {
                self.gone = Some(error.clone());
                Some(StoreNews::Gone(error.clone()))
            }
            Meaning::Wait => self.wait(verb, error, now),
        }
    }

    fn wait(&mut self, verb: Verb, error: &Error, now: Duration) -> Option<StoreNews> {
        let (since, was_said, same) = match &self.trouble {
            Some(trouble) => (trouble.since, trouble.was_said, trouble.error.kind() == error.kind()),
            None => (now, false, false),
        };
        if same && was_said {
            return None;
        }
        let says = self.may_say(error.kind(), now);
        self.trouble = Some(Outage { error: error.clone(), verb, since, was_said: was_said || says });
        says.then(|| StoreNews::Away(error.clone()))
    }

    fn worked(&mut self, verb: Verb, proof: Proof, now: Duration) -> Option<StoreNews> {
        let over = self.trouble.take_if(|trouble| trouble.is_over(verb, proof))?;
        over.was_said.then(|| StoreNews::Back { after: now.saturating_sub(over.since) })
    }

    /// Whether an error of this kind may be reported now; if so, it counts as reported.
    fn may_say(&mut self, kind: ErrorKind, now: Duration) -> bool {
        let may = self.said.get(&kind).is_none_or(|said| now.saturating_sub(*said) >= QUIET);
        if may {
            self.said.insert(kind, now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Verb = Verb { name: "survey", shows: Proof::Read, input: Input::Own };
    const CLAIM: Verb = Verb { name: "claim", shows: Proof::Turn, input: Input::Own };
    const FINISH: Verb = Verb { name: "finish", shows: Proof::Written, input: Input::Work };
    const EXPIRE: Verb = Verb { name: "expire", shows: Proof::Read, input: Input::Own };

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, format!("{kind:?}"))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn trouble_is_said_once_and_so_is_its_end() {
        let mut book = HealthRecord::default();
        let away = error(ErrorKind::Unavailable);
        assert_eq!(book.failed(CLAIM, &away, seconds(5)), Some(StoreNews::Away(away.clone())));
        for later in 6..100 {
            assert_eq!(book.failed(CLAIM, &away, seconds(later)), None);
            assert_eq!(book.failed(LOOK, &away, seconds(later)), None);
        }
        let back = StoreNews::Back { after: seconds(95) };
        assert_eq!(book.worked(CLAIM, Proof::Turn, seconds(100)), Some(back));
        assert_eq!(book.worked(CLAIM, Proof::Turn, seconds(101)), None);
    }

    #[test]
    fn trouble_that_comes_and_goes_is_not_said_each_time() {
        let (mut book, full) = (HealthRecord::default(), error(ErrorKind::Full));
        let mut said = 0;
        for moment in 0..60 {
            said += usize::from(book.failed(FINISH, &full, seconds(moment)).is_some());
            said += usize::from(book.worked(FINISH, Proof::Written, seconds(moment)).is_some());
        }
        assert_eq!(said, 4, "two times in a minute, and their ends");
    }

    #[test]
    fn trouble_that_was_too_early_to_be_said_is_said_when_it_lasts() {
        let (mut book, away) = (HealthRecord::default(), error(ErrorKind::Unavailable));
        book.failed(CLAIM, &away, seconds(0));
        book.worked(CLAIM, Proof::Turn, seconds(1));
        assert_eq!(book.failed(CLAIM, &away, seconds(2)), None);
        assert_eq!(book.failed(CLAIM, &away, seconds(31)), Some(StoreNews::Away(away.clone())));
        let back = StoreNews::Back { after: seconds(30) };
        assert_eq!(book.worked(CLAIM, Proof::Turn, seconds(32)), Some(back));
    }

    #[test]
    fn a_full_disk_is_over_when_something_was_written() {
        let (mut book, full) = (HealthRecord::default(), error(ErrorKind::Full));
        assert!(book.failed(FINISH, &full, seconds(0)).is_some());
        assert_eq!(book.worked(LOOK, Proof::Read, seconds(1)), None);
        assert_eq!(book.worked(CLAIM, Proof::Turn, seconds(2)), None, "it had nothing to write");
        assert!(book.worked(CLAIM, Proof::Written, seconds(3)).is_some());
    }

    #[test]
    fn a_store_that_moves_is_not_back_because_work_may_end() {
        let (mut book, moving) = (HealthRecord::default(), error(ErrorKind::Moving));
        assert!(book.failed(EXPIRE, &moving, seconds(0)).is_some());
        assert_eq!(book.worked(FINISH, Proof::Written, seconds(1)), None);
        assert!(book.worked(EXPIRE, Proof::Read, seconds(2)).is_some());
    }

    #[test]
    fn what_does_not_come_back_is_said_once_and_nothing_after_it() {
        for kind in [ErrorKind::Replaced, ErrorKind::Damaged, ErrorKind::Foreign, ErrorKind::Moved] {
            let mut book = HealthRecord::default();
            assert_eq!(book.failed(CLAIM, &error(kind), seconds(0)), Some(StoreNews::Gone(error(kind))));
            assert_eq!(book.failed(LOOK, &error(ErrorKind::Unavailable), seconds(99)), None);
            assert_eq!(book.worked(FINISH, Proof::Written, seconds(99)), None);
        }
    }

    #[test]
    fn what_the_work_got_wrong_is_no_news_and_a_bad_row_does_not_end_the_node() {
        let mut book = HealthRecord::default();
        assert_eq!(book.failed(FINISH, &error(ErrorKind::Invalid), seconds(0)), None);
        let bad = error(ErrorKind::BadRow);
        assert_eq!(book.failed(FINISH, &bad, seconds(0)), Some(StoreNews::Refused(bad.clone())));
        assert_eq!(book.failed(FINISH, &bad, seconds(1)), None);
        assert!(book.gone.is_none() && book.trouble.is_none());
    }
}
