//! Servers that are killed, and connections that are cut at any byte: streams go on without a gap, and actions on many tasks do the rest.
//!
//! `OSTLER_ROUNDS=10` makes the stream 10,000 events long, `OSTLER_ROUNDS=40` the action 120,000 dead letters.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::{Outcome, TaskId};
use ostler_server::{ListenAddress, MetricsAccess, Server, ServerParts};
use ostler_testkit::{MAX_WAIT, Proxy, Twin, Voice, Weather, open_store};
use serde_json::{Value, json};

use crate::live::gap_or_double;
use crate::world::{Client, FULL, QUEUE, World, line, on_each_store, parts};

on_each_store!(
    a_stream_that_is_cut_at_any_byte_and_loses_its_server_twice_has_each_event_once_in_order,
    an_action_whose_server_is_killed_does_the_rest_at_the_next_one,
    readers_that_take_nothing_are_closed_while_the_others_receive_everything,
);

const STORE: &str = "OSTLER_TWIN_STORE";
const FOLDER: &str = "OSTLER_TWIN_FOLDER";
const NUMBER: &str = "OSTLER_TWIN_NUMBER";
/// The port of a server that a browser reaches without a proxy, and the path before its pages.
const PORT: &str = "OSTLER_TWIN_PORT";
const BASE: &str = "OSTLER_TWIN_BASE";

