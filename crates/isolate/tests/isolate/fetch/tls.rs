//! `fetch` over TLS: the name of the URL is checked, and a redirect does not leave encryption.

use std::sync::Arc;

use ostler_isolate::fetch::{FetchLimits, Fetcher};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::network::TestNetwork;
use super::server::{Canary, Reply, Server};
use super::{PUBLIC, get, page, refused, rules};

/// A server for this name, and the certificate of its authority in PEM.
async fn server(name: &str, reply: Reply) -> (Server, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(vec![name.to_owned()]).expect("a name");
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
    (Server::wrapped(move |_| reply.clone(), wrap).await, authority.pem())
}

#[tokio::test]
async fn the_certificate_is_that_of_the_name_and_not_of_the_address() {
    let (server, authority) = server("secure.example", Reply::text("secret")).await;
    let network = TestNetwork::default()
        .name("secure.example", &[&[PUBLIC]])
        .name("other.example", &[&[PUBLIC]])
        .route(PUBLIC, 443, server.address)
        .shared();
    let fetcher = Fetcher::over(rules(&["*.example"]), FetchLimits::default(), network);
    let unknown = refused(&fetcher.session(), get("https://secure.example/")).await;
    assert!(unknown.contains("no secure connection to secure.example"), "{unknown}");
    let session = fetcher.trusting(&authority).expect("a certificate").session();
    assert_eq!(page(&session, get("https://secure.example/")).await, Ok((200, "secret".to_owned())));
    assert!(server.request().await.contains("host: secure.example\r\n"));
    let misnamed = refused(&session, get("https://other.example/")).await;
    assert!(misnamed.contains("no secure connection to other.example"), "{misnamed}");
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_refused() {
    let canary = Canary::start().await;
    let (server, authority) = server("secure.example", Reply::redirect(302, "http://plain.example/")).await;
    let network = TestNetwork::default()
        .name("secure.example", &[&[PUBLIC]])
        .name("plain.example", &[&[PUBLIC]])
        .route(PUBLIC, 443, server.address)
        .route(PUBLIC, 80, canary.address)
        .shared();
    let fetcher = Fetcher::over(rules(&["*"]), FetchLimits::default(), network);
    let session = fetcher.trusting(&authority).expect("a certificate").session();
    let why = refused(&session, get("https://secure.example/")).await;
    assert_eq!(why, "secure.example redirects from https to http");
    assert_eq!(canary.connections().await, 0);
}
