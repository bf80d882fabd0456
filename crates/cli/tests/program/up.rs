//! `ostler up`: a node in its own process, with children.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::Value;

use crate::ostler::{Place, Running, ran};

/// Short intervals: a node receives commands at its next renewal.
const CONFIG: &str = "\
[lease]
ttl = \"20s\"
heartbeat = \"100ms\"
[pool.shell]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
max_workers = 2
grace = \"200ms\"
";
/// The polling interval.
const LOOK: Duration = Duration::from_millis(10);

/// Starts a node on the store of the place, and waits until it is ready.
pub(crate) fn up(place: &Place, words: &[&str]) -> Running {
    let node = Running::start(place.command(["up"].iter().chain(words)));
    let ready: Value = serde_json::from_str(&node.line()).expect("a line of JSON");
    let mut fields: Vec<&str> = ready.as_object().expect("an object").keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["event", "listen", "node"]);
    assert_eq!((&ready["event"], &ready["listen"]), (&"ready".into(), &Value::Null));
    let listed = place.json(["nodes"]);
    assert!(
        listed.as_array().expect("a list").iter().any(|listed| listed["id"] == ready["node"]),
        "{listed}"
    );
    node
}

pub(crate) fn configured() -> Place {
    let place = Place::new();
    place.write("ostler.toml", CONFIG);
    place
}

/// A shell command as a payload.
pub(crate) fn script(text: &str) -> String {
    Value::from(text).to_string()
}

/// Waits for a file that a child creates.
pub(crate) fn appears(path: &Path) -> String {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    loop {
        if let Some(text) = std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')) {
            return text;
        }
        assert!(Instant::now() < until, "{} does not appear", path.display());
        let _ = nothing.recv_timeout(LOOK);
    }
}

/// Waits until a process is gone, whichever process reaps it.
pub(crate) fn is_gone(pid: &str) {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while runs() {
        assert!(Instant::now() < until, "{pid} lives on");
        let _ = nothing.recv_timeout(LOOK);
    }
}

#[test]
fn a_node_runs_commands_and_goes_when_it_is_told() {
    let place = configured();
    let node = up(&place, &["--name", "anna"]);
    let done =
        place.run(["submit", "shell", "run", "--payload", &script("echo hi; echo note >&2"), "--wait"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\"hi\"\n"), "{done:?}");
    let failed =
        place.run(["submit", "shell", "run", "--payload", &script("exit 3"), "--attempts", "1", "--wait"]);
    failed.is_refused(1, "exit code 3");
    let task = &place.json(["ls", "--state", "completed"])[0];
    assert!(place.done(["logs", task["id"].as_str().expect("an id")]).contains("note"));
    assert_eq!(place.json(["nodes"])[0]["name"], "anna");
    node.signal(ProcessSignal::TERM);
    node.says("tasks finished");
    assert_eq!(node.end().0, Some(0));
    assert_eq!(place.json(["nodes"]), serde_json::json!([]));
}

#[test]
fn an_exit_code_in_no_list_is_what_the_pool_says() {
    let place = Place::new();
    let lists = "exit_codes = { transient = [3] }\nretry.base = \"10ms\"\nunclassed = \"permanent\"\n";
    place.write("ostler.toml", format!("{CONFIG}{lists}"));
    let node = up(&place, &[]);
    for (code, runs, class) in [("9", 1, "permanent"), ("3", 4, "transient")] {
        let ended =
            place.run(["submit", "shell", "run", "--payload", &script(&format!("exit {code}")), "--wait"]);
        ended.is_refused(1, &format!("exit code {code}"));
        let task = &place.json(["dead", "ls", "--class", class])[0];
        assert_eq!((&task["runs"], &task["error"]["class"]), (&runs.into(), &class.into()));
    }
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn what_runs_may_end_before_the_node_goes() {
    let place = configured();
    let node = up(&place, &[]);
    let began = place.folder().join("began");
    let gate = place.folder().join("gate");
    let text = format!("echo > {}; read line < {}; echo done", began.display(), gate.display());
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]);
    appears(&began);
    node.signal(ProcessSignal::INT);
    node.says("draining");
    std::fs::write(&gate, "go\n").expect("the gate opens");
    assert_eq!(node.end().0, Some(0));
    let task = place.json(["show", id.trim()]);
    assert_eq!(
        (&task["state"], &task["output"], &task["runs"]),
        (&"completed".into(), &"done".into(), &1.into())
    );
}

