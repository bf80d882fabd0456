//! Notifier: wake-ups between processes by LISTEN/NOTIFY. Sends at most one notification every few milliseconds, and
//! receives those of other processes over its own connection. Notifications are hints: a lost one costs the time until
//! the next poll. The connection is idle most of the time, so it is checked periodically.
//!
//! Changes of tasks are notified only while a watcher is announced, and not with the commit: `change_watch.rs` is the watcher's side.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_store::{Bells, ChangeWatch, Rings};
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::change_watch::{Hearing, Watches};
use crate::conn::quoted;
use crate::connect::Connector;
use crate::fault::{Abort, Sql};
use crate::pools::Pools;

/// The minimum interval between two notifications of one process. A notification takes a database-wide lock at commit.
const SPACING: Duration = Duration::from_millis(5);
/// The same for changes.
const CHANGES_SPACING: Duration = Duration::from_millis(20);
/// How long an announced watcher is notified of changes. It announces itself again before that.
const WATCHED_FOR: Duration = Duration::from_secs(6);
/// How long commits carry no notification after the server has refused one.
const HELD_BACK: Duration = Duration::from_secs(60);
/// The timeout of sending a notification.
const MAX_NOTICE: Duration = Duration::from_secs(5);
/// The minimum timeout of a connection check.
const MIN_ANSWER: Duration = Duration::from_secs(1);
/// The pause before the first attempt to listen again; doubles with each attempt.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// The longest of these pauses.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long our own notification may take to return through a pooler.
const MAX_ECHO: Duration = Duration::from_secs(2);

/// Whether the notifications of other processes are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// Received over a dedicated connection.
    #[default]
    On,
    /// Not received.
    Off,
    /// Not received, by a process that makes a few calls only: its own notifications are sent before a verb returns.
    Brief,
}

#[derive(Clone, Copy)]
pub(crate) struct ListenMode {
    pub(crate) listening: Listening,
    /// How long the connection may be idle before it is checked.
    pub(crate) check_idle: Duration,
}

/// A notification that is sent with a commit.
pub(crate) struct Notification {
    pub(crate) channel: String,
    pub(crate) text: String,
    /// The signals that it does not carry.
    pub(crate) rest: Rings,
}

/// Sends notifications, and receives those of others, until it is dropped.
pub(crate) struct Notifier {
    publisher: Publisher,
    listening: Listening,
    pending: Arc<PendingNotifications>,
    watches: Watches,
    _tasks: JoinSet<()>,
}

/// Sends notifications.
#[derive(Clone)]
pub(crate) struct Publisher {
    pools: Pools,
    channel: String,
    /// Distinguishes our own notifications from those of others.
    own: String,
}

/// The signals that are still to be sent.
#[derive(Default)]
struct PendingNotifications {
    ready: AtomicBool,
    news: AtomicBool,
    some: Notify,
    /// There was a change.
    changes: Notify,
    /// Until when a watcher is announced.
    watched_until: StdMutex<Option<Instant>>,
    /// The time until which no notification is sent with a commit.
    quiet_until: StdMutex<Option<Instant>>,
    /// Held while sending.
    sending: Mutex<()>,
}

impl PendingNotifications {
    fn quiet_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.quiet_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.watched_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watcher announces itself. A new one gets a hint: there may have been changes that it was not told about.
    fn watcher(&self) {
        let now = Instant::now();
        let before = self.watched_until().replace(now + WATCHED_FOR);
        if before.is_none_or(|until| until < now) {
            self.changes.notify_one();
        }
    }

    /// There was a change.
    fn changed(&self) {
        if self.watched_until().is_some_and(|until| Instant::now() < until) {
            self.changes.notify_one();
        }
    }

    /// Records that a notification was sent.
    fn is_told(&self) {
        let mut quiet = self.quiet_until();
        *quiet = (*quiet).max(Some(Instant::now() + SPACING));
    }
}

