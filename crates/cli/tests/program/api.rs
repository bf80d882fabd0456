//! The HTTP API of the real program: the same JSON as the command line, streams over a kill, and addresses that are taken.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::{Value, json};

use crate::ostler::{Place, Running, ran};
use crate::workers::until;

const TOKEN: &str = "the-token-of-this-test";
const CONFIG: &str = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n";

/// A node with an API.
struct Node {
    running: Running,
    address: String,
    id: String,
}

impl Node {
    fn up(place: &Place, words: &[&str]) -> Self {
        place.write("ostler.toml", CONFIG);
        let mut command = place.command(["up", "--listen", "127.0.0.1:0"].iter().chain(words));
        command.env("OSTLER_TOKEN", TOKEN).env("XDG_STATE_HOME", place.folder());
        Self::of(Running::start(command))
    }

    fn of(running: Running) -> Self {
        let ready: Value = serde_json::from_str(&running.line()).expect("a line of JSON");
        let address = ready["listen"].as_str().unwrap_or_default().to_owned();
        Self { running, address, id: ready["node"].as_str().expect("a node").to_owned() }
    }

    fn open(&self, method: &str, path: &str, token: &str, more: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(MAX_WAIT)).expect("a bound");
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
        };
        let bearer =
            if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{bearer}connection: close\r\n{more}{length}\r\n",
            self.address
        );
        stream.write_all(format!("{head}{body}").as_bytes()).expect("it is sent");
        BufReader::new(stream)
    }

    fn ask_as(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut answer = String::new();
        self.open(method, path, token, "", body).read_to_string(&mut answer).expect("it is answered");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }

    /// A page, as HTML.
    fn page(&self, path: &str) -> String {
        let mut answer = String::new();
        self.open("GET", path, TOKEN, "", "").read_to_string(&mut answer).expect("it is answered");
        answer
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, value) = self.ask_as(TOKEN, method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {value}");
        value
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", &format!("/api/v1/{path}"), "")
    }
}

/// A node that is up changes by itself: a worker becomes idle, a heartbeat is stored. Only an answer of the command line between two
/// equal answers of the API is compared.
fn assert_same_answer(node: &Node, place: &Place, path: &str, words: &[&str]) {
    let mut before = node.get(path);
    for _ in 0..100 {
        let here = place.json(words);
        let after = node.get(path);
        if before == after {
            assert_eq!(before, here, "{path} and ostler {words:?}");
            return;
        }
        before = after;
    }
    panic!("{path} changes all the time");
}

fn the_api_says_what_the_command_line_says(place: &Place) {
    let node = Node::up(place, &["--name", "anna"]);
    let body = json!({"queue": "shell", "kind": "run", "payload": "echo hello; echo there >&2"}).to_string();
    let id = node.ask("POST", "/api/v1/tasks", &body)["id"].as_str().expect("an id").to_owned();
    let result = node.get(&format!("tasks/{id}/result?wait=30s"));
    assert_eq!((&result["state"], &result["output"]), (&json!("completed"), &json!("hello")));
    let failing = json!({"tasks": [{"queue": "shell", "kind": "run", "payload": "exit 3", "attempts": 1, "key": "bad"}]});
    let failed = node.ask("POST", "/api/v1/tasks", &failing.to_string())["tasks"][0]["id"].clone();
    let failed = failed.as_str().expect("an id");
    assert_eq!(node.get(&format!("tasks/{failed}/result?wait=30s"))["state"], "failed");
    assert_eq!(node.get("tasks/key:bad?queue=shell")["id"], failed);
    place.done(["pause", "held", "--reason", "by a test"]);
    for (path, words) in [
        (format!("tasks/{id}"), vec!["show", id.as_str()]),
        (format!("dead/{failed}"), vec!["dead", "show", failed]),
        ("queues".to_owned(), vec!["queue", "ls"]),
        ("queues/held".to_owned(), vec!["queue", "show", "held"]),
        ("nodes".to_owned(), vec!["nodes"]),
        ("stats".to_owned(), vec!["stats"]),
        ("jobs".to_owned(), vec!["job", "ls"]),
        ("schedules".to_owned(), vec!["schedule", "ls"]),
        ("accounts".to_owned(), vec!["account", "ls"]),
        ("cost".to_owned(), vec!["cost"]),
        ("breakers".to_owned(), vec!["breaker", "ls"]),
    ] {
        assert_same_answer(&node, place, &path, &words);
    }
    assert_eq!(node.get("tasks")["tasks"], place.json(["ls"]));
    assert_eq!(node.get("dead")["letters"], place.json(["dead", "ls"]));
    let replayed = node.ask("POST", &format!("/api/v1/dead/{failed}/replay"), "{\"payload\":\"true\"}");
    assert_eq!(replayed["result"], "requeued");
    assert_eq!(node.get(&format!("tasks/{failed}/result?wait=30s"))["state"], "completed");
    // A job over the pool, by items.
    let job = json!({"pool": "shell", "kind": "run", "items": ["a", "b"], "name": "letters"}).to_string();
    let made = node.ask("POST", "/api/v1/jobs", &job);
    assert_eq!((&made["done"], &made["tasks"]), (&json!("enqueued"), &json!(2)));
    assert_same_answer(&node, place, "jobs/letters", &["job", "show", "letters"]);
    let stats = node.get("pools/shell/PoolStats");
    assert_eq!((&stats["CompletedTasks"], &stats["FailedTasks"]), (&json!(2), &json!(0)));
    assert_eq!(node.get(&format!("nodes/{}/heartbeat", node.id))["type"], "worker_heartbeat");
    assert!(node.get("doctor").is_array());
    let (status, refused) = node.ask_as("another-token-entirely", "GET", "/api/v1/stats", "");
    assert_eq!((status, &refused["error"]["code"]), (401, &json!("unauthorized")));
    node.running.signal(ProcessSignal::TERM);
    let (code, err) = node.running.end();
    assert_eq!(code, Some(0), "{err:?}");
    assert!(!err.join("\n").contains(TOKEN), "no token in the log: {err:?}");
}

