//! Wake-ups between processes: a notice to all who listen, at most every few milliseconds, and the connection that hears the notices of
//! others. They are hints: one that is lost costs the time until the next look. The connection is idle most of the time, so that it is asked
//! from time to time whether it still is one.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_store::{Bells, Rings};
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::conn::quoted;
use crate::connect::Connector;
use crate::fault::{Abort, Sql};
use crate::pools::Pools;

/// The least time between two notices of one process. A notice takes a lock of the whole database when it is committed.
const SPACING: Duration = Duration::from_millis(5);
/// How long no notice goes with a commit after the server has refused one.
const HELD_BACK: Duration = Duration::from_secs(60);
/// How long a notice may take.
const MAX_NOTICE: Duration = Duration::from_secs(5);
/// How long a connection that is asked whether it still is one has to answer, at least.
const MIN_ANSWER: Duration = Duration::from_secs(1);
/// The pause before the first try to listen again; each one is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest of these pauses.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a notice of our own may take to come back through a pooler.
const MAX_ECHO: Duration = Duration::from_secs(2);

/// Whether the notices of other processes are heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// They are, over a connection of their own.
    #[default]
    On,
    /// They are not.
    Off,
    /// They are not, by who stays for a few calls only: what others are to be told is told before a verb answers.
    Brief,
}

/// How it is listened.
#[derive(Clone, Copy)]
pub(crate) struct ListenMode {
    pub(crate) listening: Listening,
    /// How long the connection may say nothing before it is asked whether it still is one.
    pub(crate) check_idle: Duration,
}

/// What is told together with a commit.
pub(crate) struct Notification {
    pub(crate) channel: String,
    pub(crate) text: String,
}

/// Tells others, and hears them, until it is dropped.
pub(crate) struct Notifier {
    voice: Publisher,
    listening: Listening,
    pending: Arc<PendingNotifications>,
    _tasks: JoinSet<()>,
}

/// Gives notices.
#[derive(Clone)]
struct Publisher {
    pools: Pools,
    channel: String,
    /// Tells our own notices from those of others.
    own: String,
}

/// What others are to be told.
#[derive(Default)]
struct PendingNotifications {
    ready: AtomicBool,
    news: AtomicBool,
    some: Notify,
    /// Until when nothing is told with a commit.
    quiet_until: StdMutex<Option<Instant>>,
    /// Held by who tells.
    telling: Mutex<()>,
}

impl PendingNotifications {
    fn quiet_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.quiet_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A notice was given.
    fn is_told(&self) {
        let mut quiet = self.quiet_until();
        *quiet = (*quiet).max(Some(Instant::now() + SPACING));
    }
}

