//! A proxy in front of a private server, which does to connections what networks do: it cuts them, falls silent, and loses an answer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::postgres::PrivatePostgres;

/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;
/// The last words of a transaction, as a client sends them.
const COMMIT: &[u8] = b"COMMIT\0";

/// What the proxy does with what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// It passes everything on.
    Fair,
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
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port can be had");
        let port = listener.local_addr().expect("the port is known").port();
        let weather = Arc::new(watch::Sender::new(Weather::Fair));
        let open = Arc::new(Mutex::new(Vec::new()));
        let socket = server.folder().join(".s.PGSQL.5432");
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, socket, Arc::clone(&weather), Arc::clone(&open)));
        Self { port, weather, open, _serving: serving }
    }

    /// Where a client finds the server behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ostler@127.0.0.1:{}/ostler", self.port)
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

async fn serve(
    listener: TcpListener,
    socket: PathBuf,
    weather: Arc<watch::Sender<Weather>>,
    open: Arc<Mutex<Vec<AbortHandle>>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if *weather.borrow() == Weather::Cut {
            continue;
        }
        let handle = connections.spawn(connection(client, socket.clone(), Arc::clone(&weather)));
        open.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}

/// Passes bytes on in both directions until one side closes, or the weather does.
async fn connection(mut client: TcpStream, socket: PathBuf, weather: Arc<watch::Sender<Weather>>) {
    let Ok(mut server) = UnixStream::connect(&socket).await else { return };
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
                let commits = said[..count].windows(COMMIT.len()).any(|bytes| bytes == COMMIT);
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
                if ends_with_answer || client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
            changed = seen.changed() => if changed.is_err() { return },
        }
    }
}
