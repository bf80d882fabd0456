//! Timeouts and sizes.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use ostler_http::{HttpAnswer, HttpError, HttpLimits, HttpRequest, Stage};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::server::{Reply, Server, client, pieces, read_request};

/// Short, and still long enough for what has to work.
const SHORT: Duration = Duration::from_millis(100);
const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up() {
    let server = Server::start(Reply::ThenSilence(Vec::new())).await;
    let limits = HttpLimits { answer: SHORT, ..HttpLimits::default() };
    let error =
        client().send(HttpRequest::get(server.uri("/")).with_limits(limits)).await.expect_err("silence");
    assert!(matches!(error, HttpError::TimedOut { stage: Stage::Answering, limit: SHORT }), "{error}");
    assert_eq!(error.to_string(), "the answer took longer than 100ms");
}

#[tokio::test]
async fn a_body_that_falls_silent_is_given_up() {
    let server = Server::start(Reply::ThenSilence(pieces(&[HEAD, "1\r\na\r\n"]))).await;
    let limits = HttpLimits::streaming(SHORT);
    let mut answer =
        client().send(HttpRequest::get(server.uri("/")).with_limits(limits)).await.expect("it is answered");
    // On a slow machine, even the first piece may take too long.
    let error = match answer.chunk().await {
        Ok(piece) => {
            assert_eq!(piece.as_deref(), Some(&b"a"[..]));
            answer.chunk().await.expect_err("silence")
        }
        Err(error) => error,
    };
    assert!(matches!(error, HttpError::TimedOut { stage: Stage::Reading, .. }), "{error}");
}

#[tokio::test]
async fn the_limit_in_all_holds_for_an_answer_that_never_ends() {
    let server = Server::start(Reply::Endless("HTTP/1.0 200 OK\r\n\r\n".to_owned())).await;
    let limits = HttpLimits { total: Some(SHORT), answer_bytes: usize::MAX, ..HttpLimits::default() };
    let request = HttpRequest::get(server.uri("/")).with_limits(limits);
    let error = match client().send(request).await {
        Ok(mut answer) => loop {
            match answer.chunk().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it has no end"),
                Err(error) => break error,
            }
        },
        // On a slow machine, even the head took longer.
        Err(error) => error,
    };
    assert!(matches!(error, HttpError::TimedOut { stage: Stage::Request, .. }), "{error}");
}

#[tokio::test]
async fn a_huge_answer_and_a_huge_head_are_cut_off() {
    let server = Server::start(Reply::Endless("HTTP/1.0 200 OK\r\n\r\n".to_owned())).await;
    let limits = HttpLimits { answer_bytes: 100_000, ..HttpLimits::default() };
    let answer =
        client().send(HttpRequest::get(server.uri("/")).with_limits(limits)).await.expect("it is answered");
    let error = answer.bytes().await.expect_err("it is too large");
    assert!(matches!(error, HttpError::AnswerTooLarge { limit: 100_000 }), "{error}");

    let server = Server::start(Reply::Endless("HTTP/1.1 200 OK\r\nx: ".to_owned())).await;
    let error = client().send(HttpRequest::get(server.uri("/"))).await.expect_err("the head has no end");
    assert!(matches!(error, HttpError::Broken(_)), "{error}");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_not_sent() {
    let limits = HttpLimits { request_bytes: 3, ..HttpLimits::default() };
    let nowhere = "http://127.0.0.1:1/".parse().expect("an address");
    let error =
        client().send(HttpRequest::post(nowhere, "four").with_limits(limits)).await.expect_err("too large");
    assert!(matches!(error, HttpError::RequestTooLarge { bytes: 4, limit: 3 }), "{error}");
}

#[tokio::test]
async fn what_does_not_listen_is_named_without_the_path() {
    let port = {
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        closed.local_addr().expect("it is bound").port()
    };
    let uri = format!("http://127.0.0.1:{port}/T0K3N").parse().expect("an address");
    let error = client().send(HttpRequest::get(uri)).await.expect_err("nothing listens");
    assert!(matches!(error, HttpError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")) && !error.to_string().contains("T0K3N"));
}

/// A server that answers with these bytes as a body in gzip.
async fn compressed(body: &[u8]) -> HttpAnswer {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("it is compressed");
    let packed = encoder.finish().expect("it is compressed");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let uri = format!("http://{}/", listener.local_addr().expect("it is bound")).parse().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a request");
        read_request(&mut stream).await;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len());
        stream.write_all(head.as_bytes()).await.expect("it is sent");
        let _ = stream.write_all(&packed).await;
    });
    let limits = HttpLimits { answer_bytes: 1 << 20, ..HttpLimits::default() };
    client().send(HttpRequest::get(uri).with_limits(limits)).await.expect("it is answered")
}

#[tokio::test]
async fn a_compressed_answer_is_read_when_asked_for_and_a_bomb_is_cut_off() {
    let text = "event: ping\n".repeat(1_000);
    let answer = compressed(text.as_bytes()).await.decoded().expect("it is gzip");
    assert_eq!(answer.bytes().await.expect("it is read"), text.as_bytes());
    // As it came, unless it is decoded.
    assert!(compressed(text.as_bytes()).await.bytes().await.expect("it is read").starts_with(b"\x1f\x8b"));
    // 64 MiB of zeros are 64 KiB on the wire.
    let bomb = compressed(&vec![0; 64 << 20]).await.decoded().expect("it is gzip");
    let error = bomb.bytes().await.expect_err("it is too large");
    assert!(matches!(error, HttpError::AnswerTooLarge { limit: 1_048_576 }), "{error}");
}

#[tokio::test]
async fn an_unknown_encoding_is_refused() {
    let server = Server::start(Reply::Pieces(pieces(&[
        "HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx",
    ])))
    .await;
    let answer = client().send(HttpRequest::get(server.uri("/"))).await.expect("it is answered");
    let error = answer.decoded().expect_err("it cannot be decoded");
    assert_eq!(error.to_string(), "the answer cannot be decoded: its encoding is br");
}
