//! The same commands on a PostgreSQL server: only the URL differs.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ostler_testkit::{PrivatePostgres, ProcessSignal};
use serde_json::{Value, json};

use crate::ostler::{Place, ran};
use crate::up::{script, up};

const CONFIG: &str = "\
[lease]
ttl = \"20s\"
heartbeat = \"100ms\"
[pool.shell]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
max_workers = 2
grace = \"200ms\"
retry = { attempts = 1 }
";

fn submit(place: &Place, words: &[&str]) -> String {
    place.done(["submit"].iter().chain(words)).trim().to_owned()
}

#[test]
fn tasks_are_submitted_shown_cancelled_and_run_again() {
    let place = Place::on_server();
    place.refused(["ls"], 3, "there is no store at postgres://ostler@");
    let first = submit(&place, &["mail", "send", "--payload", "{\"to\": \"ann\"}", "--key", "k1"]);
    assert_eq!(submit(&place, &["mail", "send", "--key", "k1"]), first, "the key is taken");
    let second = submit(&place, &["mail", "send", "--in", "1h", "--priority", "5"]);
    let listed = place.json(["ls", "--queue", "mail"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    let shown = place.json(["show", "key:k1", "--queue", "mail"]);
    assert_eq!((&shown["id"], &shown["payload"]), (&first.as_str().into(), &json!({"to": "ann"})));
    place.done(["cancel", &second]);
    assert_eq!(place.json(["show", &second])["state"], "cancelled");
    place.done(["retry", &second]);
    assert_eq!(place.json(["show", &second])["state"], "queued");
    let stats = place.json(["stats"]);
    assert_eq!((&stats["submitted"], &stats["tasks"]["queued"]), (&2.into(), &2.into()));
    place.refused(["show", "key:none", "--queue", "mail"], 4, "there is no task");
}

#[test]
fn queues_schedules_and_the_care_of_the_store_are_as_on_one_machine() {
    let place = Place::on_server();
    assert_eq!(place.json(["db", "migrate", "--check"])["from"], Value::Null);
    place.refused(["stats"], 3, "there is no store");
    assert_eq!(place.json(["db", "migrate"])["from"], Value::Null);
    assert_eq!(place.json(["db", "migrate"])["pending"], false);
    let health = place.json(["db", "check"]);
    assert_eq!((&health["ok"], &health["version"]), (&true.into(), &health["newest"]));
    place.refused(["db", "backup", "copy.db"], 2, "pg_dump");
    place.done(["pause", "mail", "--reason", "holidays"]);
    submit(&place, &["mail", "send"]);
    let queue = &place.json(["queue", "show", "mail"]);
    assert!(queue.to_string().contains("holidays"), "{queue}");
    place.done(["resume", "mail"]);
    place.done(["schedule", "add", "nightly", "mail", "sweep", "--cron", "0 3 * * *"]);
    assert!(place.done(["schedule", "ls"]).contains("nightly"));
    assert_eq!(place.json(["db", "prune", "--completed-older", "1s"]), json!({"tasks": 0, "strays": 0}));
    let doctor = place.run(["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.out.contains("1 task waits, and no node is up"), "{doctor:?}");
}

#[test]
fn a_node_runs_what_is_submitted_and_a_failure_is_a_dead_letter() {
    let place = Place::on_server();
    place.write("ostler.toml", CONFIG);
    let node = up(&place, &["--name", "anna"]);
    let run = |text: &str| place.run(["submit", "shell", "run", "--payload", &script(text), "--wait"]);
    let done = run("echo hi; echo note >&2");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\"hi\"\n"), "{done:?}");
    run("exit 3").is_refused(1, "exit code 3");
    let task = &place.json(["ls", "--state", "completed"])[0];
    assert!(place.done(["logs", task["id"].as_str().expect("an id")]).contains("note"));
    let dead = &place.json(["dead", "ls"])[0];
    let id = dead["id"].as_str().expect("an id");
    assert_eq!(place.json(["dead", "show", id])["id"], id);
    place.done(["dead", "replay", id]);
    place.done([
        "submit",
        "shell",
        "run",
        "--payload",
        "\"true\"",
        "--after",
        id,
        "--if-failed",
        "run",
        "--wait",
    ]);
    assert_eq!(place.json(["show", id])["runs"], 2);
    place.done(["dead", "drop", id, "--yes"]);
    assert_eq!(place.json(["dead", "ls"]), json!([]));
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
    assert_eq!(place.json(["nodes"]), json!([]));
}

#[test]
fn a_map_runs_and_its_job_is_kept() {
    let place = Place::on_server();
    let mut lines: Vec<String> = place
        .done(["map", "-j", "2", "echo", "<{}>", ":::", "a", "b", "c"])
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, ["<a>", "<b>", "<c>"]);
    let jobs = place.json(["job", "ls"]);
    assert_eq!((&jobs[0]["state"], &jobs[0]["items"]), (&"completed".into(), &3.into()), "{jobs}");
}

#[test]
fn a_server_that_is_not_there_is_said_in_a_sentence_without_the_password() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    let place = Place::at(format!("postgres://anna:secret@127.0.0.1:{closed}/jobs"));
    for words in [&["ls"][..], &["submit", "mail", "send"], &["db", "check"], &["db", "migrate"]] {
        let ran = place.run(words);
        ran.is_refused(3, "the PostgreSQL server cannot be reached");
        assert!(!ran.err.contains("secret"), "{ran:?}");
    }
    let ran = place.run(["doctor"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("cannot be reached") && !ran.out.contains("secret"), "{ran:?}");
}

#[test]
fn a_server_that_says_nothing_is_given_up_within_ten_seconds() {
    // It accepts connections, and never answers.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = deaf.local_addr().expect("its number").port();
    let place = Place::at(format!("postgres://anna:secret@127.0.0.1:{port}/jobs"));
    place.write("ostler.toml", CONFIG);
    let began = Instant::now();
    let waits: Vec<_> = [&["up"][..], &["ls"], &["db", "check"]]
        .map(|words| place.command(words))
        .into_iter()
        .map(|mut command| std::thread::spawn(move || ran(&mut command)))
        .collect();
    for wait in waits {
        let ran = wait.join().expect("it ends");
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.err.starts_with("ostler: the ") && !ran.err.contains("secret"), "{ran:?}");
    }
    // Ten seconds, plus the time to start and stop a process on a busy machine.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn what_the_server_does_not_let_in_is_refused_with_its_reason() {
    let url = PrivatePostgres::shared().url();
    let nowhere =
        Place::at(format!("{}/nowhere", url.strip_suffix("/ostler").expect("it ends with the database")));
    nowhere.refused(["submit", "mail", "send"], 3, "\"nowhere\" does not exist");
    let place = Place::new();
    for (url, words) in [
        (format!("{url}?schema=Bad-Name"), "is not a valid schema name"),
        (format!("{url}?connections=none"), "connections must be a whole number"),
        (format!("{url}?colour=red"), "unknown option `colour`"),
    ] {
        place.refused(["ls", "--store", &url], 2, words);
    }
}

#[test]
fn the_config_may_name_the_server_and_where_its_tables_are() {
    let place = Place::new();
    let url = PrivatePostgres::shared().url();
    place.write("ostler.toml", format!("store = \"{url}?schema=of_config&connections=2\"\n"));
    let submitted = ran(place.bare().args(["submit", "mail", "send"]));
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    assert_eq!(ran(place.bare().args(["stats", "--json"])).json()["submitted"], 1);
    assert_eq!(std::fs::read_dir(place.folder()).expect("a folder").count(), 1, "no file is made");
}
