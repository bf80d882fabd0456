//! Fault-injecting proxy in front of a private server: it cuts connections, is slow, falls silent, and loses answers. It can also look
//! like a pooler.

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

/// Bytes forwarded at once.
const CHUNK: usize = 64 * 1024;
/// The end of a transaction, as a client sends it.
const COMMIT: &[u8] = b"COMMIT\0";
/// Bytes of a message before its text: type and length.
const HEAD: usize = 5;
/// How a transaction that writes, and one that only reads, begins.
const WRITES: &[u8] = b"ISOLATION LEVEL READ COMMITTED";
const READS: &[u8] = b"READ ONLY";
/// The server is ready for the next query, and no transaction is open.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// The start of the message with the backend's process id.
const KEY: &[u8] = b"K\0\0\0\x0c";

/// The process id that a client receives when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// That of the server.
    Servers,
    /// Another one, as from a pooler.
    Ours,
}

/// How the proxy treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Forwards everything.
    Fair,
    /// Forwards everything, each answer with this delay.
    Slow(Duration),
    /// Closes each connection when so many bytes of its answers were forwarded.
    CutsAfter(usize),
    /// Forwards nothing and closes nothing: neither side notices.
    Silent,
    /// Closes every connection at once, and every new one.
    Cut,
    /// Forwards the next commit, and closes the connection when the answer arrives.
    LosesAnswer,
    /// Closes the connection of the next commit without forwarding it.
    LosesCommit,
    /// Holds every commit of a writing transaction until the weather changes; then closes the connection.
    HoldsCommits,
    /// Forwards every commit, and holds the answer to each that writes until the weather changes; then closes the connection.
    HoldsAnswers,
    /// Closes the connection at the next commit of a writing transaction, and forwards that commit when the weather changes again.
    DelaysCommit,
    /// Has delayed a commit; forwards everything else.
    HasDelayedCommit,
}

/// A proxy on its own port, stopped on drop.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
    /// Connections held at a commit.
    held: Arc<watch::Sender<usize>>,
    /// Connections with a lower number are silenced.
    silenced: Arc<watch::Sender<usize>>,
    behind: Arc<Mutex<Behind>>,
    open: Arc<Mutex<Vec<AbortHandle>>>,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy in front of this server, in fair weather.
    ///
    /// # Panics
    /// When no port is available.
    pub async fn start(server: &PrivatePostgres) -> Self {
        Self::telling(server, Told::Servers).await
    }

    /// Like [`start`](Self::start), but looks like a pooler: a client receives another process id than that of its backend.
    ///
    /// # Panics
    /// When no port is available.
    pub async fn pooling(server: &PrivatePostgres) -> Self {
        Self::telling(server, Told::Ours).await
    }

    /// Starts a proxy in front of this Redis, in fair weather.
    ///
    /// # Panics
    /// When no port is available.
    pub async fn before(server: &PrivateRedis) -> Self {
        Self::serving(Behind { place: Server::Port(server.port()), told: Told::Servers }).await
    }

    /// Starts a proxy in front of the server at this port of the machine, in fair weather.
    ///
    /// # Panics
    /// When no port is available.
    pub async fn before_port(port: u16) -> Self {
        Self::serving(Behind { place: Server::Port(port), told: Told::Servers }).await
    }

    /// Routes new connections to the server at this port.
    pub fn lead_to_port(&self, port: u16) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).place = Server::Port(port);
    }

    async fn telling(server: &PrivatePostgres, told: Told) -> Self {
        Self::serving(Behind { place: socket_of(server), told }).await
    }

    /// Routes new connections to this server.
    pub fn lead_to(&self, server: &PrivatePostgres) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).place = socket_of(server);
    }

    /// Silences all open connections permanently, without closing them. New ones follow the weather.
    pub fn silence_open(&self) {
        let count = self.open.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.silenced.send_replace(count);
    }

    /// Waits until `count` connections are held at a commit; returns false on timeout.
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

    /// The URL of the PostgreSQL server through the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ostler@127.0.0.1:{}/ostler", self.port)
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Changes the weather, for open connections and new ones.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
        if weather == Weather::Cut {
            for connection in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                connection.abort();
            }
        }
    }

    /// The current weather. After one lost answer or commit it is fair again.
    #[must_use]
    pub fn weather(&self) -> Weather {
        *self.weather.borrow()
    }
}

/// The server behind the proxy, and the process id that clients receive.
#[derive(Clone, Debug)]
struct Behind {
    place: Server,
    told: Told,
}

fn socket_of(server: &PrivatePostgres) -> Server {
    Server::Socket(server.folder().join(".s.PGSQL.5432"))
}

/// The weather, as a connection sees it.
#[derive(Clone)]
struct Sky {
    weather: Arc<watch::Sender<Weather>>,
    held: Arc<watch::Sender<usize>>,
    silenced: Arc<watch::Sender<usize>>,
    /// The number of this connection.
    number: usize,
}

impl Sky {
    /// Waits until this connection is silenced.
    async fn is_silenced(&self) {
        // This holds the sender, so the channel does not close.
        let _ = self.silenced.subscribe().wait_for(|first| *first > self.number).await;
    }

    fn now(&self) -> Weather {
        *self.weather.borrow()
    }

    /// Counts the connection as held until the weather changes.
    async fn hold(&self, weather: Weather) {
        self.held.send_modify(|held| *held += 1);
        let _ = self.weather.subscribe().wait_for(|now| *now != weather).await;
        self.held.send_modify(|held| *held -= 1);
    }
}

/// The server's address.
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

/// Forwards bytes in both directions until one side or the weather closes the connection.
async fn pass_on(
    mut client: TcpStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    mut told: Told,
    sky: Sky,
) {
    let (mut said, mut answered) = (vec![0; CHUNK], vec![0; CHUNK]);
    let weather = &sky.weather;
    let mut seen = weather.subscribe();
    let (mut ends_with_answer, mut writes, mut forwarded) = (false, false, 0);
    loop {
        // Silence stops reading too; data sent during it arrives afterwards.
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
                        // Earlier statements are carried out, and their answers dropped.
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
                    // The message is sent once.
                    told = Told::Servers;
                }
                if let Weather::CutsAfter(bytes) = sky.now()
                    && forwarded + count > bytes
                {
                    let _ = client.write_all(&answered[..bytes.saturating_sub(forwarded)]).await;
                    return;
                }
                forwarded += count;
                if ends_with_answer || client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
            changed = seen.changed() => if changed.is_err() { return },
        }
    }
}

/// Reads from the server until the transaction has ended.
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
