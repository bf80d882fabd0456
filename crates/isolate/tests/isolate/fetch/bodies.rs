//! Bodies: streamed as they arrive, decompressed within a bound, and closed when they are given up.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use ostler_isolate::fetch::FetchLimits;
use ostler_isolate::{FetchRequest, HostError};
use tokio::sync::Notify;

use super::network::TestNetwork;
use super::server::{Reply, Server};
use super::{bounded, get, page, refused, session, whole, with_headers};

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn gzipped(bytes: &[u8]) -> Reply {
    Reply::with("200 OK", &[("content-encoding", "gzip"), ("x-a", "b")], &gzip(bytes))
}

fn network() -> Arc<TestNetwork> {
    TestNetwork::default().shared()
}

#[tokio::test]
async fn a_body_arrives_before_the_server_has_finished() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(b"first").expect("memory");
    encoder.flush().expect("memory");
    let first = encoder.get_ref().clone();
    encoder.write_all(b"second").expect("memory");
    let second = encoder.finish().expect("memory").split_off(first.len());
    let coded = b"HTTP/1.0 200 OK\r\ncontent-encoding: gzip\r\n\r\n".to_vec();
    for (begin, end) in [
        ([CHUNKED, b"5\r\nfirst\r\n"].concat(), b"6\r\nsecond\r\n0\r\n\r\n".to_vec()),
        ([coded, first].concat(), second),
    ] {
        let release = Arc::new(Notify::new());
        let server = Server::always(Reply::Released(begin, Arc::clone(&release), end)).await;
        let session = session(&[&server.entry()], &network());
        let head = session.fetch(get(server.url("/"))).await.expect("it is answered");
        assert_eq!(session.body(head.response).await, Ok(Some(b"first".to_vec())));
        release.notify_one();
        assert_eq!(whole(&session, head.response).await, Ok(b"second".to_vec()));
        assert_eq!(session.body(head.response).await, Ok(None), "the end stays the end");
    }
}

#[tokio::test]
async fn gzip_is_asked_for_and_decoded() {
    let text = "some text, ".repeat(50_000);
    let server = Server::always(gzipped(text.as_bytes())).await;
    let session = session(&[&server.entry()], &network());
    let head = session.fetch(get(server.url("/"))).await.expect("it is answered");
    assert_eq!(head.headers, [("x-a".to_owned(), "b".to_owned())], "nothing says that it is encoded");
    assert_eq!(whole(&session, head.response).await, Ok(text.into_bytes()));
    assert!(server.request().await.contains("accept-encoding: gzip\r\n"));
}

#[tokio::test]
async fn a_gzip_bomb_ends_at_the_bound() {
    let bomb = gzipped(&vec![0; 64 << 20]);
    let server = Server::always(bomb).await;
    let limits = FetchLimits { response_bytes: 1 << 20, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    let head = session.fetch(get(server.url("/"))).await.expect("it is answered");
    let (mut read, mut largest) = (0, 0);
    let why = loop {
        match session.body(head.response).await {
            Ok(Some(piece)) => (read, largest) = (read + piece.len(), largest.max(piece.len())),
            Ok(None) => panic!("a bomb ends with an error, not as if it were whole"),
            Err(HostError(why)) => break why,
        }
    };
    assert_eq!(why, "the response has more than 1048576 bytes");
    assert!(read <= 1 << 20, "{read} bytes were delivered");
    assert!(largest <= 128 << 10, "a piece had {largest} bytes");
    server.gone(1).await;
    assert!(session.body(head.response).await.is_err(), "it stays an error");
}

#[tokio::test]
async fn sizes_of_both_bodies_are_bounded() {
    let server = Server::always(Reply::text(&"x".repeat(100_000))).await;
    let limits = FetchLimits { response_bytes: 99_999, request_bytes: 3, ..FetchLimits::default() };
    let session = bounded(&[&server.entry()], &network(), limits);
    let head = session.fetch(get(server.url("/"))).await.expect("it is answered");
    let error = whole(&session, head.response).await.expect_err("too large");
    assert_eq!(error.to_string(), "the response has more than 99999 bytes");
    let post =
        FetchRequest { method: "POST".to_owned(), body: Some(b"four".to_vec()), ..get(server.url("/")) };
    assert_eq!(refused(&session, post).await, "the request has 4 bytes; the limit is 3");
}

#[tokio::test]
async fn other_encodings_and_broken_bodies_are_errors() {
    let server = Server::start(|request| match request.split(' ').nth(1) {
        Some("/br") => Reply::with("200 OK", &[("content-encoding", "br")], b"x"),
        Some("/damaged") => Reply::with("200 OK", &[("content-encoding", "gzip")], b"not gzip at all"),
        Some("/short") => Reply::Whole(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfour".to_vec()),
        _ => Reply::Whole(b"not HTTP\r\n\r\n".to_vec()),
    })
    .await;
    let session = session(&[&server.entry()], &network());
    let why = refused(&session, get(server.url("/br"))).await;
    assert_eq!(why, "the response has the content encoding \"br\"; only gzip is decoded");
    assert_eq!(
        page(&session, get(server.url("/damaged"))).await,
        Err(HostError("the response is not valid gzip".to_owned()))
    );
    assert!(page(&session, get(server.url("/short"))).await.is_err(), "a part is not the whole");
    assert!(refused(&session, get(server.url("/"))).await.contains("the connection failed"));
}

#[tokio::test]
async fn a_response_without_a_body_holds_no_connection() {
    let server = Server::start(|request| {
        let status = if request.starts_with("HEAD") { "200 OK" } else { "204 No Content" };
        Reply::Open(
            format!("HTTP/1.1 {status}\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\n").into(),
        )
    })
    .await;
    let session = session(&[&server.entry()], &network());
    for method in ["HEAD", "GET"] {
        let request = FetchRequest { method: method.to_owned(), ..get(server.url("/")) };
        let head = session.fetch(request).await.expect("it is answered");
        assert_eq!(session.body(head.response).await, Ok(None), "{method}");
    }
    server.gone(2).await;
}

#[tokio::test]
async fn headers_go_both_ways_without_those_of_the_connection() {
    let cookies = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("connection", "close"), ("x-name", "y")];
    let server = Server::always(Reply::with("404 Not Found", &cookies, b"gone")).await;
    let session = session(&[&server.entry()], &network());
    let sent = [
        ("Host", "inside.example"),
        ("Content-Length", "100"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "upgrade"),
        ("Upgrade", "h2c"),
        ("Proxy-Authorization", "x"),
        ("User-Agent", "mine"),
        ("X-A", "b"),
    ];
    let head = session.fetch(with_headers(get(server.url("/p?q#f")), &sent)).await.expect("it is answered");
    assert_eq!((head.status, head.status_text.as_str()), (404, "Not Found"));
    assert_eq!(head.url, server.url("/p?q"));
    let mut names: Vec<&str> = head.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "set-cookie", "set-cookie", "x-name"]);
    let request = server.request().await;
    assert!(request.starts_with("GET /p?q HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {}\r\n", server.entry())), "{request}");
    assert!(request.contains("user-agent: mine\r\n") && request.contains("x-a: b\r\n"), "{request}");
    for gone in ["inside", "content-length", "transfer-encoding", "upgrade", "proxy"] {
        assert!(!request.contains(gone), "{gone}: {request}");
    }
    let bad = FetchRequest { method: "CONNECT".to_owned(), ..get(server.url("/")) };
    assert_eq!(refused(&session, bad).await, "the method CONNECT is not allowed");
}
