//! What is sent, and what is answered.

use ostler_http::{HeaderValue, HttpLimits, HttpRequest, Method, header};
use ostler_testkit::MAX_WAIT;

use crate::server::{Reply, Server, client, pieces};

#[tokio::test]
async fn a_post_is_sent_with_its_headers_and_answered() {
    let reply = "HTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\nhello";
    let server = Server::start(Reply::Pieces(pieces(&[reply]))).await;
    let uri =
        format!("http://anna:hunter%202@127.0.0.1:{}/a/b?c=d", server.port).parse().expect("an address");
    let request = HttpRequest::post(uri, "{\"a\":1}")
        .with_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = client().send(request).await.expect("it is answered");
    assert_eq!(answer.status, 201);
    assert_eq!(answer.bytes().await.expect("a body"), "hello");
    let sent = server.request().await;
    let (head, body) = sent.split_once("\r\n\r\n").expect("a head");
    assert_eq!((head.lines().next(), body), (Some("POST /a/b?c=d HTTP/1.1"), "{\"a\":1}"));
    for line in [
        format!("host: 127.0.0.1:{}", server.port),
        "content-type: application/json".to_owned(),
        "content-length: 7".to_owned(),
        "authorization: Basic YW5uYTpodW50ZXIgMg==".to_owned(),
        format!("user-agent: ostler/{}", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(head.lines().any(|sent| sent == line), "{line}: {head}");
    }
}

#[tokio::test]
async fn any_status_is_an_answer_with_its_retry_after_and_a_redirect_is_not_followed() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 120\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(Reply::Pieces(pieces(&[busy]))).await;
    let answer = client().send(HttpRequest::get(server.uri("/"))).await.expect("it is answered");
    assert_eq!((answer.status.as_u16(), answer.retry_after()), (429, Some("120")));

    let elsewhere =
        Server::start(Reply::Pieces(pieces(&["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]))).await;
    let to = elsewhere.uri("/secret").to_string();
    let moved = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
    let server = Server::start(Reply::Pieces(vec![moved])).await;
    let answer = client().send(HttpRequest::post(server.uri("/"), "x")).await.expect("it is answered");
    assert_eq!((answer.status.as_u16(), answer.location()), (307, Some(to.as_str())));
    answer.bytes().await.expect("a body");
    // The first request that the other server gets is this one.
    let request = HttpRequest { method: Method::PUT, ..HttpRequest::get(elsewhere.uri("/own")) };
    client().send(request).await.expect("it is answered");
    assert!(elsewhere.request().await.starts_with("PUT /own "), "nothing else was sent there");
}

#[tokio::test]
async fn a_stream_is_read_piece_by_piece_while_it_goes_on() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let reply = Reply::ThenSilence(pieces(&[head, "7\r\ndata: a\r\n", "7\r\ndata: b\r\n"]));
    let server = Server::start(reply).await;
    let request = HttpRequest::get(server.uri("/events")).with_limits(HttpLimits::streaming(MAX_WAIT));
    let mut answer = client().send(request).await.expect("it is answered");
    // The answer has no end, and its pieces are there all the same.
    let mut read = String::new();
    while read.len() < 14 {
        let piece = answer.chunk().await.expect("a piece").expect("it goes on");
        read.push_str(&String::from_utf8_lossy(&piece));
    }
    assert_eq!(read, "data: adata: b");
}

#[tokio::test]
async fn a_connection_of_the_caller_is_used_with_the_name_of_the_address() {
    let server =
        Server::start(Reply::Pieces(pieces(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"]))).await;
    let connection = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.expect("it listens");
    let uri = "http://api.invalid/path".parse().expect("an address");
    let answer = client().send_over(HttpRequest::get(uri), connection).await.expect("it is answered");
    assert_eq!(answer.bytes().await.expect("a body"), "hi");
    let sent = server.request().await;
    assert!(sent.starts_with("GET /path HTTP/1.1\r\n") && sent.contains("host: api.invalid\r\n"), "{sent}");
}