#[test]
fn the_page_of_a_task_lists_the_processes_that_its_command_has_started() {
    let place = Place::new();
    let node = Node::up(&place, &[]);
    let payload = "sh -c 'sleep 601; true' & sleep 602; true";
    let body = json!({"queue": "shell", "kind": "run", "payload": payload}).to_string();
    let id = node.ask("POST", "/api/v1/tasks", &body)["id"].as_str().expect("an id").to_owned();
    // A worker is reported with the heartbeat.
    let page = until("its processes are listed", || {
        let page = node.page(&format!("/tasks/{id}"));
        (page.matches("<li>sleep<").count() == 2).then_some(page)
    });
    assert_eq!(page.matches("<li>sh<").count(), 2, "{page}");
    // The shell of the command, two that it has started, and one below.
    let list = page.split_once("<ul class=\"processes\">").expect("a list").1;
    assert_eq!(list.matches("<ul class=\"processes\">").count(), 2, "{list}");
    place.done(["cancel", &id]);
}

#[test]
fn the_api_says_what_the_command_line_says_on_a_file() {
    the_api_says_what_the_command_line_says(&Place::new());
}

#[test]
fn the_api_says_what_the_command_line_says_on_a_server() {
    the_api_says_what_the_command_line_says(&Place::on_server());
}

/// The numbers of the events that a stream sends, up to `most`, or until it ends. Whether the task has ended.
fn follow(node: &Node, id: &str, after: u64, most: usize, numbers: &mut Vec<u64>) -> bool {
    let stream = node.open(
        "GET",
        &format!("/api/v1/tasks/{id}/events"),
        TOKEN,
        &format!("last-event-id: {after}\r\n"),
        "",
    );
    for line in stream.lines().map_while(Result::ok) {
        if line == "event: end" || line.starts_with("HTTP/1.1 204") {
            return true;
        }
        if let Some(number) = line.strip_prefix("id: ") {
            numbers.push(number.parse().expect("a number"));
            if numbers.len() >= most {
                return false;
            }
        }
    }
    false
}

#[test]
fn a_stream_goes_on_at_another_node_after_the_first_was_killed() {
    let place = Place::on_server();
    let (one, two) = (Node::up(&place, &["--name", "one"]), Node::up(&place.elsewhere(), &["--name", "two"]));
    // Lines that come together are one event.
    let script = "for i in 1 2 3 4 5 6; do echo line $i >&2; sleep 0.3; done; echo done";
    let body = json!({"queue": "shell", "kind": "run", "payload": script}).to_string();
    let id = one.ask("POST", "/api/v1/tasks", &body)["id"].as_str().expect("an id").to_owned();
    assert_eq!(two.get(&format!("tasks/{id}/result?wait=30s"))["state"], "completed");
    let mut numbers = Vec::new();
    assert!(!follow(&one, &id, 0, 1, &mut numbers));
    one.running.signal(ProcessSignal::KILL);
    drop(one);
    let last = *numbers.last().expect("some were received");
    assert!(follow(&two, &id, last, usize::MAX, &mut numbers), "it ends");
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no gap and no double");
    assert!(numbers.len() > 1, "{}", numbers.len());
}

#[test]
fn an_address_that_is_taken_refuses_the_start_and_the_usual_one_is_left_out_with_the_name_of_its_node() {
    let place = Place::new();
    let node = Node::up(&place, &["--name", "anna"]);
    let taken = place.run(["up", "--listen", &node.address, "--name", "berta"]);
    taken.is_refused(2, "is taken by another process");
    place.run(["up", "--listen", "0.0.0.0:0"]).is_refused(2, "list the names that it is called by in hosts");
    place.run(["up", "--listen", "here"]).code.filter(|code| *code == 2).expect("it is refused");
    // The usual address: another process of this machine may have it already.
    let usual = |name: &str| {
        let mut command = place.command(["up", "--name", name]);
        command.env_remove("OSTLER_LISTEN").env("OSTLER_TOKEN", TOKEN);
        Node::of(Running::start(command))
    };
    let first = usual("carla");
    if first.address.is_empty() {
        first.running.says("no HTTP API: 127.0.0.1:7700 is taken by ");
        return;
    }
    assert_eq!(first.address, "127.0.0.1:7700");
    let second = usual("doris");
    assert_eq!(second.address, "", "it runs without an API");
    second.running.says("127.0.0.1:7700 is taken by node \"carla\"");
}

