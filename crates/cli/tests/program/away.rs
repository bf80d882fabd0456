//! Nodes whose PostgreSQL server goes away: it restarts, is gone for long, or does not answer. And nodes that die.

use std::time::{Duration, Instant};

use ostler_testkit::{Disk, MAX_WAIT, PrivatePostgres, ProcessSignal, Proxy, Weather};
use serde_json::json;

use crate::ostler::{Place, Running};
use crate::shared::Shared;
use crate::up::{appears, is_gone, script, up};

/// A worker that obeys its payload.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");
/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// A pool of commands, with this lease.
fn commands(lease: &str) -> String {
    format!(
        "lease = {{ {lease}, poll = \"200ms\" }}\n[pool.shell]\nexecutor = \"command\"\n\
         command = [\"sh\", \"-c\", \"{{{{ payload }}}}\"]\nmax_workers = 2\ngrace = \"200ms\"\n"
    )
}

/// Polls until it holds.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    while !so() {
        assert!(Instant::now() < until, "not in time: {what}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

fn submit(place: &Place, text: &str) -> String {
    place.done(["submit", "shell", "run", "--payload", &script(text)]).trim().to_owned()
}

#[test]
fn what_ended_while_the_server_was_gone_is_kept_and_written_when_it_is_back() {
    let mut server = PrivatePostgres::start(Disk::Unsynced);
    let place = Place::at(server.url());
    place.write("ostler.toml", commands("ttl = \"8s\", heartbeat = \"500ms\""));
    let node = up(&place, &[]);
    let at = |name: &str| place.folder().join(name);
    let (began, gate, ended) = (at("began"), at("gate"), at("ended"));
    let text = format!(
        "echo > {}; while [ ! -e {} ]; do sleep 0.02; done; echo >> {}; echo done",
        began.display(),
        gate.display(),
        ended.display()
    );
    let id = submit(&place, &text);
    appears(&began);
    server.stop();
    std::fs::write(&gate, "").expect("the gate opens");
    appears(&ended);
    node.says("could not renew its leases");
    server.start_again();
    node.says("rejoined as");
    until("its result is written", || place.json(["show", &id])["state"] == "completed");
    let task = place.json(["show", &id]);
    assert_eq!((&task["output"], &task["runs"]), (&"done".into(), &1.into()), "{task}");
    let again = place.run(["submit", "shell", "run", "--payload", "\"echo again\"", "--wait"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "\"again\"\n"), "the pool works again: {again:?}");
    assert_eq!(std::fs::read_to_string(&ended).expect("it is there"), "\n", "it ran once");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_server_that_falls_silent_costs_the_work_and_not_the_node() {
    let network = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let network = network.expect("a runtime");
    let server = PrivatePostgres::start(Disk::Unsynced);
    let proxy = network.block_on(Proxy::start(&server));
    let (near, far) = (Place::at(server.url()), Place::at(proxy.url()));
    far.write("ostler.toml", commands("ttl = \"2s\", heartbeat = \"500ms\""));
    let node = up(&far, &[]);
    let (first, second) = (far.folder().join("first"), far.folder().join("second"));
    // The first run creates one file, and another run the other.
    let text =
        format!("f={}; [ -e $f ] && f={}; echo $$ > $f; exec sleep 600", first.display(), second.display());
    let id = submit(&near, &text);
    let pid = appears(&first);
    proxy.set(Weather::Silent);
    node.says("could not renew its leases");
    is_gone(&pid);
    proxy.set(Weather::Fair);
    node.says("rejoined as");
    appears(&second);
    near.done(["cancel", &id]);
    until("it is cancelled", || near.json(["show", &id])["state"] == "cancelled");
    assert_eq!(near.json(["show", &id])["runs"], 2);
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_restart_of_the_server_under_load_moves_nobodys_work() {
    let mut server = PrivatePostgres::start(Disk::Unsynced);
    let place = Place::at(server.url());
    let there = place.elsewhere();
    let config = commands("ttl = \"30s\", heartbeat = \"1s\"");
    let nodes = [&place, &there].map(|place| {
        place.write("ostler.toml", &config);
        up(place, &[])
    });
    let gate = place.folder().join("gate");
    let began = place.folder().join("began");
    let long = format!("echo > {}; while [ ! -e {} ]; do sleep 0.02; done", began.display(), gate.display());
    let long = submit(&place, &long);
    appears(&began);
    let store = Shared::open(&server.url());
    store.submit("shell", "\"true\"", 300);
    for done in [20, 80] {
        until("work goes on", || store.counts().completed >= done);
        server.stop();
        server.start_again();
    }
    until("the rest is done", || store.counts().completed == 300);
    std::fs::write(&gate, "").expect("the gate opens");
    until("what ran through it all is done", || store.counts().completed == 301);
    assert_eq!(store.each_was_done_once(), 0, "no task was given to another node");
    assert_eq!(place.json(["show", &long])["attempts"].as_array().map(Vec::len), Some(1));
    for node in nodes {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}

#[test]
fn two_nodes_share_a_queue_and_what_a_killed_one_had_is_done_by_the_other() {
    const TASKS: usize = 600;
    let place = Place::on_server();
    // The lease is the default minute: a death is noticed much sooner.
    let config = format!(
        "[pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"{WORKER}\", \"well\"]\nmin_workers = 2\nmax_workers = 2\n"
    );
    let places = [place.elsewhere(), place.elsewhere()];
    let [lives, dies] = places.each_ref().map(|place| {
        place.write("ostler.toml", &config);
        Running::start(place.command(["up"]))
    });
    assert!(lives.line().contains("ready") && dies.line().contains("ready"));
    let store = Shared::open(place.url());
    store.submit("docs", &json!({"do": "echo", "how": 1}).to_string(), TASKS);
    until("they are in the middle of it", || store.counts().completed >= TASKS as u64 / 4);
    dies.signal(ProcessSignal::KILL);
    let killed = Instant::now();
    let held = store.counts();
    assert!(held.completed < TASKS as u64, "it is killed in the middle: {held:?}");
    until("all are done", || store.counts().completed == TASKS as u64);
    let took = killed.elapsed();
    let moved = store.each_was_done_once();
    eprintln!("all were done {took:?} after the kill; {moved} tasks had begun on the node that died");
    lives.signal(ProcessSignal::TERM);
    assert_eq!(lives.end().0, Some(0));
}
