//! Change watch: a process that waits for tasks announces itself to nodes, which then notify it of changes.
//!
//! The announcement is a notification, repeated for as long as the process watches. A process that does not listen otherwise opens a
//! connection for that time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ostler_store::{ChangeWatch, Rings};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::notifier::{ListenEnd, MAX_PAUSE, PAUSE, Publisher, Subscriber};

/// The interval of announcements.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);

/// Whether a process receives notifications.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    Always,
    /// While it watches.
    OnDemand,
    /// Not through the pooler between it and the server.
    Never,
}

/// The watch of a store, shared by all who wait.
pub(crate) struct Watches {
    subscriber: Subscriber,
    hearing: Hearing,
    shared: Mutex<Weak<AnnouncedWatch>>,
}

struct AnnouncedWatch {
    hears: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl ChangeWatch for AnnouncedWatch {
    fn hears(&self) -> bool {
        self.hears.load(Ordering::SeqCst)
    }
}

impl Watches {
    pub(crate) fn new(subscriber: Subscriber, hearing: Hearing) -> Self {
        Self { subscriber, hearing, shared: Mutex::default() }
    }

    /// The watch, announced until it is dropped.
    pub(crate) fn watch(&self) -> Arc<dyn ChangeWatch> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = shared.upgrade() {
            return watch;
        }
        let hears = Arc::new(AtomicBool::new(self.hearing == Hearing::Always));
        let mut tasks = JoinSet::new();
        match self.hearing {
            Hearing::Always => drop(tasks.spawn(announce(self.subscriber.publisher.clone()))),
            Hearing::OnDemand => drop(tasks.spawn(listen(self.subscriber.clone(), Arc::clone(&hears)))),
            Hearing::Never => {}
        }
        let watch = Arc::new(AnnouncedWatch { hears, _tasks: tasks });
        *shared = Arc::downgrade(&watch);
        watch
    }
}

async fn announce(publisher: Publisher) {
    loop {
        publisher.announce().await;
        sleep(ANNOUNCE_EVERY).await;
    }
}

/// Listens and announces the watch, until notifications no longer arrive.
async fn listen(subscriber: Subscriber, hears: Arc<AtomicBool>) {
    let mut pause = PAUSE;
    let subscription = loop {
        match subscriber.listen().await {
            Ok(ListenEnd::Hears(subscription)) => break subscription,
            Ok(ListenEnd::NoNotifications) => return,
            Err(_) => sleep(pause).await,
        }
        pause = (pause * 2).min(MAX_PAUSE);
    };
    hears.store(true, Ordering::SeqCst);
    // Changes in the meantime were not heard of.
    subscriber.bells.ring(Rings { changed: true, ..Rings::default() });
    let publisher = subscriber.publisher.clone();
    tokio::select! {
        () = subscriber.keep_listening(subscription) => hears.store(false, Ordering::SeqCst),
        () = announce(publisher) => {}
    }
}
