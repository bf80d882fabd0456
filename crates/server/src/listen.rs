//! Addresses to listen on: a TCP address, by default on loopback only, or a Unix socket.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener};

/// The prefix of a Unix socket.
const UNIX: &str = "unix:";

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("\"{0}\" is no address: expected an IP address and a port such as 127.0.0.1:7700, or unix:PATH")]
    Address(String),
    /// Another process has it.
    #[error("{0} is taken by another process")]
    Taken(ListenAddress),
    #[error("{0} can be reached from other machines: list the names that it is called by in hosts")]
    Hosts(ListenAddress),
    #[error("cannot listen on {address}: {error}")]
    Io { address: ListenAddress, error: io::Error },
}

/// A socket that listens.
#[derive(Debug)]
pub enum BoundSocket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl ListenAddress {
    /// Where a node listens if its config does not say.
    #[must_use]
    pub fn usual() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 7700)))
    }

    /// Whether only this machine can reach it.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => match address.ip() {
                IpAddr::V4(ip) => ip.is_loopback(),
                IpAddr::V6(ip) => ip.is_loopback(),
            },
            Self::Unix(_) => true,
        }
    }

    /// Listens on the address.
    ///
    /// # Errors
    /// When it is taken, or must not be used.
    pub async fn bind(&self) -> Result<BoundSocket, ListenError> {
        let wrong = |error: io::Error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                ListenError::Taken(self.clone())
            } else {
                ListenError::Io { address: self.clone(), error }
            }
        };
        match self {
            Self::Tcp(address) => Ok(BoundSocket::Tcp(TcpListener::bind(address).await.map_err(wrong)?)),
            Self::Unix(path) => {
                remove_stale(path).await;
                let listener = UnixListener::bind(path).map_err(wrong)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(wrong)?;
                Ok(BoundSocket::Unix(listener, path.clone()))
            }
        }
    }
}

/// Removes the socket of a process that has died.
async fn remove_stale(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return;
    }
    // Other errors, such as a socket of another user, do not tell that nothing listens.
    if let Err(error) = tokio::net::UnixStream::connect(path).await
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        let _ = std::fs::remove_file(path);
    }
}

impl BoundSocket {
    /// The address with the real port.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<ListenAddress> {
        Ok(match self {
            Self::Tcp(listener) => ListenAddress::Tcp(listener.local_addr()?),
            Self::Unix(_, path) => ListenAddress::Unix(path.clone()),
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix(UNIX).filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let text = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        text.parse().map(Self::Tcp).map_err(|_| ListenError::Address(text))
    }
}

/// The values of `Host` by which this address is reached, and the origins of its pages.
pub(crate) fn names(address: &ListenAddress, hosts: &[String]) -> (Vec<String>, Vec<String>) {
    let ListenAddress::Tcp(socket) = address else { return (Vec::new(), Vec::new()) };
    let port = socket.port();
    let mut bare: Vec<String> = if address.is_local() {
        vec!["127.0.0.1".to_owned(), "localhost".to_owned(), "[::1]".to_owned()]
    } else {
        Vec::new()
    };
    bare.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
    let (mut names, mut origins) = (Vec::new(), Vec::new());
    for host in bare {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let whole = if has_port { host.clone() } else { format!("{host}:{port}") };
        let mut add = |name: String, scheme: &str| {
            origins.push(format!("{scheme}://{name}"));
            names.push(name);
        };
        add(whole, "http");
        // A browser leaves the usual port out.
        if !has_port && port == 80 {
            add(host, "http");
        }
    }
    (names, origins)
}
