//! `ostler drain`, and `ostler resume --node`, which takes it back until the node stops.

use std::path::PathBuf;
use std::time::Instant;

use ostler_testkit::{MAX_WAIT, ProcessSignal};

use crate::ostler::Place;
use crate::up::{appears, configured, script, up};

/// A task that says that it began, and waits until its gate is opened.
struct Gated {
    id: String,
    began: PathBuf,
    gate: PathBuf,
}

impl Gated {
    fn submit(place: &Place, name: &str) -> Self {
        let [began, gate] = ["began", "gate"].map(|what| place.folder().join(format!("{name}.{what}")));
        rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a fifo");
        let text = format!("echo > {}; read line < {}; echo {name}", began.display(), gate.display());
        let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]).trim().to_owned();
        Self { id, began, gate }
    }

    fn open(&self) {
        std::fs::write(&self.gate, "go\n").expect("the gate opens");
    }
}

fn until_completed(place: &Place, id: &str) {
    let until = Instant::now() + MAX_WAIT;
    while place.json(["show", id])["state"] != "completed" {
        assert!(Instant::now() < until, "{}", place.json(["show", id]));
    }
}

#[test]
fn a_drain_is_taken_back_and_the_node_claims_again() {
    let place = configured();
    let node = up(&place, &["--name", "anna"]);
    let running = Gated::submit(&place, "first");
    appears(&running.began);
    let order = place.done(["drain", "anna"]);
    assert!(order.contains("ostler resume --node"), "{order}");
    node.says("drain requested");
    let waiting = Gated::submit(&place, "second");
    let resumed = place.json(["resume", "--node", "anna"]);
    let id = place.json(["nodes"])[0]["id"].clone();
    assert_eq!(resumed, serde_json::json!({ "node": id, "result": "resumed" }));
    node.says("the drain was taken back");
    // It has a worker for it, while the first one still runs.
    appears(&waiting.began);
    for task in [&running, &waiting] {
        task.open();
        until_completed(&place, &task.id);
    }
    let again = place.done(["resume", "--node", "anna"]);
    assert!(again.contains("was not draining"), "{again}");

    // The next drain counts from its own beginning, and ends the program.
    place.done(["drain", "anna"]);
    node.says("0 tasks finished while it drained, 0 returned");
    assert_eq!(node.end().0, Some(0));
    place.refused(["resume", "--node", "anna"], 4, "no node \"anna\" is running");
}

#[test]
fn a_drain_by_a_signal_is_not_taken_back() {
    let place = configured();
    let node = up(&place, &["--name", "anna"]);
    let running = Gated::submit(&place, "first");
    appears(&running.began);
    node.signal(ProcessSignal::TERM);
    node.says("draining");
    let later = Gated::submit(&place, "second");
    place.refused(["resume", "--node", "anna"], 1, "cannot be taken back");
    running.open();
    assert_eq!(node.end().0, Some(0));
    assert_eq!(place.json(["show", &running.id])["state"], "completed");
    assert_eq!(place.json(["show", &later.id])["state"], "queued");
    assert!(!later.began.exists());
}

#[test]
fn a_signal_during_a_drain_by_command_makes_it_final() {
    let place = configured();
    let node = up(&place, &["--name", "anna"]);
    let running = Gated::submit(&place, "first");
    appears(&running.began);
    place.done(["drain", "anna"]);
    node.says("drain requested");
    node.signal(ProcessSignal::TERM);
    node.says("waiting up to 30s for 1 running task");
    node.says("waiting up to 30s for 1 running task");
    place.refused(["resume", "--node", "anna"], 1, "cannot be taken back");
    running.open();
    assert_eq!(node.end().0, Some(0));
    assert_eq!(place.json(["show", &running.id])["state"], "completed");
}

#[test]
fn resume_takes_a_queue_or_a_node() {
    let place = configured();
    place.refused(["resume"], 2, "--node");
    place.refused(["resume", "shell", "--node", "anna"], 2, "cannot be used with");
}