#[test]
fn what_does_not_end_in_time_is_handed_back() {
    let place = Place::new();
    place.write("ostler.toml", format!("shutdown_timeout = \"50ms\"\n{CONFIG}"));
    let node = up(&place, &[]);
    let began = place.folder().join("began");
    let id = place.done([
        "submit",
        "shell",
        "run",
        "--payload",
        &script(&format!("echo $$ > {}; exec sleep 1000", began.display())),
    ]);
    let pid = appears(&began);
    node.signal(ProcessSignal::TERM);
    node.says("1 returned to the queue");
    node.says("some tasks did not finish within the shutdown_timeout of 50ms");
    assert_eq!(node.end().0, Some(1));
    is_gone(&pid);
    let task = place.json(["show", id.trim()]);
    assert_eq!(
        (&task["state"], &task["waits_for"], &task["failures"]),
        (&"queued".into(), &"handed_back".into(), &0.into())
    );
}

/// A task that writes its pid to a file, and then runs for a long time.
fn long_task(place: &Place) -> (String, String) {
    let began = place.folder().join("began");
    let text = script(&format!("echo $$ > {}; exec sleep 1000", began.display()));
    let id = place.done(["submit", "shell", "run", "--payload", &text]);
    let pid = appears(&began);
    (id.trim().to_owned(), pid)
}

/// Asserts that the task was returned to the queue by its node, and that no node died.
fn is_handed_back(place: &Place, id: &str) {
    let task = place.json(["show", id]);
    assert_eq!(
        (&task["state"], &task["waits_for"], &task["failures"], &task["crashes"]),
        (&"queued".into(), &"handed_back".into(), &0.into(), &0.into()),
        "{task}"
    );
    assert_eq!(task["attempts"][0]["state"], "handed_back", "{task}");
}

#[test]
fn told_twice_it_goes_at_once_and_hands_its_work_back() {
    let place = Place::new();
    // With a grace of an hour: a child that ends in time was killed without grace.
    place.write("ostler.toml", CONFIG.replace("200ms", "1h"));
    let node = up(&place, &[]);
    let (id, pid) = long_task(&place);
    node.signal(ProcessSignal::TERM);
    node.says("draining");
    node.signal(ProcessSignal::TERM);
    node.says("second signal");
    node.says("1 returned to the queue");
    assert_eq!(node.end().0, Some(130));
    is_gone(&pid);
    is_handed_back(&place, &id);
    assert_eq!(place.json(["nodes"]), serde_json::json!([]), "it has left");
}

#[test]
fn told_twice_it_goes_also_when_the_store_does_not_answer_and_no_death_is_counted() {
    let place = configured();
    let node = up(&place, &[]);
    let (id, pid) = long_task(&place);
    // Another process holds the write lock, and never releases it.
    let lock = std::fs::File::open(place.folder().join("ostler.db.nodes/main.lock")).expect("the lock");
    lock.lock().expect("it is not held for long");
    node.signal(ProcessSignal::TERM);
    node.says("draining");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(130));
    is_gone(&pid);
    lock.unlock().expect("it is ours");
    assert_eq!(place.json(["show", &id])["state"], "running", "no process could write");
    // The next process finds that the node has exited deliberately.
    place.done(["pause", "shell"]);
    let next = up(&place, &[]);
    let until = Instant::now() + MAX_WAIT;
    while place.json(["show", &id])["state"] != "queued" {
        assert!(Instant::now() < until, "no node looks after it");
    }
    is_handed_back(&place, &id);
    next.signal(ProcessSignal::TERM);
    assert_eq!(next.end().0, Some(0));
}

#[test]
fn told_three_times_it_waits_for_nothing() {
    let place = configured();
    let node = up(&place, &[]);
    let (_, pid) = long_task(&place);
    let lock = std::fs::File::open(place.folder().join("ostler.db.nodes/main.lock")).expect("the lock");
    lock.lock().expect("it is not held for long");
    node.signal(ProcessSignal::TERM);
    node.says("draining");
    node.signal(ProcessSignal::TERM);
    node.says("second signal");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(130));
    is_gone(&pid);
}

