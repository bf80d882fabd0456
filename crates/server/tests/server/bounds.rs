//! What a server refuses by its size, files that a browser must not open, and changes that cannot be recorded.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{EventBody, Outcome};
use ostler_server::{Audit, CSP, ListenAddress, MetricsAccess, Server, ServerLimits};
use ostler_store::calls::NewTask;
use ostler_testkit::MAX_WAIT;
use sha2::{Digest as _, Sha256};

use crate::world::{Client, FULL, QUEUE, World, on_each_store, parts};

on_each_store!(
    a_body_and_a_path_that_are_too_long_are_refused_before_they_are_read,
    a_file_is_an_attachment_that_runs_nothing_and_only_what_the_store_knows_is_sent,
    a_change_that_cannot_be_recorded_is_not_made,
);

async fn a_body_and_a_path_that_are_too_long_are_refused_before_they_are_read(world: World) {
    let bearer = format!("Bearer {FULL}");
    let mut client = world.client().await;
    let large = ((64_u64 << 20) + 1).to_string();
    let host = world.address.clone();
    let headers = [
        ("host", host.as_str()),
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("content-length", large.as_str()),
    ];
    // Not a byte of the body is sent, and it is refused.
    client.raw("POST", "/api/v1/tasks", &headers, "").await;
    let refused = client.head().await;
    assert_eq!((refused.status, refused.header("content-security-policy")), (413, Some(CSP)));
    // An operation without a body does not keep one.
    let mut client = world.client().await;
    let reply = client
        .ask("POST", "/api/v1/queues/mail/resume", &[("authorization", &bearer)], &"x".repeat(65 * 1024))
        .await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "too_large"));
    let long = format!("/api/v1/tasks?text={}", "x".repeat(16 * 1024));
    let refused = world.get(&long).await;
    assert_eq!(refused.is(414).code(), "too_long");
    assert_eq!(refused.header("content-security-policy"), Some(CSP));
    let mut client = world.client().await;
    let mut many = vec![("host", host.as_str())];
    many.extend([("x-more", "1"); 70]);
    client.raw("GET", "/health", &many, "").await;
    assert_eq!(client.status().await, Some(431), "the head of a request has a bound");
    assert_eq!(world.get("/api/v1/stats").await.is(200).json()["submitted"], 0);
}

