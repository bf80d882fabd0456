//! Requests through a proxy.

use ostler_http::{AddressRules, HttpClient, HttpError, HttpRequest, Proxies};

use crate::server::{Reply, Server, pieces};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn behind(proxy: &Server, rules: AddressRules) -> HttpClient {
    let proxy = format!("http://anna:secret@127.0.0.1:{}", proxy.port).parse().expect("an address");
    HttpClient::new(rules, Proxies::One(proxy))
}

#[tokio::test]
async fn plain_requests_are_handed_to_the_proxy_with_its_login() {
    let proxy = Server::start(Reply::Pieces(pieces(&[OK]))).await;
    let uri = "http://api.invalid/path?a=b".parse().expect("an address");
    let answer = behind(&proxy, AddressRules::Any).send(HttpRequest::get(uri)).await.expect("it is answered");
    assert_eq!(answer.status, 200);
    let sent = proxy.request().await;
    assert!(sent.starts_with("GET http://api.invalid/path?a=b HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains("host: api.invalid\r\n"), "{sent}");
    assert!(sent.contains("proxy-authorization: Basic YW5uYTpzZWNyZXQ=\r\n"), "{sent}");
}

#[tokio::test]
async fn a_proxy_that_refuses_a_tunnel_is_named_without_its_login() {
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
    let proxy = Server::start(Reply::Pieces(pieces(&[refusal]))).await;
    let uri = "https://api.invalid/".parse().expect("an address");
    let error =
        behind(&proxy, AddressRules::Any).send(HttpRequest::get(uri)).await.expect_err("it is refused");
    assert!(matches!(error, HttpError::Proxy { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("127.0.0.1") && said.contains("403") && !said.contains("secret"), "{said}");
    assert!(proxy.request().await.starts_with("CONNECT api.invalid:443 HTTP/1.1\r\n"));
}

#[tokio::test]
async fn rules_about_addresses_are_not_left_to_a_proxy() {
    let proxy = Server::start(Reply::Pieces(pieces(&[OK]))).await;
    let target = Server::start(Reply::Pieces(pieces(&[OK]))).await;
    let client = behind(&proxy, AddressRules::public());
    let error = client.send(HttpRequest::get(target.uri("/"))).await.expect_err("it is refused");
    assert!(matches!(error, HttpError::Forbidden { .. }), "{error}");
}