#[test]
fn a_killed_node_leaves_no_child_and_its_task_runs_elsewhere() {
    let place = configured();
    let node = up(&place, &[]);
    let (began, twice) = (place.folder().join("began"), place.folder().join("twice"));
    // The first run leaves a mark and hangs; the second one sees the mark.
    let text = format!(
        "if [ -e {0} ]; then echo second; else echo $$ > {0}; exec sleep 1000; fi; echo > {1}",
        began.display(),
        twice.display()
    );
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]);
    let pid = appears(&began);
    node.signal(ProcessSignal::KILL);
    assert_eq!(node.end().0, None);
    is_gone(&pid);
    let next = up(&place, &[]);
    appears(&twice);
    next.signal(ProcessSignal::TERM);
    assert_eq!(next.end().0, Some(0));
    let task = place.json(["show", id.trim()]);
    assert_eq!(
        (&task["state"], &task["runs"], &task["failures"]),
        (&"completed".into(), &2.into(), &0.into())
    );
    assert_eq!(task["attempts"][0]["state"], "node_died");
}

/// Suspends a node, but not while it holds the write lock, where it would block every process.
fn stop(node: &Running, place: &Place) {
    let until = Instant::now() + MAX_WAIT;
    loop {
        node.signal(ProcessSignal::STOP);
        // Twice: the first one may already have the lock, with the suspended process next in line.
        let tried = [(); 2].map(|()| {
            let mut command = std::process::Command::new("timeout");
            command.args(["3", env!("CARGO_BIN_EXE_ostler"), "submit", "unserved", "x", "--store"]);
            ran(command.arg(place.store())).code
        });
        if tried == [Some(0); 2] {
            return;
        }
        node.signal(ProcessSignal::CONT);
        assert!(Instant::now() < until, "it is always in its turn");
    }
}

#[test]
fn a_node_that_was_stopped_too_long_ends_its_children_at_once_and_comes_back_by_itself() {
    let place = Place::new();
    // With a grace of an hour: a child that ends in time was killed without grace.
    let config = CONFIG.replace("20s", "2s").replace("200ms", "1h");
    place.write("ostler.toml", config);
    let anna = up(&place, &["--name", "anna"]);
    let began = place.folder().join("began");
    let text = format!(
        "if [ -e {0} ]; then echo second; else trap '' TERM; echo $$ > {0}; while :; do sleep 1; done; fi",
        began.display()
    );
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]);
    let pid = appears(&began);
    stop(&anna, &place);
    let bert = up(&place, &["--name", "bert"]);
    let waited = Instant::now() + MAX_WAIT;
    while place.json(["show", id.trim()])["state"] != "completed" {
        assert!(Instant::now() < waited, "no node takes it over");
    }
    let before = place.json(["show", id.trim()]);
    let woken = Instant::now();
    anna.signal(ProcessSignal::CONT);
    is_gone(&pid);
    println!("the child of a node that was stopped is gone {} ms after it woke", woken.elapsed().as_millis());
    anna.says("rejoined as ");
    assert_eq!(place.json(["show", id.trim()]), before, "it changed nothing after that");
    for node in [anna, bert] {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}

#[test]
fn a_node_whose_supervisor_is_killed_says_so_and_goes() {
    let place = configured();
    let node = up(&place, &[]);
    let pid_file = place.folder().join("pid");
    let text = format!("echo $PPID > {}; sleep 1000", pid_file.display());
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]);
    let supervisor = appears(&pid_file);
    let pid = rustix::process::Pid::from_raw(supervisor.trim().parse().expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the supervisor is killed");
    node.says("the supervisor process was killed");
    assert_eq!(node.end().0, Some(1));
    assert_eq!(place.json(["show", id.trim()])["state"], "queued");
}