#[test]
fn the_tokens_of_a_file_look_or_change_and_a_unix_socket_serves_too() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;
    let place = Place::new();
    place.write("ostler.toml", CONFIG);
    let socket = place.folder().join("api.sock");
    let running = Running::start(place.command(["up", "--listen", &format!("unix:{}", socket.display())]));
    let node = Node::of(running);
    assert!(node.address.starts_with("unix:"), "{}", node.address);
    let file = place.folder().join("ostler.db.token");
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).expect("it is read");
    let token = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split(' ').nth(2).expect("a token").to_owned()
    };
    let ask = |token: &str, method: &str, path: &str| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).expect("a status")
    };
    assert_eq!(ask(&token("viewer"), "GET", "/api/v1/stats"), 200);
    assert_eq!(ask(&token("viewer"), "POST", "/api/v1/queues/q/pause"), 403);
    assert_eq!(ask(&token("owner"), "POST", "/api/v1/queues/q/pause"), 200);
    let audit = std::fs::read_to_string(place.folder().join("ostler.db.audit.jsonl")).expect("it is read");
    assert!(audit.contains("\"who\":\"owner\"") && audit.contains("queues.pause"), "{audit}");
    node.running.signal(ProcessSignal::TERM);
    assert_eq!(node.running.end().0, Some(0));
    assert!(!socket.exists(), "it takes its socket with it");
}

/// Logs in with the text of a link. The status, and the cookie.
fn log_in(node: &Node, text: &str) -> (u16, Option<String>) {
    let body = json!({ "token": text }).to_string();
    let mut answer = String::new();
    let mut stream = node.open("POST", "/login", "", "sec-fetch-site: same-origin\r\n", &body);
    stream.read_to_string(&mut answer).expect("it is answered");
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    (status, cookie.and_then(|cookie| cookie.split(';').next()).map(str::to_owned))
}

#[test]
fn a_login_link_of_the_program_works_once_and_its_text_is_written_nowhere() {
    let place = Place::new();
    let node = Node::up(&place, &["--verbose"]);
    let open = |words: &[&str]| {
        place.write("ostler.toml", format!("listen = \"{}\"\n{CONFIG}", node.address));
        let mut command = place.command([&["open", "--print"], words].concat());
        let ran = ran(command.env("OSTLER_TOKEN", TOKEN));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out.trim().to_owned()
    };
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let mut texts = vec![TOKEN.to_owned()];
    for (words, path) in [(&[][..], "/login".to_owned()), (&[id], format!("/login?to=tasks/{id}"))] {
        let link = open(words);
        // Behind the mark it is sent to no server, and is in no Referer.
        let (before, text) = link.split_once('#').expect("a text");
        assert_eq!(before, format!("http://{}{path}", node.address));
        assert!(text.len() >= 32 && !before.contains(text), "{link}");
        let (status, cookie) = log_in(&node, text);
        assert_eq!(status, 200);
        assert_eq!(log_in(&node, text), (401, None), "the second time");
        let cookie = cookie.expect("a cookie");
        let mut page = String::new();
        node.open("GET", "/", "", &format!("cookie: {cookie}\r\n"), "")
            .read_to_string(&mut page)
            .expect("it is answered");
        assert!(page.starts_with("HTTP/1.1 200") && !page.contains(text), "{page}");
        let value = cookie.split_once('=').expect("a value").1;
        texts.extend([text.to_owned(), value.to_owned()]);
    }
    // A link for a visitor who may only look.
    let link = open(&["--readonly"]);
    let (status, cookie) = log_in(&node, link.split_once('#').expect("a text").1);
    assert_eq!(status, 200);
    let cookie = format!("cookie: {}\r\nsec-fetch-site: same-origin\r\n", cookie.expect("a cookie"));
    for (method, path, status) in
        [("GET", "/api/v1/session", "200"), ("POST", "/api/v1/queues/q/pause", "403")]
    {
        let mut answer = String::new();
        node.open(method, path, "", &cookie, "").read_to_string(&mut answer).expect("it is answered");
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
    }
    let (pid, audit) = (node.running.pid(), place.folder().join("ostler.db.audit.jsonl"));
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    node.running.signal(ProcessSignal::TERM);
    let (log, out) = (node.running.errors(), node.running.end().1);
    let audit = std::fs::read_to_string(audit).unwrap_or_default();
    let written =
        format!("{}\n{}\n{}\n{audit}", String::from_utf8_lossy(&arguments), log.join("\n"), out.join("\n"));
    assert!(log.len() > 1 && written.contains("--verbose"), "{written}");
    for text in texts {
        assert!(!written.contains(&text), "{text} is in {written}");
    }
}
