//! Opens connections: for the pool, the heartbeat and the listener.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect, Manager, ManagerConfig, RecyclingMethod};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::backend::told_pid;
use crate::fault::{Abort, Sql};
use crate::session_settings::SessionSettings;

/// The timeout for opening a connection, whichever server answers.
pub(crate) const MAX_CONNECT: Duration = Duration::from_secs(10);
/// How long one of several servers may be silent before the next one is tried.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// The callback for a notification.
type OnNotification = Box<dyn FnMut(&str) + Send>;
/// Drives the I/O of a connection, until it is lost or no longer used.
type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

type ServerStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;
/// A connection whose I/O is not driven yet.
type NewConnection = (Client, Connection<Socket, ServerStream>);

/// Opens connections to the configured servers.
#[derive(Clone)]
pub(crate) struct Connector {
    /// Not empty.
    servers: Arc<[Config]>,
    /// The index of the server that answered last.
    last: Arc<AtomicUsize>,
    tls: MakeRustlsConnect,
    bound: Duration,
    session_settings: Arc<SessionSettings>,
}

impl Connector {
    /// Connects to one of these servers, within this time.
    pub(crate) fn new(
        servers: Vec<Config>,
        tls: MakeRustlsConnect,
        bound: Duration,
        session_settings: SessionSettings,
    ) -> Self {
        Self {
            servers: servers.into(),
            last: Arc::default(),
            tls,
            bound,
            session_settings: Arc::new(session_settings),
        }
    }

    /// The hosts and ports, for error messages.
    pub(crate) fn place(&self) -> String {
        self.servers.iter().flat_map(hosts_of).collect::<Vec<_>>().join(", ")
    }

    /// The session settings of its pools' connections.
    pub(crate) const fn session_settings(&self) -> &Arc<SessionSettings> {
        &self.session_settings
    }

    /// Tries the servers one after the other, starting with the one that answered last.
    async fn reach(&self) -> Result<NewConnection, tokio_postgres::Error> {
        let (count, first) = (self.servers.len(), self.last.load(Ordering::Relaxed));
        for step in 1..count {
            let at = (first + step - 1) % count;
            if let Ok(Ok(opened)) = timeout(MAX_SILENCE, self.servers[at].connect(self.tls.clone())).await {
                self.last.store(at, Ordering::Relaxed);
                return Ok(opened);
            }
        }
        let at = (first + count - 1) % count;
        let opened = self.servers[at].connect(self.tls.clone()).await?;
        self.last.store(at, Ordering::Relaxed);
        Ok(opened)
    }

    /// The connection manager of a pool.
    pub(crate) fn manager(&self) -> Manager {
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        Manager::from_connect(self.servers[0].clone(), self.clone(), how)
    }

    /// Opens a dedicated connection.
    pub(crate) async fn client(&self) -> Sql<ClientWrapper> {
        let (client, drive) = self.open(Box::new(|_| {})).await?;
        let driving = tokio::spawn(drive);
        self.look(&client).await?;
        Ok(ClientWrapper::new(client, driving))
    }

    /// Opens a dedicated connection that reports its loss.
    pub(crate) async fn watched(&self) -> Sql<WatchedConnection> {
        let (client, drive) = self.open(Box::new(|_| {})).await?;
        let (ends, lost) = oneshot::channel();
        let driving = tokio::spawn(async move {
            drive.await;
            drop(ends);
        });
        let told_pid = self.look(&client).await?;
        Ok(WatchedConnection { client: ClientWrapper::new(client, driving), told_pid, lost })
    }

    /// Opens a connection that receives notifications.
    pub(crate) async fn listener(&self, hear: OnNotification) -> Sql<(Client, JoinHandle<()>)> {
        let (client, drive) = self.open(hear).await?;
        let driving = tokio::spawn(drive);
        self.look(&client).await?;
        Ok((client, driving))
    }

    /// Detects a pooler between this process and the server. Returns the pid reported at connection start.
    async fn look(&self, client: &Client) -> Sql<Option<i32>> {
        let pid = told_pid(client).await;
        timeout(self.bound, self.session_settings.look(client, pid)).await.map_err(|_| Abort::Silent)??;
        Ok(pid)
    }

    async fn open(&self, hear: OnNotification) -> Sql<(Client, Drive)> {
        let late = || {
            let why = format!("{}: no connection within {} ms", self.place(), self.bound.as_millis());
            Err(Abort::Away(why))
        };
        let reaching = async { self.reach().await.map_err(|error| Abort::unconnected(error, &self.place())) };
        let (client, connection) = timeout(self.bound, reaching).await.unwrap_or_else(|_| late())?;
        Ok((client, Box::pin(drive(connection, hear))))
    }
}

/// The hosts of a server, each with its port.
fn hosts_of(server: &Config) -> Vec<String> {
    const USUAL_PORT: u16 = 5432;
    let ports = server.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(USUAL_PORT);
    let hosts = server.get_hosts().iter().enumerate();
    hosts
        .map(|(at, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(folder) => format!("{}/.s.PGSQL.{}", folder.display(), port(at)),
        })
        .collect()
}

/// For the pool, which has its own timeout.
impl Connect for Connector {
    fn connect(&self, _: &Config) -> Pooled<'_> {
        Box::pin(async {
            let (client, connection) = self.reach().await?;
            let pid = told_pid(&client).await;
            let driving = tokio::spawn(drive(connection, Box::new(|_| {})));
            self.session_settings.apply(&client, pid).await?;
            Ok((client, driving))
        })
    }
}

/// The future that a pool expects for a connection.
type Pooled<'a> =
    Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + 'a>>;

/// A connection that reports its loss.
pub(crate) struct WatchedConnection {
    pub(crate) client: ClientWrapper,
    /// The pid of the server process, as reported when the connection was opened.
    pub(crate) told_pid: Option<i32>,
    /// Resolves when the connection is lost.
    pub(crate) lost: oneshot::Receiver<()>,
}

async fn drive<S, T>(mut connection: Connection<S, T>, mut hear: OnNotification)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notification(notice) = message {
            hear(notice.payload());
        }
    }
}
