//! `fetch`: which hosts and addresses a function reaches, and what its responses are bounded by. All servers are on loopback.

mod bodies;
mod guard;
mod limits;
mod network;
mod redirects;
mod script;
mod server;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ostler_isolate::fetch::{FetchLimits, FetchRules, FetchSession, Fetcher};
use ostler_isolate::{FetchRedirect, FetchRequest, HostError};

use network::TestNetwork;

/// A public address. Tests route it to a server on loopback.
pub(crate) const PUBLIC: &str = "93.184.215.14";

pub(crate) fn rules(list: &[&str]) -> FetchRules {
    let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
    FetchRules::parse(&list).expect("valid rules")
}

/// A session with these rules over this network.
pub(crate) fn session(list: &[&str], network: &Arc<TestNetwork>) -> FetchSession {
    bounded(list, network, FetchLimits::default())
}

pub(crate) fn bounded(list: &[&str], network: &Arc<TestNetwork>, limits: FetchLimits) -> FetchSession {
    Fetcher::over(rules(list), limits, Arc::<TestNetwork>::clone(network)).session()
}

/// A request with a number of its own.
pub(crate) fn get(url: impl Into<String>) -> FetchRequest {
    static LAST: AtomicU32 = AtomicU32::new(0);
    FetchRequest {
        response: LAST.fetch_add(1, Ordering::Relaxed),
        method: "GET".to_owned(),
        url: url.into(),
        headers: Vec::new(),
        body: None,
        redirect: FetchRedirect::Follow,
    }
}

pub(crate) fn with_headers(request: FetchRequest, headers: &[(&str, &str)]) -> FetchRequest {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    FetchRequest { headers, ..request }
}

/// Reads a response to its end.
pub(crate) async fn whole(session: &FetchSession, response: u32) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::new();
    while let Some(piece) = session.body(response).await? {
        assert!(!piece.is_empty(), "an empty piece looks like an end");
        bytes.extend(piece);
    }
    Ok(bytes)
}

/// Sends a request, and returns status and body.
pub(crate) async fn page(session: &FetchSession, request: FetchRequest) -> Result<(u16, String), HostError> {
    let head = session.fetch(request).await?;
    let body = whole(session, head.response).await?;
    Ok((head.status, String::from_utf8(body).expect("text")))
}

/// Sends a request that fails, and returns why.
pub(crate) async fn refused(session: &FetchSession, request: FetchRequest) -> String {
    let url = request.url.clone();
    match session.fetch(request).await {
        Ok(head) => panic!("{url} is answered with {}", head.status),
        Err(HostError(why)) => why,
    }
}