#[test]
fn a_drain_can_be_ordered_from_elsewhere() {
    let place = configured();
    let (anna, bert) = (up(&place, &["--name", "anna"]), up(&place, &["--name", "bert"]));
    place.refused(["drain", "carl"], 4, "no node \"carl\" is running");
    let order = place.json(["drain", "anna"]);
    assert_eq!(order["command"], "drain");
    anna.says("drain requested");
    assert_eq!(anna.end().0, Some(0));
    assert_eq!(place.json(["nodes"])[0]["name"], "bert");
    bert.signal(ProcessSignal::TERM);
    assert_eq!(bert.end().0, Some(0));
}

#[test]
fn a_pool_is_resized_wherever_it_runs() {
    let place = configured();
    let nodes = [up(&place, &["--name", "anna"]), up(&place, &["--name", "bert"])];
    let told = place.json(["resize", "shell", "3", "3"]);
    assert_eq!(told.as_array().map(Vec::len), Some(2), "{told}");
    let until = Instant::now() + MAX_WAIT;
    while place.json(["workers"]).as_array().map(Vec::len) != Some(6) {
        assert!(Instant::now() < until, "{}", place.json(["workers"]));
    }
    assert!(place.done(["resize", "shell", "2"]).contains("shell will have 2 workers"));
    place.refused(["resize", "shell", "0"], 2, "MAX");
    place.refused(["resize", "shell", "4", "3"], 2, "MIN (4) must not exceed MAX (3)");
    place.refused(["resize", "shell", "0", "0"], 2, "MAX");
    place.refused(["resize", "nothing", "1", "2"], 4, "no running node has a pool \"nothing\"");
    for node in nodes {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}

#[test]
fn two_nodes_of_one_name_are_told_apart_by_id() {
    let place = configured();
    let (one, two) = (up(&place, &["--name", "twin"]), up(&place, &["--name", "twin"]));
    place.refused(["drain", "twin"], 2, "2 nodes are named \"twin\"");
    for node in place.json(["nodes"]).as_array().expect("a list") {
        place.done(["drain", node["id"].as_str().expect("an id")]);
    }
    assert_eq!((one.end().0, two.end().0), (Some(0), Some(0)));
}

#[test]
fn other_settings_of_one_queue_are_refused_unless_taken_over() {
    let place = configured();
    let first = up(&place, &[]);
    place.write("other.toml", format!("{CONFIG}queue_limit = 5\n"));
    place.refused(["up", "--config", "other.toml"], 2, "--take-over");
    let second = up(&place, &["--config", "other.toml", "--take-over"]);
    for node in [first, second] {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}

#[test]
fn without_a_config_or_a_pool_there_is_nothing_to_run() {
    let place = Place::new();
    place.refused(["up"], 2, "no ostler.toml here");
    place.refused(["up", "--config", "x.toml"], 2, "no such file");
    place.write("ostler.toml", "name = \"anna\"\n");
    place.refused(["up"], 2, "no pools");
    place.write("ostler.toml", "[pool.x]\nexecutor = \"command\"\ncommand = []\n");
    place.refused(["up"], 2, "ostler.toml:");
    assert!(!place.store().exists());
}

#[test]
fn a_store_that_is_refused_is_not_waited_for() {
    let place = configured();
    std::fs::create_dir(place.folder().join("sub")).expect("a folder");
    ran(place.bare().args(["up", "--store", "sub"])).is_refused(3, "is a folder");
}

#[test]
fn a_store_that_is_away_is_waited_for() {
    let place = configured();
    let node = Running::start({
        let mut command = place.bare();
        command.args(["up", "--store", "away/ostler.db"]);
        command
    });
    node.says("trying for 10 s");
    std::fs::create_dir(place.folder().join("away")).expect("it comes back");
    assert!(node.line().contains("ready"));
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_store_that_stays_away_is_given_up() {
    let place = configured();
    let began = Instant::now();
    let gone = ran(place.bare().args(["up", "--store", "away/ostler.db"]));
    assert_eq!(gone.code, Some(3), "{gone:?}");
    let [waits, gives_up] = gone.err.lines().collect::<Vec<_>>()[..] else { panic!("{gone:?}") };
    assert!(waits.contains(" WARN ") && waits.contains("trying for 10 s"), "{gone:?}");
    assert!(gives_up.starts_with("ostler: ") && gives_up.contains("away"), "{gone:?}");
    assert!(began.elapsed() >= Duration::from_secs(9), "it gave up after {:?}", began.elapsed());
}
