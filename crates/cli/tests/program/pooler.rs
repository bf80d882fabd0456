//! Nodes and commands behind PgBouncer in transaction mode: each transaction gets any free server connection.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, PoolMode, PrivatePgbouncer, PrivatePostgres, ProcessSignal};
use serde_json::json;

use crate::ostler::Place;
use crate::up::{script, up};

/// No notifications arrive: a node polls for work.
const CONFIG: &str = "\
[lease]
ttl = \"60s\"
heartbeat = \"100ms\"
poll = \"100ms\"
[pool.shell]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
max_workers = 2
grace = \"200ms\"
";
/// Server connections for all nodes and commands.
const CONNECTIONS: usize = 3;
/// The interval of retries while the pooler is away.
const AGAIN: Duration = Duration::from_millis(50);

#[test]
fn two_nodes_behind_a_pooler_run_what_is_submitted_and_survive_its_restart() {
    let mut pooler = PrivatePgbouncer::start(PrivatePostgres::shared(), PoolMode::Transaction, CONNECTIONS);
    let place = Place::at(format!("{}?schema=behind_a_pooler", pooler.url()));
    place.write("ostler.toml", CONFIG);
    let nodes = [up(&place, &["--name", "anna"]), up(&place, &["--name", "bert"])];
    let run = |text: &str| place.run(["submit", "shell", "run", "--payload", &script(text), "--wait"]);
    for _ in 0..3 {
        let done = run("echo hi");
        assert_eq!((done.code, done.out.as_str()), (Some(0), "\"hi\"\n"), "{done:?}");
    }
    // A task that runs while the pooler is away.
    let gate = place.folder().join("gate");
    let waits = format!("until [ -e '{}' ]; do sleep 0.05; done; echo late", gate.display());
    let task = place.done(["submit", "shell", "run", "--payload", &script(&waits)]).trim().to_owned();
    let until = Instant::now() + MAX_WAIT;
    let (_never, pause) = std::sync::mpsc::channel::<()>();
    while place.json(["show", &task])["state"] != "running" {
        assert!(Instant::now() < until, "it does not begin");
        let _ = pause.recv_timeout(AGAIN);
    }
    pooler.restart();
    std::fs::write(&gate, "").expect("the gate can be opened");
    let until = Instant::now() + MAX_WAIT;
    while place.json(["show", &task])["state"] != "completed" {
        assert!(Instant::now() < until, "it does not end");
        let _ = pause.recv_timeout(AGAIN);
    }
    let shown = place.json(["show", &task]);
    assert_eq!((&shown["runs"], &shown["output"]), (&1.into(), &"late".into()), "{shown}");
    let done = run("echo again");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\"again\"\n"), "{done:?}");
    let listed = place.json(["nodes"]);
    let names: BTreeSet<&str> =
        listed.as_array().expect("a list").iter().filter_map(|node| node["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["anna", "bert"]), "both are there");
    let stats = place.json(["stats"]);
    assert_eq!((&stats["submitted"], &stats["tasks"]["completed"]), (&5.into(), &5.into()), "{stats}");
    for node in nodes {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
    assert_eq!(place.json(["nodes"]), json!([]));
}