impl Notifier {
    /// Begins to tell, and to listen. When this answers, notices are heard.
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
        let voice = Publisher { pools: pools.clone(), channel: channel.clone(), own: own.clone() };
        match listening {
            Listening::On => {
                let bells = Arc::clone(bells);
                let subscriber =
                    Subscriber { connector, channel, own, bells, voice: voice.clone(), check_idle };
                match subscriber.listen().await? {
                    ListenEnd::Hears(subscription) => {
                        drop(tasks.spawn(subscriber.keep_listening(subscription)))
                    }
                    ListenEnd::Deaf => {}
                }
                tasks.spawn(voice.clone().speak(Arc::clone(&pending)));
            }
            Listening::Off => drop(tasks.spawn(voice.clone().speak(Arc::clone(&pending)))),
            Listening::Brief => {}
        }
        Ok(Self { voice, listening, pending, _tasks: tasks })
    }

    /// The notice that these bells rang, for the commit that has rung them: others hear it at once, and it costs no transaction of its own.
    /// `None`: there is nothing to tell, or it is not time; see [`tell`](Self::tell).
    pub(crate) fn with_commit(&self, rings: Rings) -> Option<Notification> {
        let text = self.voice.text(rings)?;
        let left = [&self.pending.ready, &self.pending.news];
        let waits = left.into_iter().any(|word| word.load(Ordering::SeqCst));
        let mut quiet = self.pending.quiet_until();
        let now = Instant::now();
        if waits || quiet.is_some_and(|until| now < until) {
            return None;
        }
        *quiet = Some(now + SPACING);
        Some(Notification { channel: self.voice.channel.clone(), text })
    }

    /// The server does not take notices with commits now.
    pub(crate) fn hold_back(&self) {
        *self.pending.quiet_until() = Some(Instant::now() + HELD_BACK);
    }

    /// Tells others that these bells rang: soon, or before this answers where nobody may be left to do it soon.
    pub(crate) async fn tell(&self, rings: Rings) {
        if self.listening == Listening::Brief {
            return self.voice.say(rings).await;
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
    }

    /// Waits until all is told.
    #[cfg(feature = "conformance")]
    pub(crate) async fn silent(&self) {
        loop {
            {
                let _telling = self.pending.telling.lock().await;
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
    /// Sends what is pending, many rings as one notice.
    async fn speak(self, pending: Arc<PendingNotifications>) {
        loop {
            pending.some.notified().await;
            {
                let _telling = pending.telling.lock().await;
                let ready = pending.ready.swap(false, Ordering::SeqCst);
                let news = pending.news.swap(false, Ordering::SeqCst);
                self.say(Rings { ready, control: news }).await;
            }
            pending.is_told();
            sleep(SPACING).await;
        }
    }

    async fn say(&self, rings: Rings) {
        if let Some(notice) = self.text(rings) {
            // A hint that cannot be given is lost: whoever waits looks from time to time.
            let _ = timeout(MAX_NOTICE, self.notify(&notice)).await;
        }
    }

    /// What is said of these bells, if any of them rang.
    fn text(&self, rings: Rings) -> Option<String> {
        let words = [(rings.ready, READY), (rings.control, NEWS)];
        let said: Vec<&str> = words.into_iter().filter(|(rang, _)| *rang).map(|(_, word)| word).collect();
        (!said.is_empty()).then(|| format!("{} {}", self.own, said.join(" ")))
    }

    /// Tells all who listen.
    async fn notify(&self, notice: &str) {
        let Ok(pool) = self.pools.here() else { return };
        let Ok(conn) = pool.get().await else { return };
        let said: [(&(dyn ToSql + Sync), Type); 2] = [(&self.channel, Type::TEXT), (&notice, Type::TEXT)];
        let _ = conn.query_typed("SELECT pg_notify($1, $2)", &said).await;
    }
}

/// What a notice says.
const READY: &str = "ready";
const NEWS: &str = "news";
/// Whether it comes back.
const ECHO: &str = "echo";

/// Hears the notices of others.
struct Subscriber {
    connector: Connector,
    channel: String,
    own: String,
    bells: Arc<Bells>,
    voice: Publisher,
    check_idle: Duration,
}

/// A connection that hears. It is closed when this is dropped.
struct Subscription {
    client: Client,
    lost: JoinHandle<()>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // One that does not answer would not end by itself.
        self.lost.abort();
    }
}

/// What came of listening.
enum ListenEnd {
    Hears(Subscription),
    /// Nothing is heard: a pooler gives each transaction another connection, and notices go to nobody. Whoever waits looks from time to time.
    Deaf,
}

impl Subscriber {
    async fn listen(&self) -> Sql<ListenEnd> {
        let (bells, own) = (Arc::clone(&self.bells), self.own.clone());
        let echoes = Arc::new(Notify::new());
        let echoed = Arc::clone(&echoes);
        let hear = move |notice: &str| {
            let mut words = notice.split(' ');
            let ours = words.next() == Some(own.as_str());
            let said: Vec<&str> = words.collect();
            if !ours {
                bells.ring(Rings { ready: said.contains(&READY), control: said.contains(&NEWS) });
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
        // The connection of the server that listens now is somebody else's next.
        let _ = timeout(MAX_NOTICE, subscription.client.batch_execute("UNLISTEN *")).await;
        Ok(ListenEnd::Deaf)
    }

    /// Whether notices come through the pooler that is between us and the server.
    async fn hears_itself(&self, echoes: &Notify) -> bool {
        let heard = async {
            self.voice.notify(&format!("{} {ECHO}", self.own)).await;
            echoes.notified().await;
        };
        timeout(MAX_ECHO, heard).await.is_ok()
    }

    async fn keep_listening(self, mut subscription: Subscription) {
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
                    Ok(ListenEnd::Deaf) => return,
                    Err(_) => {}
                }
            };
            // What was said meanwhile nobody has heard.
            self.bells.ring(Rings { ready: true, control: true });
        }
    }

    /// Waits until the connection does not answer. A network can forget one that is idle, and tell nobody.
    async fn falls_silent(&self, client: &Client) {
        loop {
            sleep(self.check_idle).await;
            if !answers(client, self.check_idle).await {
                return;
            }
        }
    }
}

/// Whether a connection answers, in time. The more often it is asked, the less time it has.
pub(crate) async fn answers(client: &Client, check_idle: Duration) -> bool {
    let bound = check_idle.clamp(MIN_ANSWER, MAX_NOTICE);
    matches!(timeout(bound, client.check_connection()).await, Ok(Ok(())))
}