impl Notifier {
    /// Starts sending and listening. Once this returns, notifications are received.
    pub(crate) async fn start(
        pools: &Pools,
        connector: Connector,
        channel: String,
        bells: &Arc<Bells>,
        how: ListenMode,
    ) -> Sql<Self> {
        let ListenMode { listening, check_idle } = how;
        let pending = Arc::new(PendingNotifications::default());
        let own = format!("{:x}", RandomState::new().build_hasher().finish());
        let mut tasks = JoinSet::new();
        let publisher = Publisher { pools: pools.clone(), channel: channel.clone(), own: own.clone() };
        let subscriber = Subscriber {
            connector,
            channel,
            own,
            bells: Arc::clone(bells),
            publisher: publisher.clone(),
            pending: Arc::clone(&pending),
            check_idle,
        };
        let hearing = match listening {
            Listening::On => {
                let hearing = match subscriber.listen().await? {
                    ListenEnd::Hears(subscription) => {
                        tasks.spawn(subscriber.clone().keep_listening(subscription));
                        tasks.spawn(publisher.clone().speak_of_changes(Arc::clone(&pending)));
                        Hearing::Always
                    }
                    ListenEnd::NoNotifications => Hearing::Never,
                };
                tasks.spawn(publisher.clone().speak(Arc::clone(&pending)));
                hearing
            }
            Listening::Off => {
                tasks.spawn(publisher.clone().speak(Arc::clone(&pending)));
                Hearing::OnDemand
            }
            Listening::Brief => Hearing::OnDemand,
        };
        let watches = Watches::new(subscriber, hearing);
        Ok(Self { publisher, listening, pending, watches, _tasks: tasks })
    }

    /// Makes known that this store is watched, for as long as the result is kept.
    pub(crate) fn watch(&self) -> Arc<dyn ChangeWatch> {
        self.watches.watch()
    }

    /// Returns the notification of these signals, to be sent with the commit that caused them: others receive it at once,
    /// and it costs no extra transaction. `None`: there is no signal, or it is too early; see [`tell`](Self::tell).
    pub(crate) fn with_commit(&self, rings: Rings) -> Option<Notification> {
        // Changes are many: a process of many writes tells about them apart, and only if a watcher is announced.
        let apart =
            Rings { changed: rings.changed && self.listening != Listening::Brief, ..Rings::default() };
        let text = self.publisher.text(Rings { changed: rings.changed && !apart.changed, ..rings })?;
        let left = [&self.pending.ready, &self.pending.news];
        let waits = left.into_iter().any(|word| word.load(Ordering::SeqCst));
        let mut quiet = self.pending.quiet_until();
        let now = Instant::now();
        if waits || quiet.is_some_and(|until| now < until) {
            return None;
        }
        *quiet = Some(now + SPACING);
        Some(Notification { channel: self.publisher.channel.clone(), text, rest: apart })
    }

    /// Suspends notifications with commits, because the server refuses them now.
    pub(crate) fn hold_back(&self) {
        *self.pending.quiet_until() = Some(Instant::now() + HELD_BACK);
    }

    /// Sends these signals to others: soon, or before this returns if the process may not live until then.
    pub(crate) async fn tell(&self, rings: Rings) {
        if self.listening == Listening::Brief {
            return self.publisher.say(rings).await;
        }
        if rings.ready {
            self.pending.ready.store(true, Ordering::SeqCst);
        }
        if rings.control {
            self.pending.news.store(true, Ordering::SeqCst);
        }
        if rings.ready || rings.control {
            self.pending.some.notify_one();
        }
        if rings.changed {
            self.pending.changed();
        }
    }

    /// Waits until all notifications are sent.
    #[cfg(feature = "conformance")]
    pub(crate) async fn silent(&self) {
        loop {
            {
                let _sending = self.pending.sending.lock().await;
                let left = [&self.pending.ready, &self.pending.news];
                if !left.into_iter().any(|word| word.load(Ordering::SeqCst)) {
                    return;
                }
            }
            sleep(SPACING).await;
        }
    }
}

impl Publisher {
    /// Sends the pending signals, combining several into one notification.
    async fn speak(self, pending: Arc<PendingNotifications>) {
        loop {
            pending.some.notified().await;
            {
                let _sending = pending.sending.lock().await;
                let ready = pending.ready.swap(false, Ordering::SeqCst);
                let news = pending.news.swap(false, Ordering::SeqCst);
                self.say(Rings { ready, control: news, ..Rings::default() }).await;
            }
            pending.is_told();
            sleep(SPACING).await;
        }
    }

    /// Tells about changes, combining several into one notification.
    async fn speak_of_changes(self, pending: Arc<PendingNotifications>) {
        loop {
            pending.changes.notified().await;
            self.say(Rings { changed: true, ..Rings::default() }).await;
            sleep(CHANGES_SPACING).await;
        }
    }

    /// Announces a watcher.
    pub(crate) async fn announce(&self) {
        let _ = timeout(MAX_NOTICE, self.notify(&format!("{} {WATCH}", self.own))).await;
    }

    async fn say(&self, rings: Rings) {
        if let Some(notice) = self.text(rings) {
            // A hint that cannot be sent is lost: waiting processes also poll.
            let _ = timeout(MAX_NOTICE, self.notify(&notice)).await;
        }
    }

    /// The text of the notification, if there is any signal.
    fn text(&self, rings: Rings) -> Option<String> {
        let words = [(rings.ready, READY), (rings.control, NEWS), (rings.changed, CHANGED)];
        let said: Vec<&str> = words.into_iter().filter(|(rang, _)| *rang).map(|(_, word)| word).collect();
        (!said.is_empty()).then(|| format!("{} {}", self.own, said.join(" ")))
    }

