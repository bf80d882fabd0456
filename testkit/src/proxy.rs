//! A proxy in front of a private server, which does to connections what networks do: it cuts them, is slow, falls silent, and loses an
//! answer. It can also look like a pooler.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::postgres::PrivatePostgres;
use crate::redis::PrivateRedis;
use crate::signal::MAX_WAIT;

/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;
/// The last words of a transaction, as a client sends them.
const COMMIT: &[u8] = b"COMMIT\0";
/// Bytes of a message before its text: its sort and its length.
const HEAD: usize = 5;
/// How a transaction that writes, and one that only reads, begins.
const WRITES: &[u8] = b"ISOLATION LEVEL READ COMMITTED";
const READS: &[u8] = b"READ ONLY";
/// The server is ready for more, and no transaction is open.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// How the message begins with which whoever answers gives the number of its process.
const KEY: &[u8] = b"K\0\0\0\x0c";

/// Whose process a client is told of when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The server's.
    Servers,
    /// Another one, as a pooler does.
    Ours,
}

/// What the proxy does with what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// It passes everything on.
    Fair,
    /// It passes everything on, and each answer so much later.
    Slow(Duration),
    /// It passes nothing on, and closes nothing: nobody is told.
    Silent,
    /// It closes every connection at once, and every new one.
    Cut,
    /// It passes the next commit on, and closes the connection when the answer comes.
    LosesAnswer,
    /// It closes the connection over which the next commit comes, and does not pass it on.
    LosesCommit,
    /// It keeps every commit of a transaction that writes, until the weather changes; then it closes the connection.
    HoldsCommits,
    /// It passes every commit on, and keeps the answer to each that writes, until the weather changes; then it closes the connection.
    HoldsAnswers,
    /// At the next commit of a transaction that writes, it closes the connection, and passes the commit on when the weather changes again.
    DelaysCommit,
    /// It has done so, and passes everything else on.
    HasDelayedCommit,
}

/// A proxy on a port of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
    /// How many connections are held at a commit.
    held: Arc<watch::Sender<usize>>,
    /// The first connections, of which nothing is heard any more.
    silenced: Arc<watch::Sender<usize>>,
    behind: Arc<Mutex<Behind>>,
    open: Arc<Mutex<Vec<AbortHandle>>>,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// A proxy in front of this server, in fair weather.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start(server: &PrivatePostgres) -> Self {
        Self::telling(server, Told::Servers).await
    }

    /// The same, which looks like a pooler: a client is told of another process than the one that serves it.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn pooling(server: &PrivatePostgres) -> Self {
        Self::telling(server, Told::Ours).await
    }

    /// A proxy in front of this Redis, in fair weather.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn before(server: &PrivateRedis) -> Self {
        Self::serving(Behind { place: Server::Port(server.port()), told: Told::Servers }).await
    }

    async fn telling(server: &PrivatePostgres, told: Told) -> Self {
        Self::serving(Behind { place: socket_of(server), told }).await
    }

    /// New connections lead to this server.
    pub fn lead_to(&self, server: &PrivatePostgres) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).place = socket_of(server);
    }

    /// Falls silent on all connections that are open, for good, and closes none. New ones are as the weather is.
    pub fn silence_open(&self) {
        let count = self.open.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.silenced.send_replace(count);
    }

    /// Waits until so many connections are held at a commit. Answers whether they were, in time.
    pub async fn holds(&self, count: usize) -> bool {
        let mut held = self.held.subscribe();
        tokio::time::timeout(MAX_WAIT, held.wait_for(|held| *held >= count)).await.is_ok()
    }

    async fn serving(behind: Behind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port can be had");
        let port = listener.local_addr().expect("the port is known").port();
        let weather = Arc::new(watch::Sender::new(Weather::Fair));
        let open = Arc::new(Mutex::new(Vec::new()));
        let (held, behind) = (Arc::new(watch::Sender::new(0)), Arc::new(Mutex::new(behind)));
        let mut serving = JoinSet::new();
        let silenced = Arc::new(watch::Sender::new(0));
        let (seen, count) = (Arc::clone(&silenced), Arc::clone(&held));
        let sky = Sky { weather: Arc::clone(&weather), held: count, silenced: seen, number: 0 };
        serving.spawn(serve(listener, Arc::clone(&behind), sky, Arc::clone(&open)));
        Self { port, weather, held, silenced, behind, open, _serving: serving }
    }

    /// Where a client finds the PostgreSQL server behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ostler@127.0.0.1:{}/ostler", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The weather changes, for connections that are open and for new ones.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
        if weather == Weather::Cut {
            for connection in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                connection.abort();
            }
        }
    }

    /// The weather: an answer or a commit is lost once.
    #[must_use]
    pub fn weather(&self) -> Weather {
        *self.weather.borrow()
    }
}

/// What is behind the proxy, and what is said of it.
#[derive(Clone, Debug)]
struct Behind {
    place: Server,
    told: Told,
}

fn socket_of(server: &PrivatePostgres) -> Server {
    Server::Socket(server.folder().join(".s.PGSQL.5432"))
}

