//! TLS: connections are encrypted as the URL requires, and a server with the wrong identity is refused.

use std::path::Path;
use std::sync::OnceLock;

use ostler_core::{Id, SessionId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{Fenced, NewSession, Renewed};
use ostler_store::{Error, ErrorKind, Store};
use ostler_testkit::{Ids, MAX_WAIT, PrivatePostgres, Proxy};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

const NODE: SessionId = SessionId(Id::from_bits(9));

/// A server whose certificate is for `localhost`, the root that signed it, and one that did not.
struct Encrypting {
    server: PrivatePostgres,
    folder: TempDir,
}

fn encrypting() -> &'static Encrypting {
    static SHARED: OnceLock<Encrypting> = OnceLock::new();
    SHARED.get_or_init(|| {
        let (right, wrong) = (root(), root());
        let key = KeyPair::generate().expect("a key can be made");
        let names = CertificateParams::new(["localhost".to_owned()]).expect("a name for the server");
        let certificate = names.signed_by(&key, &right).expect("a certificate can be signed");
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        for (name, pem) in [("right", right.pem()), ("wrong", wrong.pem()), ("empty", String::new())] {
            std::fs::write(folder.path().join(name), pem).expect("a file can be written");
        }
        Encrypting { server: PrivatePostgres::encrypting(&certificate.pem(), &key.serialize_pem()), folder }
    })
}

fn root() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("a root needs no name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key can be made")).expect("a root")
}

/// The URL of the server by this host name, with these TLS settings.
fn url(name: &str, said: &str) -> String {
    let port = encrypting().server.port();
    format!("host={name} hostaddr=127.0.0.1 port={port} user=ostler dbname=ostler {said}")
}

fn file(name: &str) -> String {
    let path: &Path = encrypting().folder.path();
    path.join(name).display().to_string()
}

async fn open(url: &str, schema: &str) -> Result<Postgres, Error> {
    let options = Options { schema: schema.to_owned(), connections: 2, ..Options::default() };
    Postgres::open(url, options).await
}

async fn client() -> Client {
    let (client, connection) =
        connect(&url("localhost", "sslmode=disable"), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// How many connections of this name are encrypted, and how many are not.
async fn encrypted(client: &Client, name: &str) -> (i64, i64) {
    let asked = "SELECT count(*) FILTER (WHERE s.ssl), count(*) FILTER (WHERE NOT s.ssl)
        FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = $1";
    let row = client.query_one(asked, &[&name]).await.expect("the connections are counted");
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_as_the_url_says() {
    let client = client().await;
    let right = file("right");
    for (name, host, said, is_encrypted) in [
        ("off", "localhost", "sslmode=disable".to_owned(), false),
        ("default", "localhost", String::new(), true),
        ("preferred", "localhost", "sslmode=prefer".to_owned(), true),
        ("required", "localhost", "sslmode=require".to_owned(), true),
        ("signed", "127.0.0.1", format!("sslmode=verify-ca sslrootcert='{right}'"), true),
        ("named", "localhost", format!("sslmode=verify-full sslrootcert='{right}'"), true),
    ] {
        let store = open(&url(host, &format!("{said} application_name={name}")), name).await;
        let store = store.unwrap_or_else(|error| panic!("{name}: {error}"));
        store.survey().await.expect("survey answers");
        let (on, off) = encrypted(&client, name).await;
        assert!(on + off >= 2, "{name}: the listener, and one of the pool");
        assert_eq!((on > 0, off > 0), (is_encrypted, !is_encrypted), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_the_one_that_is_meant_is_refused_with_a_sentence() {
    let (right, wrong, empty) = (file("right"), file("wrong"), file("empty"));
    for (host, said, word) in [
        ("localhost", format!("sslmode=verify-full sslrootcert='{wrong}'"), "certificate"),
        ("localhost", format!("sslmode=verify-ca sslrootcert='{wrong}'"), "certificate"),
        ("localhost", format!("sslmode=require sslrootcert='{wrong}'"), "certificate"),
        ("127.0.0.1", format!("sslmode=verify-full sslrootcert='{right}'"), "certificate"),
        ("localhost", "sslmode=verify-full sslrootcert=/no/such/file".to_owned(), "/no/such/file"),
        ("localhost", format!("sslmode=verify-full sslrootcert='{empty}'"), "no certificate in"),
        ("localhost", "sslmode=sometimes".to_owned(), "sslmode"),
    ] {
        let error = open(&url(host, &said), "refused").await.err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{said}: {error}");
        assert!(error.to_string().contains(word), "{said}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_encryption_is_refused_when_it_is_required() {
    let proxy = Proxy::start(PrivatePostgres::shared()).await;
    let error =
        open(&format!("{}?sslmode=require", proxy.url()), "plain").await.err().expect("it is refused");
    assert!(error.to_string().contains("TLS"), "{error}");
    open(&format!("{}?sslmode=prefer", proxy.url()), "plain").await.expect("it opens without");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heart_is_known_by_its_connection_also_when_that_is_encrypted() {
    let store = open(&url("localhost", "sslmode=require"), "heartbeat").await.expect("it opens");
    let node = NewSession { id: NODE, ..Ids::new(9).new_session("stable", MAX_WAIT) };
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    assert!(matches!(store.renew(NODE, &[]).await, Ok(Renewed::Held { .. })));
    let asked = "SELECT s.ssl FROM pg_stat_ssl s JOIN heartbeat.session n ON n.heart_pid = s.pid";
    assert!(client().await.query_one(asked, &[]).await.expect("the heartbeat is there").get::<_, bool>(0));
}
