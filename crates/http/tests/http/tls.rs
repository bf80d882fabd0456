//! Requests over TLS, with an authority of their own.

use std::sync::Arc;

use ostler_http::{AddressRules, HttpClient, HttpError, HttpRequest, Proxies, Uri};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::server::{Reply, Server, client, pieces, read_request};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret";

/// A server for `localhost`, and the certificate of its authority in PEM.
async fn server() -> (Server, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = names.signed_by(&key, &authority).expect("it is signed");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let wrap = move |stream| {
        let acceptor = acceptor.clone();
        async move { acceptor.accept(stream).await.ok() }
    };
    (Server::with(Reply::Pieces(pieces(&[OK])), wrap).await, authority.pem())
}

fn secure(server: &Server, host: &str) -> Uri {
    format!("https://{host}:{}/", server.port).parse().expect("an address")
}

#[tokio::test]
async fn a_trusted_server_is_read_and_an_unknown_or_misnamed_one_is_refused() {
    let (server, authority) = server().await;
    let trusting = client().trusting(&authority).expect("a certificate");
    let answer = trusting.send(HttpRequest::get(secure(&server, "localhost"))).await.expect("it is answered");
    assert_eq!(answer.bytes().await.expect("a body"), "secret");
    let unknown = client().send(HttpRequest::get(secure(&server, "localhost"))).await.expect_err("unknown");
    assert!(matches!(unknown, HttpError::Tls { .. }), "{unknown}");
    let misnamed = trusting.send(HttpRequest::get(secure(&server, "127.0.0.1"))).await.expect_err("misnamed");
    assert!(matches!(misnamed, HttpError::Tls { .. }), "{misnamed}");
    assert!(client().trusting("nonsense").is_err());
}

#[tokio::test]
async fn a_tunnel_through_a_proxy_is_encrypted_from_end_to_end() {
    let (server, authority) = server().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let near = listener.local_addr().expect("it is bound").port();
    let proxy = format!("http://127.0.0.1:{near}").parse().expect("an address");
    let port = server.port;
    let tunnel = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.expect("a client");
        let asked = read_request(&mut near).await;
        near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.expect("it listens");
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
        let _ = copy_bidirectional(&mut near, &mut far).await;
        asked
    });
    let client =
        HttpClient::new(AddressRules::Any, Proxies::One(proxy)).trusting(&authority).expect("trusted");
    let answer = client.send(HttpRequest::get(secure(&server, "localhost"))).await.expect("it is answered");
    assert_eq!(answer.bytes().await.expect("a body"), "secret");
    let asked = tunnel.await.expect("the proxy ran");
    assert!(asked.starts_with(&format!("CONNECT localhost:{port} HTTP/1.1")), "{asked}");
}