fn rounds() -> u64 {
    std::env::var("OSTLER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// A server in a process of its own.
pub(crate) struct ServerProcess {
    twin: Twin,
    pub(crate) address: String,
}

impl ServerProcess {
    async fn start(world: &World) -> Self {
        Self::start_with(world, None, "").await
    }

    /// One that a browser reaches without a proxy, at this port and under this path.
    pub(crate) async fn for_browser(world: &World, port: u16, base: &'static str) -> Self {
        Self::start_with(world, Some(port), base).await
    }

    async fn start_with(world: &World, port: Option<u16>, base: &'static str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(500);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let port = port.map(|port| port.to_string()).unwrap_or_default();
        let (store, folder) = (world.place.address(), world.place.folder().to_owned());
        let started = tokio::task::spawn_blocking(move || {
            let variables: [(&str, &OsStr); 5] = [
                (STORE, store.as_ref()),
                (FOLDER, folder.as_ref()),
                (NUMBER, number.as_ref()),
                (PORT, port.as_ref()),
                (BASE, base.as_ref()),
            ];
            let mut twin = Twin::start("outages::serves_until_it_is_killed", &variables);
            let address = twin.hear();
            Self { twin, address }
        });
        started.await.expect("it starts")
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    /// Kills it, as `kill -9` does.
    pub(crate) async fn kill(self) {
        tokio::task::spawn_blocking(move || self.twin.kill()).await.expect("it is dead");
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let bearer = format!("Bearer {FULL}");
        let mut client = Client::connect(&self.address).await;
        let reply = client.ask(method, path, &[("authorization", &bearer)], body).await;
        assert!(reply.status < 300, "{method} {path}: {reply:?}");
        reply.json()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another process of the tests below"]
async fn serves_until_it_is_killed() {
    let variable = |name: &str| std::env::var(name).expect("the test sets it");
    let store = open_store(&variable(STORE)).await;
    let number = variable(NUMBER).parse().expect("a number");
    let (parts, _) = parts(store, variable(FOLDER).as_ref(), number, MetricsAccess::Token);
    let port = variable(PORT).parse().ok();
    let parts = match port {
        Some(_) => ServerParts { base_path: variable(BASE), public_url: None, ..parts },
        None => parts,
    };
    let bound =
        ListenAddress::Tcp(([127, 0, 0, 1], port.unwrap_or(0)).into()).bind().await.expect("it listens");
    let server = Server::start(parts, bound).expect("it starts");
    Voice::say(&server.address().to_string());
    let _ = tokio::task::spawn_blocking(Voice::hear).await;
}

/// Reads a stream through the proxy until it is cut. Whether the task has ended.
async fn read_until_cut(
    server: &ServerProcess,
    proxy: &Proxy,
    id: TaskId,
    received: &mut Vec<u64>,
) -> std::io::Result<bool> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", proxy.port())).await?;
    let mut client = Client::over(stream, &server.address);
    let last = received.last().map_or_else(|| "0".to_owned(), u64::to_string);
    let bearer = format!("Bearer {FULL}");
    let headers =
        [("host", server.address.as_str()), ("authorization", bearer.as_str()), ("last-event-id", &last)];
    client.raw("GET", &format!("/api/v1/tasks/{id}/events"), &headers, "").await;
    match client.status().await {
        Some(204) => return Ok(true),
        Some(200) => {}
        Some(other) => panic!("{other}"),
        None => return Ok(false),
    }
    let mut rest = String::new();
    while let Some(sent) = client.event(&mut rest).await {
        if sent.name.as_deref() == Some("end") {
            return Ok(true);
        }
        let view: Value = serde_json::from_str(&sent.data).expect("what is received is whole");
        if view["kind"] == "log" {
            assert_eq!(view["data"], format!("line {}", view["number"]));
        }
        received.push(sent.id.expect("an id").parse().expect("a number"));
    }
    Ok(false)
}

async fn a_stream_that_is_cut_at_any_byte_and_loses_its_server_twice_has_each_event_once_in_order(
    world: World,
) {
    /// Cuts, at least.
    const CUTS: u64 = 100;
    /// Bytes of one event as it is sent, about.
    const EVENT_BYTES: u64 = 130;
    let (world, count) = (Arc::new(world), 1_000 * rounds());
    let id = world.enqueue(1).await[0];
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    let writing = {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            for from in (0..count).step_by(25) {
                let lines = (from..(from + 25).min(count)).map(|number| line(format!("line {}", number + 1)));
                world.store.append(claimed[0].lease.as_ref(), lines.collect()).await.expect("appended");
            }
            world.finish(claimed, &Outcome::Success).await;
        })
    };
    // On PostgreSQL the second is another node; on a file it is another process of the machine.
    let (mut server, mut next) = (ServerProcess::start(&world).await, ServerProcess::start(&world).await);
    let proxy = Proxy::before_port(server.port()).await;
    let (mut received, mut cuts, mut kills) = (Vec::new(), 0_u64, 0_u64);
    let reading = async {
        loop {
            let most = 2 * count * EVENT_BYTES / CUTS;
            // The head of the answer is a part of what is cut.
            proxy.set(Weather::CutsAfter(world.ids.below(most) as usize + 400));
            if read_until_cut(&server, &proxy, id, &mut received).await.unwrap_or(false) {
                break;
            }
            cuts += 1;
            let received = received.len() as u64;
            if (kills < 1 && received > count / 3) || (kills < 2 && received > 2 * count / 3) {
                kills += 1;
                std::mem::swap(&mut server, &mut next);
                proxy.lead_to_port(server.port());
                std::mem::replace(&mut next, ServerProcess::start(&world).await).kill().await;
            }
        }
    };
    tokio::time::timeout(MAX_WAIT * rounds() as u32, reading).await.expect("it ends");
    writing.await.expect("it is written");
    println!("{count} events, {cuts} cuts, {kills} kills");
    assert!(cuts >= CUTS && kills == 2, "{cuts} cuts, {kills} kills");
    assert_eq!(gap_or_double(&received, count), None);
}

async fn an_action_whose_server_is_killed_does_the_rest_at_the_next_one(world: World) {
    let many = 3_000 * rounds() as usize;
    world.enqueue(many).await;
    world.fail(many).await;
    let filter = json!({"queue": QUEUE});
    let preview = json!({"action": "replay", "filter": filter, "preview": true}).to_string();
    let first = ServerProcess::start(&world).await;
    let seen = first.ask("POST", "/api/v1/tasks/actions", &preview).await;
    assert_eq!(seen["tasks"], many);
    let start = json!({"action": "replay", "filter": filter, "cutoff": seen["cutoff"]}).to_string();
    let id =
        first.ask("POST", "/api/v1/tasks/actions", &start).await["id"].as_str().expect("an id").to_owned();
    let progress = format!("/api/v1/tasks/actions/{id}");
    let begun = async {
        while first.ask("GET", &progress, "").await["done"].as_u64().is_none_or(|done| done == 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, begun).await.expect("it begins");
    first.kill().await;
    let before = world.get("/api/v1/stats").await.json()["totals"]["replayed"].as_u64().expect("a number");
    let second = ServerProcess::start(&world).await;
    let again = second.ask("POST", "/api/v1/tasks/actions", &start).await;
    assert_eq!(again["id"], id.as_str(), "the same action, filter and cut-off");
    let over = async {
        loop {
            let now = second.ask("GET", &progress, "").await;
            if now["state"] != "running" {
                return now;
            }
            tokio::task::yield_now().await;
        }
    };
    // Each batch has this time.
    let ended = tokio::time::timeout(MAX_WAIT * (many / 1_000) as u32, over).await.expect("it ends");
    println!("{many} dead letters, {before} replayed before the kill");
    assert!(before > 0, "{before} before the kill");
    assert_eq!(
        (&ended["state"], ended["done"].as_u64()),
        (&json!("done"), Some(many as u64 - before)),
        "{ended}"
    );
    let stats = world.get("/api/v1/stats").await.json();
    assert_eq!(stats["totals"]["replayed"], many, "each once");
    let audit = second.ask("GET", "/api/v1/audit", "").await;
    assert_eq!(audit.as_array().map(Vec::len), Some(1), "one record of the change: {audit}");
    assert_eq!(
        (&audit[0]["action"], audit[0]["result"]["tasks"].as_u64()),
        (&json!(id), Some(many as u64)),
        "{audit}"
    );
}

/// How long a reader that takes nothing is kept, at most.
const MAX_SLOW: Duration = Duration::from_secs(30);

async fn readers_that_take_nothing_are_closed_while_the_others_receive_everything(world: World) {
    let (slow, quick) = (5 * rounds().min(10), 5 * rounds().min(90));
    let id = world.enqueue(1).await[0];
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    let path = format!("/api/v1/tasks/{id}/events");
    let bearer = format!("Bearer {FULL}");
    let headers = [("host", world.address.as_str()), ("authorization", bearer.as_str())];
    let (mut asleep, mut awake) = (Vec::new(), Vec::new());
    for number in 0..slow + quick {
        let mut client = world.client().await;
        client.raw("GET", &path, &headers, "").await;
        assert_eq!(client.status().await, Some(200));
        if number < slow { asleep.push(client) } else { awake.push((client, String::new(), 0_u64)) }
    }
    // More than the buffers of a connection hold.
    let text = "x".repeat(60_000);
    let appended = async {
        for number in 1..=200_u64 {
            let event = line(format!("{number} {text}"));
            world.store.append(claimed[0].lease.as_ref(), vec![event]).await.expect("appended");
            for (client, rest, newest) in &mut awake {
                while *newest < number {
                    let sent = client.event(rest).await.expect("it is sent");
                    assert_eq!(sent.id, Some((*newest + 1).to_string()), "no gap");
                    *newest += 1;
                }
            }
        }
    };
    tokio::time::timeout(MAX_WAIT * 4, appended).await.expect("the quick ones do not wait for the slow ones");
    let closed = async {
        while world.server().streams_open() as u64 > quick {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_SLOW, closed).await.expect("the slow ones are closed");
    assert_eq!(world.server().streams_open() as u64, quick);
    world.finish(claimed, &Outcome::Success).await;
}
