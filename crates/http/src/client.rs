//! The client: one request over one connection.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Request, Uri, Version};
use hyper_util::client::proxy::matcher::Matcher;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::address::AddressRules;
use crate::answer::{HttpAnswer, within};
use crate::connect::{Connected, Connector, Route};
use crate::error::{HttpError, Stage};
use crate::request::HttpRequest;

/// Bytes that the head of an answer may have.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Headers that an answer may have.
const MAX_HEADERS: usize = 200;

/// Which proxies are used.
#[derive(Clone, Debug, Default)]
pub enum Proxies {
    None,
    /// `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case, as they are when the client is made.
    #[default]
    Environment,
    /// One proxy for all requests.
    One(Uri),
}

/// Sends requests. Clones share their settings.
#[derive(Clone)]
pub struct HttpClient {
    agent: HeaderValue,
    connector: Arc<Connector>,
}

impl HttpClient {
    /// A client that introduces itself as Ostler, and may connect to what the rules allow.
    #[must_use]
    pub fn new(rules: AddressRules, proxies: Proxies) -> Self {
        let proxies = match (&rules, proxies) {
            (AddressRules::Public { .. }, _) | (_, Proxies::None) => None,
            (AddressRules::Any, Proxies::Environment) => Some(Matcher::from_env()),
            (AddressRules::Any, Proxies::One(proxy)) => {
                Some(Matcher::builder().all(proxy.to_string()).build())
            }
        };
        let agent = HeaderValue::from_static(concat!("ostler/", env!("CARGO_PKG_VERSION")));
        Self { agent, connector: Arc::new(Connector::new(rules, proxies)) }
    }

    /// The same, which also trusts this authority: a certificate in PEM.
    ///
    /// # Errors
    /// When it is not a certificate.
    #[cfg(feature = "tls")]
    pub fn trusting(self, certificate: &str) -> Result<Self, HttpError> {
        let connector = self.connector.trusting(certificate)?;
        Ok(Self { connector: Arc::new(connector), ..self })
    }

    /// Sends a request and waits for the head of the answer. Redirects are not followed, and nothing is sent twice.
    ///
    /// # Errors
    /// When there is no answer. Any status is one.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpAnswer, HttpError> {
        let began = Instant::now();
        check_size(&request)?;
        let connecting = self.connector.connect(&request.uri);
        let connected = within(&request.limits, began, Stage::Connecting, connecting).await??;
        self.exchange(request, connected, began).await
    }

    /// The same over a connection that the caller has made, to an address that the caller has checked: address rules and proxies do not
    /// apply. The header `Host` and the name in TLS are those of the request's address.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_over<S>(&self, request: HttpRequest, plain: S) -> Result<HttpAnswer, HttpError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let began = Instant::now();
        check_size(&request)?;
        let encrypting = self.connector.over(&request.uri, plain);
        let connected = within(&request.limits, began, Stage::Connecting, encrypting).await??;
        self.exchange(request, connected, began).await
    }

    async fn exchange(
        &self,
        request: HttpRequest,
        connected: Connected,
        began: Instant,
    ) -> Result<HttpAnswer, HttpError> {
        let (limits, Connected { stream, route }) = (request.limits, connected);
        let request = self.head(request, &route)?;
        let mut connection = http1::Builder::new();
        connection.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
        let (mut sender, driver) = connection.handshake(stream).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            // Its errors reach the sender and the body, too.
            let _ = driver.await;
        }));
        let response = within(&limits, began, Stage::Answering, sender.send_request(request)).await??;
        Ok(HttpAnswer::new(response, limits, began, driver))
    }

    fn head(&self, request: HttpRequest, route: &Route) -> Result<Request<Full<Bytes>>, HttpError> {
        let invalid = |why: &dyn std::fmt::Display| HttpError::Address(why.to_string());
        let authority = request.uri.authority().ok_or_else(|| invalid(&"it has no host"))?;
        let (login, host) = match authority.as_str().rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority.as_str()),
        };
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
        let target = match route {
            Route::Direct => path.parse::<Uri>(),
            // A proxy for plain HTTP gets the whole address.
            Route::Forwarded(_) => format!("http://{host}{path}").parse(),
        };
        let mut head = Request::new(Full::new(request.body));
        *head.method_mut() = request.method;
        *head.uri_mut() = target.map_err(|error| invalid(&error))?;
        *head.version_mut() = Version::HTTP_11;
        let headers = head.headers_mut();
        headers.insert(USER_AGENT, self.agent.clone());
        if let Some(login) = login {
            headers.insert(AUTHORIZATION, basic(login).ok_or_else(|| invalid(&"its user cannot be sent"))?);
        }
        if let Route::Forwarded(Some(login)) = route {
            headers.insert(PROXY_AUTHORIZATION, login.clone());
        }
        headers.extend(request.headers);
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|error| invalid(&error))?);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        Ok(head)
    }
}

fn check_size(request: &HttpRequest) -> Result<(), HttpError> {
    let (bytes, limit) = (request.body.len(), request.limits.request_bytes);
    if bytes > limit { Err(HttpError::RequestTooLarge { bytes, limit }) } else { Ok(()) }
}

/// `user:password` of an address, as the header of basic authentication.
fn basic(login: &str) -> Option<HeaderValue> {
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let mut plain: Vec<u8> = percent_decode_str(user).collect();
    plain.push(b':');
    plain.extend(percent_decode_str(password));
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(plain))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
