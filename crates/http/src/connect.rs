//! Connections: resolves the host, checks the addresses, connects to one of them, and encrypts. Or asks a proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::rt::{Read, Write};
use hyper::{Method, Request, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::address::AddressRules;
use crate::error::HttpError;
#[cfg(feature = "tls")]
use crate::tls::Encryption;

/// Addresses of a host that are tried, one after the other.
const MAX_ADDRESSES: usize = 8;

/// What a request is sent over.
pub(crate) trait Stream: Read + Write + Send + Unpin {}
impl<T: Read + Write + Send + Unpin> Stream for T {}

pub(crate) struct Connected {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) route: Route,
}

/// How the host is reached.
pub(crate) enum Route {
    /// Directly, or through a tunnel.
    Direct,
    /// A proxy passes the request on. It may ask for a login.
    Forwarded(Option<HeaderValue>),
}

pub(crate) struct Connector {
    rules: AddressRules,
    proxies: Option<Arc<Matcher>>,
    #[cfg(feature = "tls")]
    encryption: Encryption,
}

/// The host and port of an address.
struct Target<'a> {
    host: &'a str,
    port: u16,
    encrypted: bool,
}

impl Connector {
    pub(crate) fn new(rules: AddressRules, proxies: Option<Matcher>) -> Self {
        Self {
            rules,
            proxies: proxies.map(Arc::new),
            #[cfg(feature = "tls")]
            encryption: Encryption::default(),
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn trusting(&self, certificate: &str) -> Result<Self, HttpError> {
        let encryption = self.encryption.trusting(certificate)?;
        Ok(Self { rules: self.rules.clone(), proxies: self.proxies.clone(), encryption })
    }

    pub(crate) async fn connect(&self, uri: &Uri) -> Result<Connected, HttpError> {
        let target = target(uri)?;
        let proxy = self.proxies.as_ref().and_then(|proxies| proxies.intercept(uri));
        let Some(proxy) = proxy else {
            let plain = self.reach(target.host, target.port).await?;
            return self.over(uri, plain).await;
        };
        let plain = self.reach_proxy(&proxy).await?;
        if !target.encrypted {
            return Ok(Connected {
                stream: boxed(plain),
                route: Route::Forwarded(proxy.basic_auth().cloned()),
            });
        }
        let tunnel = tunnel(&proxy, &target, plain).await?;
        Ok(Connected { stream: self.encrypt(target.host, tunnel).await?, route: Route::Direct })
    }

    /// Uses a connection to the host that exists already, and encrypts it if the address asks for it.
    pub(crate) async fn over<S>(&self, uri: &Uri, plain: S) -> Result<Connected, HttpError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let target = target(uri)?;
        let stream = if target.encrypted { self.encrypt(target.host, plain).await? } else { boxed(plain) };
        Ok(Connected { stream, route: Route::Direct })
    }

    async fn reach_proxy(&self, proxy: &Intercept) -> Result<TcpStream, HttpError> {
        let Target { host, port, .. } =
            target(proxy.uri()).map_err(|_| proxy_error(proxy, "only http:// proxies are supported"))?;
        if proxy.uri().scheme_str() != Some("http") {
            return Err(proxy_error(proxy, "only http:// proxies are supported"));
        }
        self.reach(host, port).await.map_err(|error| proxy_error(proxy, &error.to_string()))
    }

    /// Connects to the first address that the rules allow and that answers.
    async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, HttpError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let unresolved = |why: io::Error| HttpError::Unresolved { host: host.to_owned(), why };
        let found: Vec<SocketAddr> =
            tokio::net::lookup_host((bare, port)).await.map_err(unresolved)?.collect();
        let Some(first) = found.first() else {
            return Err(unresolved(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
        };
        let allowed: Vec<&SocketAddr> =
            found.iter().filter(|address| self.rules.allow(bare, address.ip())).take(MAX_ADDRESSES).collect();
        if allowed.is_empty() {
            return Err(HttpError::Forbidden { host: host.to_owned(), address: first.ip() });
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in allowed {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(HttpError::Unreachable { host: format!("{host}:{port}"), why: last })
    }

    #[cfg(feature = "tls")]
    async fn encrypt<S>(&self, host: &str, plain: S) -> Result<Box<dyn Stream>, HttpError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        Ok(boxed(self.encryption.connect(host, plain).await?))
    }

    #[cfg(not(feature = "tls"))]
    async fn encrypt<S>(&self, host: &str, _plain: S) -> Result<Box<dyn Stream>, HttpError> {
        let why = "this program was built without TLS".to_owned();
        Err(HttpError::Tls { host: host.to_owned(), why })
    }
}

fn boxed<S>(stream: S) -> Box<dyn Stream>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    Box::new(TokioIo::new(stream))
}

fn target(uri: &Uri) -> Result<Target<'_>, HttpError> {
    let invalid = |why: &str| HttpError::Address(why.to_owned());
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| invalid("it has no host"))?;
    let (usual, encrypted) = match uri.scheme_str() {
        Some("http") => (80, false),
        Some("https") => (443, true),
        Some(_) | None => return Err(invalid("it does not begin with http:// or https://")),
    };
    Ok(Target { host, port: uri.port_u16().unwrap_or(usual), encrypted })
}

/// Asks a proxy for a connection to the target.
async fn tunnel(
    proxy: &Intercept,
    target: &Target<'_>,
    plain: TcpStream,
) -> Result<TokioIo<hyper::upgrade::Upgraded>, HttpError> {
    let broken = |error: hyper::Error| proxy_error(proxy, &error.to_string());
    let authority = format!("{}:{}", target.host, target.port);
    let (mut sender, driver) = http1::handshake(TokioIo::new(plain)).await.map_err(broken)?;
    // Aborted if the proxy is given up. It is not needed once the upgraded stream has taken the connection over.
    let _driver = AbortOnDropHandle::new(tokio::spawn(driver.with_upgrades()));
    let mut ask = Request::new(Empty::<Bytes>::new());
    *ask.method_mut() = Method::CONNECT;
    *ask.uri_mut() = authority.parse().map_err(|_| HttpError::Address("it has no host".to_owned()))?;
    if let Ok(host) = HeaderValue::from_str(&authority) {
        ask.headers_mut().insert(HOST, host);
    }
    if let Some(login) = proxy.basic_auth() {
        ask.headers_mut().insert(PROXY_AUTHORIZATION, login.clone());
    }
    let answer = sender.send_request(ask).await.map_err(broken)?;
    if !answer.status().is_success() {
        return Err(proxy_error(proxy, &format!("it answered {}", answer.status())));
    }
    Ok(TokioIo::new(hyper::upgrade::on(answer).await.map_err(broken)?))
}

fn proxy_error(proxy: &Intercept, why: &str) -> HttpError {
    HttpError::Proxy { proxy: proxy.uri().host().unwrap_or_default().to_owned(), why: why.to_owned() }
}