/// The HTTP library answers these before there is a request that could be given headers. There is nothing in them to protect.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_answered_without_a_body_and_ends_the_connection() {
    let world = World::new().await;
    let many =
        format!("GET /health HTTP/1.1\r\nhost: {}\r\n{}\r\n", world.address, "x-more: 1\r\n".repeat(70));
    for (text, status) in [("nonsense\r\n\r\n", 400), (many.as_str(), 431)] {
        let mut client = world.client().await;
        client.send(text).await;
        let refused = tokio::time::timeout(MAX_WAIT, client.head()).await.expect("it is refused");
        assert_eq!((refused.status, refused.header("content-length")), (status, Some("0")), "{refused:?}");
        assert_eq!(refused.header("content-type"), None);
        assert_eq!(client.status().await, None, "the connection is closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_wait_until_another_one_is_closed() {
    let world = World::limited(ServerLimits { connections: 2, ..ServerLimits::default() }).await;
    let (mut one, mut two) = (world.client().await, world.client().await);
    for client in [&mut one, &mut two] {
        client.ask("GET", "/health", &[], "").await.is(200);
    }
    let mut third = world.client().await;
    let host = world.address.clone();
    third.raw("GET", "/health", &[("host", &host)], "").await;
    // Many requests on one of the two are answered, and the third connection is not.
    for _ in 0..50 {
        one.ask("GET", "/health", &[], "").await.is(200);
    }
    assert!(tokio::time::timeout(Duration::ZERO, third.head()).await.is_err(), "it has to wait");
    drop(two);
    let answered = tokio::time::timeout(MAX_WAIT, third.head()).await.expect("it is accepted");
    assert_eq!(answered.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_bound_are_refused_until_another_one_ends() {
    let world = World::limited(ServerLimits { streams: 1, ..ServerLimits::default() }).await;
    let path = format!("/api/v1/tasks/{}/events", world.enqueue(1).await[0]);
    let bearer = format!("Bearer {FULL}");
    let headers = [("host", world.address.as_str()), ("authorization", bearer.as_str())];
    let mut first = world.client().await;
    first.raw("GET", &path, &headers, "").await;
    assert_eq!(first.status().await, Some(200));
    let refused = world.get(&path).await;
    assert_eq!((refused.is(503).code().as_str(), refused.header("retry-after")), ("busy", Some("1")));
    drop(first);
    let taken = async {
        loop {
            let mut next = world.client().await;
            next.raw("GET", &path, &headers, "").await;
            if next.status().await == Some(200) {
                return;
            }
        }
    };
    tokio::time::timeout(MAX_WAIT, taken).await.expect("its place is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_and_a_body_that_do_not_come_are_not_waited_for() {
    const SHORT: Duration = Duration::from_millis(200);
    let world =
        World::limited(ServerLimits { head_time: SHORT, body_time: SHORT, ..ServerLimits::default() }).await;
    let mut silent = world.client().await;
    assert_eq!(silent.status().await, None, "a connection without a request is closed");
    let mut half = world.client().await;
    half.send("GET /health HTTP/1.1\r\nhost: ").await;
    assert_eq!(half.status().await.unwrap_or(408), 408, "and so is one with the half of a head");
    let bearer = format!("Bearer {FULL}");
    for path in ["/api/v1/tasks", "/api/v1/login-links"] {
        let mut slow = world.client().await;
        let headers = [
            ("host", world.address.as_str()),
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("content-length", "10"),
        ];
        slow.raw("POST", path, &headers, "").await;
        let refused = tokio::time::timeout(MAX_WAIT, slow.head()).await.expect("it is refused");
        assert_eq!((refused.status, refused.header("content-security-policy")), (408, Some(CSP)), "{path}");
    }
}

async fn a_file_is_an_attachment_that_runs_nothing_and_only_what_the_store_knows_is_sent(world: World) {
    const PAGE: &str = "<script>alert(1)</script>";
    let folder = world.place.folder().join("work");
    std::fs::create_dir(&folder).expect("it is made");
    for name in ["page.html", "secret", "changed"] {
        std::fs::write(folder.join(name), PAGE).expect("it is written");
    }
    std::os::unix::fs::symlink("secret", folder.join("link")).expect("it is made");
    let mut task = NewTask::new(world.ids.task(), QUEUE, "send", "{}");
    task.folder = Some(folder.display().to_string());
    let id = task.id;
    world.store.enqueue(vec![task]).await.expect("it is accepted");
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    let sha256: String = Sha256::digest(PAGE).iter().map(|byte| format!("{byte:02x}")).collect();
    let file = |path: &str| EventBody::File {
        path: path.to_owned(),
        size: PAGE.len() as u64,
        sha256: sha256.clone(),
    };
    let files = ["page.html", "changed", "link", "../tokens"].map(file).to_vec();
    world.store.append(claimed[0].lease.as_ref(), files).await.expect("appended");
    world.finish(claimed, &Outcome::Success).await;
    std::fs::write(folder.join("changed"), "other").expect("it is written");
    let sent = world.get(&format!("/api/v1/tasks/{id}/files/page.html")).await;
    assert_eq!(sent.is(200).body, PAGE);
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename=\"page.html\""),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(sent.header(name), Some(value));
    }
    for (path, status) in [("secret", 404), ("changed", 409), ("link", 404), ("..%2Ftokens", 404)] {
        let refused = world.get(&format!("/api/v1/tasks/{id}/files/{path}")).await;
        assert_eq!(refused.status, status, "{path}: {refused:?}");
    }
}

async fn a_change_that_cannot_be_recorded_is_not_made(world: World) {
    let folder = world.place.folder();
    let (mut parts, _) = parts(Arc::clone(&world.store), folder, 901, MetricsAccess::Token);
    // The file is full, and cannot be set aside: there is a folder in the way.
    let path = folder.join("full.jsonl");
    std::fs::File::create(&path).and_then(|file| file.set_len((64 << 20) + 1)).expect("it is made");
    std::fs::create_dir_all(folder.join("full.jsonl.1/in-the-way")).expect("it is made");
    parts.audit = Audit::open(&path).expect("it opens");
    let bound = ListenAddress::Tcp(([127, 0, 0, 1], 0).into()).bind().await.expect("it listens");
    let server = Server::start(parts, bound).expect("it starts");
    let (mut client, bearer) =
        (Client::connect(&server.address().to_string()).await, format!("Bearer {FULL}"));
    let headers = [("authorization", bearer.as_str())];
    let body = format!(r#"{{"queue":"{QUEUE}","kind":"send"}}"#);
    let paused = client.ask("POST", "/api/v1/queues/mail/pause", &headers, "{}").await;
    assert_eq!((paused.status, paused.code().as_str()), (503, "audit_unavailable"));
    // A submission is no change by hand.
    client.ask("POST", "/api/v1/tasks", &headers, &body).await.is(201);
    let queue = client.ask("GET", "/api/v1/queues/mail", &headers, "").await;
    assert!(queue.is(200).json()["paused"].is_null(), "{queue:?}");
}
