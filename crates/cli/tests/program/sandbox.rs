//! Pools in a sandbox, with the real program.

use serde_json::json;

use crate::ostler::{Place, Running};

/// The system's own: one in a home folder is not visible in a sandbox.
const PYTHON: &str = "/usr/bin/python3";
/// A worker that obeys its payload.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");

/// A place whose store is in its own folder, and whose node has a pool "shell" with these lines.
fn place(lines: &str) -> Place {
    with_pool(Place::new(), lines)
}

fn with_pool(place: Place, lines: &str) -> Place {
    let config = format!(
        "[lease]\npoll = \"200ms\"\n[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{{{ payload }}}}\"]
         max_workers = 2\nretry.attempts = 1\n{lines}\n"
    );
    place.write("ostler.toml", config);
    place
}

fn up(place: &Place) -> Running {
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    node
}

/// The result of a script.
fn run(place: &Place, script: &str) -> String {
    let payload = json!(script).to_string();
    place.done(["submit", "shell", "run", "--wait", "--payload", &payload]).trim().to_owned()
}

#[test]
fn one_line_keeps_tasks_from_the_network_the_store_and_each_other() {
    let place = place("sandbox = true\nfolders = \"work\"");
    place.write("other", "other");
    let node = up(&place);
    let here = place.folder().display();
    let script = format!(
        "echo mine > file; cat file; cat {here}/other {here}/ostler.db 2>/dev/null; ls {here} 2>/dev/null; \
         (echo x > {here}/new) 2>/dev/null; \
         {PYTHON} -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))' 2>&1 | tail -n 1"
    );
    let said = run(&place, &script);
    assert_eq!(said, "\"mine\\nPermissionError: [Errno 13] Permission denied\"");
    assert!(!place.folder().join("new").exists());
    let folders: Vec<_> =
        std::fs::read_dir(place.folder().join("work/shell")).expect("it was made").flatten().collect();
    assert_eq!(folders.len(), 1);
    let written = std::fs::read_to_string(folders[0].path().join("file"));
    assert_eq!(written.ok().as_deref(), Some("mine\n"), "a task has a folder of its own, which stays");
    let other = run(&place, &format!("ls {} 2>&1 | grep -c denied", folders[0].path().display()));
    assert_eq!(other, "1", "and another task does not see it");
    node.signal(ostler_testkit::ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_sandbox_holds_where_the_store_is_no_file() {
    let place = with_pool(Place::on_server(), "sandbox = true\nfolders = \"work\"");
    let _node = up(&place);
    let said = run(&place, "cat ../../../ostler.toml 2>/dev/null; echo x > file; cat file");
    assert_eq!(said, "\"x\"");
}

#[test]
fn what_would_give_the_store_away_keeps_the_node_from_starting_and_makes_no_store() {
    for lines in [
        "sandbox = { read = [\".\"] }",
        "sandbox = { write = [\"/\"] }",
        "sandbox = { read = [\"ostler.db\"] }",
    ] {
        let place = place(lines);
        place.refused(["up"], 2, "pool.shell.sandbox: ");
        let said = place.run(["up"]).err;
        assert!(
            said.contains("which no child in a sandbox may reach") || said.contains("does not exist"),
            "{said}"
        );
        assert!(!place.store().exists());
    }
    let nowhere = place("sandbox = { read = [\"/no/such\"] }");
    nowhere.refused(["up"], 2, "pool.shell.sandbox: \"/no/such\" does not exist");
}

#[test]
fn what_the_machine_cannot_enforce_keeps_the_node_from_starting() {
    let place = place("sandbox = { memory = \"64MiB\" }");
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("a file");
    place.write("ostler.toml", format!("containment = \"group\"\n{config}"));
    place.refused(["up"], 2, "pool.shell.sandbox: this machine cannot enforce it: memory and processes are limited by control groups");
}

#[test]
fn a_task_whose_folder_holds_the_store_fails_with_a_sentence() {
    let place = place("sandbox = true");
    let _node = up(&place);
    let here = place.folder().to_str().expect("text").to_owned();
    let ran = place.run(["submit", "shell", "run", "--wait", "--payload", "\"true\"", "--folder", &here]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("the store, which no child in a sandbox may reach"), "{ran:?}");
}

#[test]
fn long_lived_workers_take_tasks_in_a_sandbox() {
    let place = Place::new();
    let config = format!(
        "[pool.docs]\nexecutor = \"process\"\ncommand = [\"{PYTHON}\", \"{WORKER}\", \"well\"]\nmin_workers = 1
         max_workers = 1\nretry.attempts = 1\nsandbox = true\nfolders = \"work\"\n"
    );
    place.write("ostler.toml", config);
    let _node = up(&place);
    let closed = json!({"do": "write", "how": {"path": place.folder().join("new"), "text": "x"}}).to_string();
    let ran = place.run(["submit", "docs", "k", "--wait", "--payload", &closed]);
    assert!(ran.code == Some(1) && ran.err.contains("Permission denied"), "{ran:?}");
    let frame = json!({"do": "frame", "how": null}).to_string();
    let frame = place.done(["submit", "docs", "k", "--wait", "--payload", &frame]);
    assert!(frame.contains(&place.folder().join("work/docs/").display().to_string()), "{frame}");
}

#[test]
fn pools_do_not_reach_the_folders_of_each_other_and_the_store_stays_as_it_is() {
    let place = place("sandbox = true\nfolders = \"work\"");
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("a file");
    let docs = format!(
        "[pool.docs]\nexecutor = \"process\"\ncommand = [\"{PYTHON}\", \"{WORKER}\", \"well\"]\nmin_workers = 1
         max_workers = 1\nretry.attempts = 1\nsandbox = true\nfolders = \"work\"\n"
    );
    place.write("ostler.toml", format!("{config}{docs}"));
    let node = up(&place);
    let script = format!(
        "chmod 444 {store}; chmod 777 {here}; touch -d @1 {store}; prlimit --pid $PPID --cpu=1; echo x > file; pwd -P",
        store = place.store().display(),
        here = place.folder().display(),
    );
    let own = run(&place, &script);
    assert!(own.contains("work/shell/"), "{own}");
    // The store and the node are unaffected.
    for path in [own.trim_matches('"'), &place.folder().join("work/shell").display().to_string()] {
        let payload = json!({"do": "write", "how": {"path": format!("{path}/x"), "text": "x"}}).to_string();
        let ran = place.run(["submit", "docs", "k", "--wait", "--payload", &payload]);
        assert!(ran.code == Some(1) && ran.err.contains("ermission denied"), "{ran:?}");
    }
    node.signal(ostler_testkit::ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn what_a_sandbox_leaves_open_is_told_by_the_check() {
    let place = place("sandbox = { network = \"unix\" }");
    let checked = place.run(["config", "--check"]);
    assert!(checked.code == Some(0) && checked.out.contains("OK (pools: shell)"), "{checked:?}");
    assert!(checked.err.contains("warning: ostler.toml: pool.shell.sandbox.network"), "{checked:?}");
    let warnings = place.json(["config", "--check"])["warnings"].clone();
    assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
}
