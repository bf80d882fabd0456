//! The network as `fetch` uses it: names are resolved and connections made here, so that a test can bring its own.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::net::TcpStream;

/// Resolves names, and connects to addresses. [`Fetcher`](super::Fetcher) asks once for each name, checks what it gets, and connects to one
/// of these addresses.
#[async_trait]
pub trait FetchNetwork: Send + Sync {
    /// The addresses of a host. It is a name, never an address.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Connects to an address that the rules allow.
    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// The resolver and the network of the machine. Proxies of the environment are not used: one would resolve names itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNetwork;

#[async_trait]
impl FetchNetwork for SystemNetwork {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        // Only latency depends on it.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}
