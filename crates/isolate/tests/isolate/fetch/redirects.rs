//! Redirects: followed within bounds, and with the headers that may go along.

use ostler_isolate::{FetchRedirect, FetchRequest};

use super::network::TestNetwork;
use super::server::{Reply, Server};
use super::{PUBLIC, get, page, refused, session, whole, with_headers};

/// The path of a request.
fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap_or_default()
}

#[tokio::test]
async fn logins_are_not_sent_to_another_origin() {
    let server = Server::start(|request| match path(request) {
        "/same" => Reply::redirect(302, "/cross"),
        "/cross" => Reply::redirect(307, "http://b.example/end"),
        _ => Reply::text("end"),
    })
    .await;
    let network = TestNetwork::default()
        .name("a.example", &[&[PUBLIC]])
        .name("b.example", &[&[PUBLIC]])
        .route(PUBLIC, 80, server.address)
        .shared();
    let session = session(&["a.example", "b.example"], &network);
    let headers = [("Authorization", "Bearer t0ken"), ("Cookie", "id=1"), ("X-Kept", "yes")];
    let request = with_headers(get("http://a.example/same#part"), &headers);
    let head = session.fetch(request).await.expect("it is answered");
    assert_eq!((head.url.as_str(), head.redirected), ("http://b.example/end", true));
    assert_eq!(whole(&session, head.response).await, Ok(b"end".to_vec()));
    for (target, kept) in [("GET /same ", true), ("GET /cross ", true), ("GET /end ", false)] {
        let request = server.request().await;
        assert!(request.starts_with(target), "{request}");
        assert_eq!(request.contains("authorization: Bearer t0ken"), kept, "{request}");
        assert_eq!(request.contains("cookie: id=1"), kept, "{request}");
        assert!(request.contains("x-kept: yes"), "{request}");
    }
    assert_eq!(network.lookups(), ["a.example", "a.example", "b.example"], "each hop is checked");
}

#[tokio::test]
async fn bodies_go_along_where_the_status_keeps_the_method() {
    let server = Server::start(|request| match path(request) {
        "/303" => Reply::redirect(303, "/end"),
        "/308" => Reply::redirect(308, "/end"),
        _ => Reply::text("end"),
    })
    .await;
    let entry = server.entry();
    let session = session(&[&entry], &TestNetwork::default().shared());
    for (first, second, body) in [("/303", "GET /end", ""), ("/308", "POST /end", "data")] {
        let post = get(server.url(first));
        let post = with_headers(post, &[("content-type", "text/x")]);
        let post = FetchRequest { method: "POST".to_owned(), body: Some(b"data".to_vec()), ..post };
        assert_eq!(page(&session, post).await, Ok((200, "end".to_owned())));
        assert!(server.request().await.ends_with("\r\n\r\ndata"));
        let sent = server.request().await;
        assert!(sent.starts_with(second) && sent.ends_with(&format!("\r\n\r\n{body}")), "{sent}");
        assert_eq!(sent.contains("content-type"), !body.is_empty(), "{sent}");
    }
}

#[tokio::test]
async fn five_redirects_are_followed_and_not_a_sixth() {
    let server = Server::start(|request| {
        let left: u32 = path(request).trim_start_matches('/').parse().expect("a number");
        if left == 0 { Reply::text("end") } else { Reply::redirect(302, &format!("/{}", left - 1)) }
    })
    .await;
    let session = session(&[&server.entry()], &TestNetwork::default().shared());
    assert_eq!(page(&session, get(server.url("/5"))).await, Ok((200, "end".to_owned())));
    assert_eq!(refused(&session, get(server.url("/6"))).await, "more than 5 redirects");
}

#[tokio::test]
async fn a_redirect_can_be_an_error_or_the_response_itself() {
    let server = Server::always(Reply::redirect(302, "http://127.0.0.1:1/elsewhere")).await;
    let session = session(&[&server.entry()], &TestNetwork::default().shared());
    let manual = FetchRequest { redirect: FetchRedirect::Manual, ..get(server.url("/")) };
    let head = session.fetch(manual).await.expect("it is the response");
    assert_eq!((head.status, head.redirected), (302, false));
    assert!(head.headers.contains(&("location".to_owned(), "http://127.0.0.1:1/elsewhere".to_owned())));
    assert_eq!(whole(&session, head.response).await, Ok(b"moved".to_vec()));
    let error = FetchRequest { redirect: FetchRedirect::Error, ..get(server.url("/")) };
    let why = refused(&session, error).await;
    assert!(why.contains("redirect: \"error\""), "{why}");
}