/// What all connections see of the weather.
#[derive(Clone)]
struct Sky {
    weather: Arc<watch::Sender<Weather>>,
    held: Arc<watch::Sender<usize>>,
    silenced: Arc<watch::Sender<usize>>,
    /// Which connection it is.
    number: usize,
}

impl Sky {
    /// Waits until nothing is to be heard of this connection any more.
    async fn is_silenced(&self) {
        // The sender is here: it does not close.
        let _ = self.silenced.subscribe().wait_for(|first| *first > self.number).await;
    }

    fn now(&self) -> Weather {
        *self.weather.borrow()
    }

    /// Waits until the weather is another one.
    async fn hold(&self, weather: Weather) {
        self.held.send_modify(|held| *held += 1);
        let _ = self.weather.subscribe().wait_for(|now| *now != weather).await;
        self.held.send_modify(|held| *held -= 1);
    }
}

/// Where the server listens.
#[derive(Clone, Debug)]
enum Server {
    Socket(PathBuf),
    Port(u16),
}

async fn serve(
    listener: TcpListener,
    behind: Arc<Mutex<Behind>>,
    sky: Sky,
    open: Arc<Mutex<Vec<AbortHandle>>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if sky.now() == Weather::Cut {
            continue;
        }
        let behind = behind.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let sky = Sky { number: open.len(), ..sky.clone() };
        open.push(connections.spawn(connection(client, behind, sky)));
    }
}

async fn connection(client: TcpStream, behind: Behind, sky: Sky) {
    match &behind.place {
        Server::Socket(path) => {
            let Ok(server) = UnixStream::connect(path).await else { return };
            pass_on(client, server, behind.told, sky).await;
        }
        Server::Port(port) => {
            let Ok(server) = TcpStream::connect(("127.0.0.1", *port)).await else { return };
            pass_on(client, server, behind.told, sky).await;
        }
    }
}

/// Passes bytes on in both directions until one side closes, or the weather does.
async fn pass_on(
    mut client: TcpStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    mut told: Told,
    sky: Sky,
) {
    let (mut said, mut answered) = (vec![0; CHUNK], vec![0; CHUNK]);
    let weather = &sky.weather;
    let mut seen = weather.subscribe();
    let (mut ends_with_answer, mut writes) = (false, false);
    loop {
        // In silence nothing is read either; what was sent meanwhile arrives when it is over.
        if seen.wait_for(|weather| *weather != Weather::Silent).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            () = sky.is_silenced() => std::future::pending().await,
            read = client.read(&mut said) => {
                let Ok(count @ 1..) = read else { return };
                if place_of(READS, &said[..count]).is_some() {
                    writes = false;
                } else if place_of(WRITES, &said[..count]).is_some() {
                    writes = true;
                }
                let commit = place_of(COMMIT, &said[..count]);
                let (commits, now) = (commit.is_some(), sky.now());
                match (commit, now) {
                    (Some(at), Weather::HoldsCommits) if writes => {
                        let before = &said[..at - HEAD];
                        // What was said before is carried out, and answered to nobody.
                        let passed = before.is_empty()
                            || (server.write_all(before).await.is_ok()
                                && server.read(&mut answered).await.is_ok());
                        if passed {
                            sky.hold(now).await;
                        }
                        return;
                    }
                    (Some(_), Weather::HoldsAnswers) if writes => {
                        if server.write_all(&said[..count]).await.is_ok() && is_ready(&mut server).await {
                            sky.hold(now).await;
                        }
                        return;
                    }
                    (Some(_), Weather::DelaysCommit) if writes => {
                        weather.send_replace(Weather::HasDelayedCommit);
                        drop(client);
                        sky.hold(Weather::HasDelayedCommit).await;
                        if server.write_all(&said[..count]).await.is_ok() {
                            is_ready(&mut server).await;
                        }
                        return;
                    }
                    (Some(_) | None, _) => {}
                }
                if commits && now == Weather::LosesCommit {
                    weather.send_replace(Weather::Fair);
                    return;
                }
                if commits && now == Weather::LosesAnswer {
                    weather.send_replace(Weather::Fair);
                    ends_with_answer = true;
                }
                if server.write_all(&said[..count]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if let Weather::Slow(by) = sky.now() {
                    tokio::time::sleep(by).await;
                }
                if told == Told::Ours && let Some(at) = place_of(KEY, &answered[..count]) {
                    answered[at + KEY.len()] ^= 1;
                    // It is said once.
                    told = Told::Servers;
                }
                if ends_with_answer || client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
            changed = seen.changed() => if changed.is_err() { return },
        }
    }
}

/// Reads what the server says until it has ended the transaction.
async fn is_ready(server: &mut (impl AsyncRead + Unpin)) -> bool {
    let (mut said, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        let Ok(count @ 1..) = server.read(&mut chunk).await else { return false };
        said.extend_from_slice(&chunk[..count]);
        if place_of(READY, &said).is_some() {
            return true;
        }
    }
}

fn place_of(wanted: &[u8], bytes: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|bytes| bytes == wanted)
}
