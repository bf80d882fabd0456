//! Limits of times and numbers, and responses that are given up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_isolate::fetch::{FetchLimits, FetchNetwork, Fetcher};
use ostler_isolate::{FetchRequest, HostError};
use tokio::net::TcpStream;

use super::network::TestNetwork;
use super::server::{Reply, Server};
use super::{bounded, get, page, refused, rules, session, whole};

/// Short, and still long enough for what has to work.
const SHORT: Duration = Duration::from_millis(100);
const OPEN: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";

fn network() -> Arc<TestNetwork> {
    TestNetwork::default().shared()
}

/// A network in which nothing answers.
struct BlackHole;

#[async_trait]
impl FetchNetwork for BlackHole {
    async fn resolve(&self, host: &str, port: u16) -> std::io::Result<Vec<std::net::SocketAddr>> {
        match host {
            "slow.example" => std::future::pending().await,
            _ => Ok(vec![([93, 184, 215, 14], port).into()]),
        }
    }

    async fn connect(&self, _: std::net::SocketAddr) -> std::io::Result<TcpStream> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_or_a_host_that_does_not_answer_is_given_up() {
    for (host, connect, total, expected) in [
        ("slow.example", 10, 300, "connecting took longer than 10s"),
        ("deaf.example", 10, 300, "connecting took longer than 10s"),
        ("deaf.example", 10, 5, "the request took longer than 5s"),
    ] {
        let (connect, total) = (Duration::from_secs(connect), Duration::from_secs(total));
        let limits = FetchLimits { connect, total, ..FetchLimits::default() };
        let session = Fetcher::over(rules(&["*"]), limits, Arc::new(BlackHole)).session();
        assert_eq!(refused(&session, get(format!("http://{host}/"))).await, expected);
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up() {
    let server = Server::always(Reply::Open(Vec::new())).await;
    let limits = FetchLimits { answer: SHORT, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    assert_eq!(refused(&session, get(server.url("/"))).await, "the answer took longer than 100ms");
    server.gone(1).await;
}

#[tokio::test]
async fn a_body_that_falls_silent_is_given_up() {
    let server = Server::always(Reply::Open(OPEN.to_vec())).await;
    let limits = FetchLimits { idle: SHORT, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    let error = page(&session, get(server.url("/"))).await.expect_err("silence");
    assert_eq!(error.to_string(), "the next part of the answer took longer than 100ms");
    server.gone(1).await;
}

#[tokio::test]
async fn a_slow_drip_ends_with_the_time_in_all() {
    let server = Server::always(Reply::Drip(b"HTTP/1.0 200 OK\r\n\r\n".to_vec())).await;
    let limits = FetchLimits { total: SHORT, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    let error = page(&session, get(server.url("/"))).await.expect_err("it never ends");
    assert_eq!(error.to_string(), "the request took longer than 100ms");
    server.gone(1).await;
}

#[tokio::test]
async fn a_slow_head_and_slow_redirects_end_with_the_time_in_all() {
    let server = Server::start(|request| {
        if request.starts_with("GET /head") {
            Reply::Drip(b"HTTP/1.1 200 OK\r\nx-endless: ".to_vec())
        } else {
            Reply::redirect(302, "/head")
        }
    })
    .await;
    let limits = FetchLimits { total: SHORT, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    for path in ["/head", "/redirect"] {
        assert_eq!(refused(&session, get(server.url(path))).await, "the request took longer than 100ms");
    }
}

#[tokio::test]
async fn a_hundred_responses_may_be_open_and_not_one_more() {
    let server = Server::always(Reply::Open(OPEN.to_vec())).await;
    let session = Arc::new(session(&[&server.entry()], &network()));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (session, request) = (Arc::clone(&session), get(server.url("/")));
        all.spawn(async move { session.fetch(request).await.expect("it is answered").response });
    }
    let open = all.join_all().await;
    let why = refused(&session, get(server.url("/"))).await;
    assert_eq!(why, "100 responses are open; read or cancel one before the next fetch");
    session.close(open[0]);
    server.gone(1).await;
    session.fetch(get(server.url("/"))).await.expect("there is room again");
    // Others are not affected.
    assert_eq!(session.body(open[1]).await, Ok(Some(b"a".to_vec())));
    drop(session);
    server.gone(101).await;
}

#[tokio::test]
async fn the_requests_of_an_attempt_are_counted_whether_they_succeed_or_not() {
    let server = Server::always(Reply::text("page")).await;
    let fetcher = Fetcher::over(
        rules(&[&server.entry()]),
        FetchLimits { requests: 3, ..FetchLimits::default() },
        network(),
    );
    let session = fetcher.session();
    assert!(page(&session, get(server.url("/"))).await.is_ok());
    refused(&session, get("http://unlisted.example/")).await;
    assert!(page(&session, get(server.url("/"))).await.is_ok());
    assert_eq!(refused(&session, get(server.url("/"))).await, "an attempt may make 3 requests");
    assert!(
        page(&fetcher.session(), get(server.url("/"))).await.is_ok(),
        "another attempt has its own count"
    );
}

#[tokio::test]
async fn a_closed_response_drops_its_connection_and_ends_who_waits_for_it() {
    let server = Server::start(|request| {
        Reply::Open(if request.starts_with("GET /head") { OPEN.to_vec() } else { Vec::new() })
    })
    .await;
    let session = session(&[&server.entry()], &network());
    let aborted = Err(HostError("the request was aborted".to_owned()));
    // Before its head.
    let request = get(server.url("/none"));
    let number = request.response;
    let (answered, ()) = tokio::join!(session.fetch(request), async {
        server.request().await;
        session.close(number);
    });
    assert_eq!(answered, aborted);
    server.gone(1).await;
    // While its body is read.
    let head = session.fetch(get(server.url("/head"))).await.expect("it is answered");
    assert_eq!(session.body(head.response).await, Ok(Some(b"a".to_vec())));
    let (piece, ()) = tokio::join!(session.body(head.response), async { session.close(head.response) });
    assert_eq!(piece.map(drop), aborted.map(drop));
    server.gone(2).await;
    assert!(session.body(head.response).await.is_err());
    // Before the request is seen: a host may pass it on later.
    let late = get(server.url("/head"));
    session.close(late.response);
    assert_eq!(session.fetch(late).await.map(drop), Err(HostError("the request was aborted".to_owned())));
}

#[tokio::test]
async fn a_request_that_is_dropped_leaves_nothing_behind() {
    let server = Server::always(Reply::Open(Vec::new())).await;
    let limits = FetchLimits { open_responses: 1, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    let request = get(server.url("/"));
    tokio::select! {
        answered = session.fetch(request.clone()) => panic!("{answered:?}"),
        _ = server.request() => {}
    }
    server.gone(1).await;
    let again = FetchRequest { url: "http://unlisted.example/".to_owned(), ..request };
    assert!(refused(&session, again).await.contains("not in the list"), "its place and its number are free");
}

#[tokio::test]
async fn a_number_is_used_by_one_response_at_a_time() {
    let server = Server::always(Reply::text("page")).await;
    let session = session(&[&server.entry()], &network());
    let request = get(server.url("/"));
    let head = session.fetch(request.clone()).await.expect("it is answered");
    assert!(refused(&session, request.clone()).await.contains("was requested before"));
    assert_eq!(whole(&session, head.response).await, Ok(b"page".to_vec()));
    assert!(session.body(u32::MAX).await.is_err(), "no such response");
}
