//! Live streams: events without gap or double after any cut and at another server, one watcher for all readers, and the overview.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Outcome, TaskId};
use ostler_testkit::MAX_WAIT;
use serde_json::Value;

use crate::world::{Client, FULL, World, line, on_each_store};

on_each_store!(
    a_reader_that_is_cut_again_and_again_receives_each_event_once_in_order_at_two_servers,
    many_readers_share_one_watcher_and_without_readers_there_is_none,
    a_reader_that_comes_back_one_event_too_early_or_too_late_is_noticed,
    the_overview_sends_what_changed_and_a_reader_of_another_start_is_reset,
    an_event_of_a_task_is_reported_on_the_stream_of_the_overview,
);

fn rounds() -> u64 {
    std::env::var("OSTLER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

async fn follow(world: &World, path: &str, last: Option<&str>) -> (Client, u16) {
    let (mut client, bearer) = (world.client().await, format!("Bearer {FULL}"));
    let host = world.address.clone();
    let mut headers = vec![("host", host.as_str()), ("authorization", bearer.as_str())];
    headers.extend(last.map(|last| ("last-event-id", last)));
    client.raw("GET", path, &headers, "").await;
    let head = client.head().await;
    if head.status == 200 {
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        assert_eq!(head.header("cache-control"), Some("no-store"));
    }
    (client, head.status)
}

fn events(id: TaskId) -> String {
    format!("/api/v1/tasks/{id}/events")
}

async fn a_reader_that_is_cut_again_and_again_receives_each_event_once_in_order_at_two_servers(world: World) {
    let one = Arc::new(world);
    let two = one.beside().await;
    let count = 1_000 * rounds();
    let id = one.enqueue(1).await[0];
    let session = one.node().await;
    let claimed = one.claim(session, 1).await;
    let writing = {
        let one = Arc::clone(&one);
        tokio::spawn(async move {
            for from in (0..count).step_by(25) {
                let lines = (from..(from + 25).min(count)).map(|number| line(format!("line {}", number + 1)));
                one.store
                    .append(claimed[0].lease.as_ref(), lines.collect())
                    .await
                    .expect("they are appended");
            }
            one.finish(claimed, &Outcome::Success).await;
        })
    };
    let (mut received, mut cut, mut ended) = (Vec::new(), 0_u64, false);
    while !ended {
        let world = if cut % 2 == 0 { &*one } else { &two };
        let last = received.last().map(|number: &u64| number.to_string());
        let (mut client, status) = follow(world, &events(id), last.as_deref()).await;
        if status == 204 {
            break;
        }
        let mut rest = String::new();
        // The connection is dropped after some events, in the middle of whatever is sent.
        for _ in 0..7 + (cut * 13) % 40 {
            match client.event(&mut rest).await {
                Some(sent) if sent.name.as_deref() == Some("end") => {
                    ended = true;
                    break;
                }
                Some(sent) => {
                    let view: Value = serde_json::from_str(&sent.data).expect("JSON");
                    if view["kind"] == "log" {
                        assert_eq!(view["data"], format!("line {}", view["number"]));
                    }
                    received.push(sent.id.expect("an id").parse().expect("a number"));
                }
                None => break,
            }
        }
        cut += 1;
    }
    writing.await.expect("it is written");
    assert!(cut > 10, "it was cut {cut} times");
    assert_eq!(gap_or_double(&received, count), None);
    // A browser that has everything gets an answer that makes it stay away.
    let last = received.len().to_string();
    assert_eq!(follow(&one, &events(id), Some(&last)).await.1, 204);
    assert_eq!(follow(&one, &format!("{}?after={last}", events(id)), None).await.1, 200);
}

/// Where the numbers of events are not 1, 2, 3 and so on, up to `count` at least.
pub(crate) fn gap_or_double(received: &[u64], count: u64) -> Option<String> {
    let wrong = (1..).zip(received).find(|(must, number)| must != *number);
    let wrong = wrong.map(|(must, number)| format!("{number} in place of {must}"));
    let short = || (received.len() as u64) < count;
    wrong.or_else(|| short().then(|| format!("{} events of {count}", received.len())))
}

async fn a_reader_that_comes_back_one_event_too_early_or_too_late_is_noticed(world: World) {
    const COUNT: u64 = 60;
    let id = world.enqueue(1).await[0];
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    let lines = (1..=COUNT).map(|number| line(format!("line {number}"))).collect();
    world.store.append(claimed[0].lease.as_ref(), lines).await.expect("they are appended");
    for (shift, told) in [(0, None), (-1, Some("7 in place of 8")), (1, Some("9 in place of 8"))] {
        let mut received = Vec::new();
        while received.last().is_none_or(|last| *last < COUNT) {
            let last = received.last().map(|last: &u64| last.saturating_add_signed(shift).to_string());
            let (mut client, mut rest) =
                (follow(&world, &events(id), last.as_deref()).await.0, String::new());
            for _ in 0..7 {
                if received.last() == Some(&COUNT) {
                    break;
                }
                let sent = client.event(&mut rest).await.expect("it is sent");
                received.push(sent.id.and_then(|id| id.parse().ok()).expect("a number"));
            }
        }
        assert_eq!(gap_or_double(&received, COUNT).as_deref(), told, "{shift}");
    }
    assert_eq!(gap_or_double(&[1, 2], 3).as_deref(), Some("2 events of 3"));
}

async fn many_readers_share_one_watcher_and_without_readers_there_is_none(world: World) {
    let id = world.enqueue(1).await[0];
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    assert_eq!(world.server().task_watchers(), 0);
    let readers = 100 * rounds().min(5);
    let mut clients = Vec::new();
    for _ in 0..readers {
        clients.push((follow(&world, &events(id), None).await.0, String::new()));
    }
    let watched = async {
        while world.server().task_watchers() != 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, watched).await.expect("they share one");
    for number in 1..=3 {
        world
            .store
            .append(claimed[0].lease.as_ref(), vec![line(format!("line {number}"))])
            .await
            .expect("appended");
        for (client, rest) in &mut clients {
            let sent = client.event(rest).await.expect("it is sent");
            assert_eq!(sent.id, Some(number.to_string()));
        }
    }
    assert_eq!(world.server().task_watchers(), 1);
    drop(clients);
    // The readers are missed when something is sent, at the latest by the next ping.
    world.finish(claimed, &Outcome::Success).await;
    let forgotten = async {
        while world.server().task_watchers() != 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, forgotten).await.expect("no reader, no watcher");
}

async fn the_overview_sends_what_changed_and_a_reader_of_another_start_is_reset(world: World) {
    let (mut client, _) = follow(&world, "/api/v1/live", None).await;
    let (mut rest, mut seen) = (String::new(), BTreeMap::new());
    while seen.len() < 5 {
        let sent = client.event(&mut rest).await.expect("it is sent");
        seen.insert(sent.name.expect("a section"), (sent.id.expect("an id"), sent.data));
    }
    assert_eq!(
        seen.keys().map(String::as_str).collect::<Vec<_>>(),
        ["changes", "nodes", "queues", "stats", "workers"]
    );
    world.enqueue(5).await;
    let stats = loop {
        let sent = client.event(&mut rest).await.expect("it is sent");
        let view: Value = serde_json::from_str(&sent.data).expect("JSON");
        if sent.name.as_deref() == Some("stats") && view["tasks"]["queued"] == 5 {
            break sent;
        }
        assert_ne!(sent.name.as_deref(), Some("workers"), "what did not change is not sent");
    };
    assert_eq!(
        serde_json::from_str::<Value>(&stats.data).expect("JSON"),
        world.get("/api/v1/stats").await.json(),
        "live equals fresh"
    );
    // While the sampler runs, a reader that comes back gets only what is newer.
    let (mut back, _) = follow(&world, "/api/v1/live", stats.id.as_deref()).await;
    world.enqueue(1).await;
    let mut other = String::new();
    let next = back.event(&mut other).await.expect("it is sent");
    assert_ne!(next.name.as_deref(), Some("reset"), "{next:?}");
    let (mut foreign, _) = follow(&world, "/api/v1/live", Some("another.1-7")).await;
    let mut third = String::new();
    assert_eq!(foreign.event(&mut third).await.expect("it is sent").name.as_deref(), Some("reset"));
}

async fn an_event_of_a_task_is_reported_on_the_stream_of_the_overview(world: World) {
    world.enqueue(1).await;
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    let (mut client, _) = follow(&world, "/api/v1/live", None).await;
    let mut rest = String::new();
    let mut count = async || loop {
        let sent = client.event(&mut rest).await.expect("it is sent");
        if sent.name.as_deref() == Some("changes") {
            let view: Value = serde_json::from_str(&sent.data).expect("JSON");
            break view["count"].as_u64().expect("a number");
        }
    };
    let mut last = count().await;
    for number in 0..3 {
        let said = vec![line(format!("line {number}"))];
        world.store.append(claimed[0].lease.as_ref(), said).await.expect("it is appended");
        let next = count().await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    std::mem::forget(claimed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_closes_its_streams_and_refuses_no_request_under_way() {
    let mut world = World::new().await;
    let id = world.enqueue(1).await[0];
    let (mut client, _) = follow(&world, &events(id), None).await;
    let (mut overview, _) = follow(&world, "/api/v1/live", None).await;
    let server = world.server.take().expect("it runs");
    tokio::time::timeout(Duration::from_secs(10), server.stop(Duration::from_secs(5)))
        .await
        .expect("it stops");
    let mut rest = String::new();
    assert_eq!(client.event(&mut rest).await, None, "the stream is closed, and has no end: the task goes on");
    while overview.event(&mut rest).await.is_some() {}
    assert!(tokio::net::TcpStream::connect(&world.address).await.is_err(), "it does not listen any more");
}