    /// Notifies all listeners.
    async fn notify(&self, notice: &str) {
        let Ok(pool) = self.pools.here() else { return };
        let Ok(conn) = pool.get().await else { return };
        let said: [(&(dyn ToSql + Sync), Type); 2] = [(&self.channel, Type::TEXT), (&notice, Type::TEXT)];
        let _ = conn.query_typed("SELECT pg_notify($1, $2)", &said).await;
    }
}

/// The words of a notification.
const READY: &str = "ready";
const NEWS: &str = "news";
const CHANGED: &str = "changed";
/// A watcher wants to be told about changes.
const WATCH: &str = "watch";
/// Tests whether notifications come back.
const ECHO: &str = "echo";

/// Receives the notifications of others.
#[derive(Clone)]
pub(crate) struct Subscriber {
    connector: Connector,
    channel: String,
    own: String,
    pub(crate) bells: Arc<Bells>,
    pub(crate) publisher: Publisher,
    pending: Arc<PendingNotifications>,
    check_idle: Duration,
}

/// A listening connection; closed on drop.
pub(crate) struct Subscription {
    client: Client,
    lost: JoinHandle<()>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // A connection that does not answer would not end by itself.
        self.lost.abort();
    }
}

/// The result of starting to listen.
pub(crate) enum ListenEnd {
    Hears(Subscription),
    /// Notifications do not arrive: a pooler gives each transaction another connection. Waiting processes have to poll.
    NoNotifications,
}

impl Subscriber {
    pub(crate) async fn listen(&self) -> Sql<ListenEnd> {
        let (bells, own, pending) = (Arc::clone(&self.bells), self.own.clone(), Arc::clone(&self.pending));
        let echoes = Arc::new(Notify::new());
        let echoed = Arc::clone(&echoes);
        let hear = move |notice: &str| {
            let mut words = notice.split(' ');
            let ours = words.next() == Some(own.as_str());
            let said: Vec<&str> = words.collect();
            if !ours {
                let [ready, control, changed] = [READY, NEWS, CHANGED].map(|word| said.contains(&word));
                bells.ring(Rings { ready, control, changed });
                if said.contains(&WATCH) {
                    pending.watcher();
                }
            } else if said.contains(&ECHO) {
                echoed.notify_one();
            }
        };
        let (client, lost) = self.connector.listener(Box::new(hear)).await?;
        let subscription = Subscription { client, lost };
        let listen = format!("LISTEN {}", quoted(&self.channel));
        timeout(MAX_NOTICE, subscription.client.batch_execute(&listen))
            .await
            .map_err(|_| Abort::Silent)??;
        if self.connector.session_settings().hold() || self.hears_itself(&echoes).await {
            return Ok(ListenEnd::Hears(subscription));
        }
        // The server connection that listens now will be given to another client.
        let _ = timeout(MAX_NOTICE, subscription.client.batch_execute("UNLISTEN *")).await;
        Ok(ListenEnd::NoNotifications)
    }

    /// Whether notifications pass through the pooler between this process and the server.
    async fn hears_itself(&self, echoes: &Notify) -> bool {
        let heard = async {
            self.publisher.notify(&format!("{} {ECHO}", self.own)).await;
            echoes.notified().await;
        };
        timeout(MAX_ECHO, heard).await.is_ok()
    }

    pub(crate) async fn keep_listening(self, mut subscription: Subscription) {
        loop {
            tokio::select! {
                _ = &mut subscription.lost => {}
                () = self.falls_silent(&subscription.client) => {}
            }
            drop(subscription);
            let mut pause = PAUSE;
            subscription = loop {
                sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
                match self.listen().await {
                    Ok(ListenEnd::Hears(subscription)) => break subscription,
                    Ok(ListenEnd::NoNotifications) => return,
                    Err(_) => {}
                }
            };
            // Notifications sent in the meantime were lost.
            self.bells.ring(Rings { ready: true, control: true, changed: true });
        }
    }

    /// Waits until the connection stops answering. A network can drop an idle connection silently.
    async fn falls_silent(&self, client: &Client) {
        loop {
            sleep(self.check_idle).await;
            if !answers(client, self.check_idle).await {
                return;
            }
        }
    }
}

/// Whether a connection answers in time. The shorter the check interval, the shorter the timeout.
pub(crate) async fn answers(client: &Client, check_idle: Duration) -> bool {
    let bound = check_idle.clamp(MIN_ANSWER, MAX_NOTICE);
    matches!(timeout(bound, client.check_connection()).await, Ok(Ok(())))
}
