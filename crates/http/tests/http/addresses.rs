//! Address rules, on the addresses that are connected to.

use ostler_http::{AddressRules, HttpClient, HttpError, HttpRequest, Proxies};

use crate::server::{Reply, Server, pieces};

fn public(allowed: &[&str]) -> HttpClient {
    let allowed = allowed.iter().map(|text| text.parse().expect("an exception")).collect();
    HttpClient::new(AddressRules::Public { allowed }, Proxies::Environment)
}

async fn server() -> Server {
    Server::start(Reply::Pieces(pieces(&["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]))).await
}

#[tokio::test]
async fn this_machine_is_refused_however_it_is_written() {
    let server = server().await;
    for host in
        ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "2130706433", "0x7f.1", "[::1]"]
    {
        let uri = format!("http://{host}:{}/", server.port).parse().expect("an address");
        let error = public(&[]).send(HttpRequest::get(uri)).await.expect_err(host);
        // Not every system knows each spelling; none of them may connect.
        let refused = matches!(&error, HttpError::Forbidden { .. } | HttpError::Unresolved { .. });
        assert!(refused, "{host}: {error}");
    }
    let uri = server.uri("/");
    let error = public(&[]).send(HttpRequest::get(uri)).await.expect_err("it is refused").to_string();
    assert!(error.starts_with("127.0.0.1 is 127.0.0.1, which is not a public address"), "{error}");
}

#[tokio::test]
async fn metadata_services_and_private_networks_are_refused_before_a_connection() {
    for host in ["169.254.169.254", "10.0.0.1", "192.168.0.1", "[fd00:ec2::254]", "[fe80::1]", "0.0.0.0"] {
        let uri = format!("http://{host}/latest/meta-data").parse().expect("an address");
        let error = public(&[]).send(HttpRequest::get(uri)).await.expect_err(host);
        assert!(matches!(error, HttpError::Forbidden { .. }), "{host}: {error}");
    }
}

#[tokio::test]
async fn what_is_allowed_besides_is_reached() {
    let server = server().await;
    for allowed in ["127.0.0.0/8", "127.0.0.1"] {
        let answer = public(&[allowed]).send(HttpRequest::get(server.uri("/"))).await.expect("it is allowed");
        assert_eq!(answer.status, 200);
    }
    let uri = format!("http://localhost:{}/", server.port).parse().expect("an address");
    assert!(public(&["localhost"]).send(HttpRequest::get(uri)).await.is_ok());
    let uri = server.uri("/");
    assert!(public(&["localhost"]).send(HttpRequest::get(uri)).await.is_err(), "the name was allowed");
}
