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

/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;
/// The last words of a transaction, as a client sends them.
const COMMIT: &[u8] = b"COMMIT\0";

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
}

/// A proxy on a port of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
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
        let place = Server::Socket(server.folder().join(".s.PGSQL.5432"));
        Self::serving(Behind { place, told }).await
    }

    async fn serving(behind: Behind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port can be had");
        let port = listener.local_addr().expect("the port is known").port();
        let weather = Arc::new(watch::Sender::new(Weather::Fair));
        let open = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, behind, Arc::clone(&weather), Arc::clone(&open)));
        Self { port, weather, open, _serving: serving }
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
#[derive(Clone)]
struct Behind {
    place: Server,
    told: Told,
}

/// Where the server listens.
#[derive(Clone)]
enum Server {
    Socket(PathBuf),
    Port(u16),
}

async fn serve(
    listener: TcpListener,
    behind: Behind,
    weather: Arc<watch::Sender<Weather>>,
    open: Arc<Mutex<Vec<AbortHandle>>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if *weather.borrow() == Weather::Cut {
            continue;
        }
        let handle = connections.spawn(connection(client, behind.clone(), Arc::clone(&weather)));
        open.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}

async fn connection(client: TcpStream, behind: Behind, weather: Arc<watch::Sender<Weather>>) {
    match &behind.place {
        Server::Socket(path) => {
            let Ok(server) = UnixStream::connect(path).await else { return };
            pass_on(client, server, behind.told, weather).await;
        }
        Server::Port(port) => {
            let Ok(server) = TcpStream::connect(("127.0.0.1", *port)).await else { return };
            pass_on(client, server, behind.told, weather).await;
        }
    }
}

/// Passes bytes on in both directions until one side closes, or the weather does.
async fn pass_on(
    mut client: TcpStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    mut told: Told,
    weather: Arc<watch::Sender<Weather>>,
) {
    let (mut said, mut answered) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut seen = weather.subscribe();
    let mut ends_with_answer = false;
    loop {
        // In silence nothing is read either; what was sent meanwhile arrives when it is over.
        if seen.wait_for(|weather| *weather != Weather::Silent).await.is_err() {
            return;
        }
        tokio::select! {
            read = client.read(&mut said) => {
                let Ok(count @ 1..) = read else { return };
                let commits = place_of(COMMIT, &said[..count]).is_some();
                let now = *weather.borrow();
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
                let now = *weather.borrow();
                if let Weather::Slow(by) = now {
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

fn place_of(wanted: &[u8], bytes: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|bytes| bytes == wanted)
}
