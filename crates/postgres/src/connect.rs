//! Opens connections: for the pool, for the heartbeat, and for whoever listens.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Manager, ManagerConfig, RecyclingMethod};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::backend::told_pid;
use crate::fault::{Sql, Stop};

/// How long it may take to open a connection.
pub(crate) const MAX_CONNECT: Duration = Duration::from_secs(10);

/// What is done with a notice.
type Hear = Box<dyn FnMut(&str) + Send>;
/// Moves the bytes of a connection, until it is lost or nobody uses it any more.
type Drive = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Knows where the server is, and how to speak to it.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
}

impl Connector {
    pub(crate) const fn new(config: Config, tls: MakeRustlsConnect) -> Self {
        Self { config, tls }
    }

    /// What makes the connections of a pool.
    pub(crate) fn manager(&self) -> Manager {
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        Manager::from_config(self.config.clone(), self.tls.clone(), how)
    }

    /// A connection that is nobody else's.
    pub(crate) async fn client(&self) -> Sql<ClientWrapper> {
        let (client, drive) = self.open(Box::new(|_| {})).await?;
        Ok(ClientWrapper::new(client, tokio::spawn(drive)))
    }

    /// The same, with word of its loss.
    pub(crate) async fn watched(&self) -> Sql<Watched> {
        let (client, drive) = self.open(Box::new(|_| {})).await?;
        let told_pid = told_pid(&client).await;
        let (ends, lost) = oneshot::channel();
        let driving = tokio::spawn(async move {
            drive.await;
            drop(ends);
        });
        Ok(Watched { client: ClientWrapper::new(client, driving), told_pid, lost })
    }

    /// A connection that hears notices.
    pub(crate) async fn listener(&self, hear: Hear) -> Sql<(Client, JoinHandle<()>)> {
        let (client, drive) = self.open(hear).await?;
        Ok((client, tokio::spawn(drive)))
    }

    async fn open(&self, hear: Hear) -> Sql<(Client, Drive)> {
        in_time(open(&self.config, self.tls.clone(), hear)).await
    }
}

/// A connection whose loss is told.
pub(crate) struct Watched {
    pub(crate) client: ClientWrapper,
    /// The number of the server's process, as it was told when the connection was opened.
    pub(crate) told_pid: Option<i32>,
    /// Ends when the connection is lost.
    pub(crate) lost: oneshot::Receiver<()>,
}

async fn open<T>(config: &Config, tls: T, hear: Hear) -> Sql<(Client, Drive)>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await.map_err(Stop::unconnected)?;
    Ok((client, Box::pin(drive(connection, hear))))
}

async fn drive<S, T>(mut connection: Connection<S, T>, mut hear: Hear)
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

async fn in_time<T>(opening: impl Future<Output = Sql<T>>) -> Sql<T> {
    let late = || Err(Stop::Away(format!("no connection within {} s", MAX_CONNECT.as_secs())));
    timeout(MAX_CONNECT, opening).await.unwrap_or_else(|_| late())
}
