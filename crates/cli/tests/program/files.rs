//! Files left by tasks, as they are shown.

use serde_json::json;

use crate::ostler::{Place, Running};

#[test]
fn files_are_shown_with_the_attempt_that_left_them() {
    let place = Place::new();
    let config =
        "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\nmax_workers = 1
        retry = { attempts = 2, base = \"10ms\" }\nfolders = \"work\"\nfiles = [\"*.pdf\"]\n";
    place.write("ostler.toml", config);
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    // The first attempt fails.
    let script =
        json!("printf abc >> a.pdf; echo x > b.txt; test -e b.pdf || { : > b.pdf; exit 1; }").to_string();
    place.done(["submit", "shell", "run", "--wait", "--key", "k", "--payload", &script]);
    let shown = place.json(["show", "key:k", "--queue", "shell"]);
    let paths = |attempt: usize| {
        let files = shown["attempts"][attempt]["files"].as_array().cloned().expect("a list");
        files.into_iter().map(|file| (file["path"].clone(), file["size"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(paths(0), [(json!("a.pdf"), json!(3)), (json!("b.pdf"), json!(0))]);
    assert_eq!(paths(1), [(json!("a.pdf"), json!(6)), (json!("b.pdf"), json!(0))]);
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(shown["attempts"][0]["files"][0]["sha256"], sum);
    let people = place.done(["show", "key:k", "--queue", "shell"]);
    assert!(people.contains("a.pdf (3B, attempt 1)") && people.contains("a.pdf (6B, attempt 2)"), "{people}");
    let logs = place.done(["logs", "key:k", "--queue", "shell"]);
    assert_eq!(logs.lines().filter(|line| line.starts_with("[file] a.pdf (")).count(), 2, "{logs}");
}
