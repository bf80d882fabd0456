//! A Unix socket in place of an address: for its owner only, a stale one is replaced, and pages of a browser have no business there.

use std::os::unix::fs::PermissionsExt as _;

use ostler_server::{ListenAddress, ListenError, MetricsAccess, Server};
use ostler_testkit::TempStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::world::{FULL, parts};

/// The status of an answer.
async fn ask(path: &std::path::Path, method: &str, headers: &str) -> u16 {
    let mut stream = UnixStream::connect(path).await.expect("it listens");
    let request =
        format!("{method} /api/v1/stats HTTP/1.1\r\nhost: any\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it is answered");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_is_its_owners_and_needs_a_token_and_a_stale_one_is_replaced() {
    let files = TempStore::real();
    let path = files.folder().join("api.sock");
    let address = ListenAddress::Unix(path.clone());
    // The socket of a process that has died: it is there, and nothing listens.
    drop(UnixListener::bind(&path).expect("it is bound"));
    assert!(path.exists());
    let (mut parts, _) = parts(files.second(), files.folder(), 902, MetricsAccess::Token);
    // With a name by which browsers reach it through a proxy, that name would be asked for.
    parts.public_url = None;
    let server = Server::start(parts, address.bind().await.expect("it listens")).expect("it starts");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let bearer = format!("authorization: Bearer {FULL}\r\n");
    assert_eq!(ask(&path, "GET", &bearer).await, 200);
    assert_eq!(ask(&path, "GET", "").await, 401);
    let page = format!("{bearer}origin: http://127.0.0.1:7700\r\n");
    assert_eq!(ask(&path, "GET", &page).await, 403, "no page has an address here");
    // One that is in use is not taken away.
    assert!(matches!(address.bind().await, Err(ListenError::Taken(_))));
    assert_eq!(ask(&path, "GET", &bearer).await, 200);
    server.stop(std::time::Duration::from_secs(5)).await;
    assert!(!path.exists(), "it takes its socket with it");
    // A file that is no socket stays.
    std::fs::write(&path, "mine").expect("it is written");
    assert!(address.bind().await.is_err());
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "mine");
}
