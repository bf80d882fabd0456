//! Hooks of a pool: `on_failed` for tasks that failed for good, `on_completed` and `on_retry`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::{Value, json};

use crate::ostler::{Place, Running};

/// The polling interval.
const LOOK: Duration = Duration::from_millis(10);

/// A node whose pool has these lines.
fn up(place: &Place, lines: &str) -> Running {
    up_with(place, lines, &[])
}

/// The same, with these environment variables.
fn up_with(place: &Place, lines: &str, variables: &[(&str, &str)]) -> Running {
    let pool = "[lease]\npoll = \"200ms\"\n[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n\
                retry = { attempts = 1 }\n";
    place.write("ostler.toml", format!("{pool}{lines}\n"));
    let mut command = place.command(["up"]);
    command.envs(variables.iter().copied());
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

/// A task that fails for good.
fn fail(place: &Place) -> String {
    let failed =
        place.run(["submit", "shell", "run", "--payload", "\"echo why >&2; exit 9\"", "--wait", "--json"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    failed.json()["id"].as_str().expect("an id").to_owned()
}

fn ends(node: Running) {
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

/// Polls until a value is found.
fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

/// The lines of a file written by a hook, once there are this many.
fn lines(place: &Place, file: &str, many: usize) -> Vec<String> {
    let path = place.folder().join(file);
    until(file, || {
        let text = std::fs::read_to_string(&path).ok()?;
        let lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        (text.ends_with('\n') && lines.len() >= many).then_some(lines)
    })
}

/// One request to a server of the test: its head, its body as JSON, and its stream for the answer.
struct Request {
    head: String,
    body: Value,
    stream: TcpStream,
}

impl Request {
    fn take(server: &TcpListener) -> Self {
        let (stream, _) = server.accept().expect("a client connects");
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("it is text") > 0, "{head}");
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<u64>().expect("a length"))
        });
        let mut body = String::new();
        reader.take(length.expect("its length is given")).read_to_string(&mut body).expect("it is text");
        Self { head, body: serde_json::from_str(&body).expect("it is JSON"), stream }
    }

    fn answer(mut self, status: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.stream.write_all(answer.as_bytes()).expect("the answer is read");
    }
}

/// A listener on this machine, and its address.
fn server() -> (TcpListener, String) {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("http://{}/dead?key=T0K3N", server.local_addr().expect("an address"));
    (server, address)
}

fn is_the_dead_letter(told: &Value, id: &str) {
    assert_eq!(
        (&told["id"], &told["event"], &told["state"]),
        (&json!(id), &json!("failed"), &json!("failed"))
    );
    assert_eq!(
        (&told["reason"], &told["class"], &told["failures"], &told["queue"]),
        (&json!("exhausted"), &json!("transient"), &json!(1), &json!("shell"))
    );
    assert_eq!((&told["details"], &told["cut"]), (&json!("why"), &json!(false)));
    assert!(told["sequence"].is_u64() && told["first_failure"].is_string(), "{told}");
}

#[test]
fn a_command_gets_the_dead_letter_and_fields_of_it_in_its_arguments() {
    let place = Place::new();
    let script = "cat >> letters; echo >> letters; echo \"$1\" >> ids";
    let node = up(
        &place,
        &format!(
            "on_failed.command = [\"sh\", \"-c\", '{script}', \"sh\", \"{{{{ id }}}} {{{{ payload.class }}}}\"]"
        ),
    );
    let id = fail(&place);
    assert_eq!(lines(&place, "ids", 1), [format!("{id} transient")]);
    let told: Value = serde_json::from_str(&lines(&place, "letters", 1)[0]).expect("JSON");
    is_the_dead_letter(&told, &id);
    // It contains everything that `dead show` prints: a hook can be tried by hand.
    for (field, value) in place.json(["dead", "show", &id]).as_object().expect("an object") {
        assert_eq!(&told[field], value, "{field}");
    }
    place.done(["submit", "shell", "run", "--payload", "\"true\"", "--wait"]);
    ends(node);
    assert_eq!(lines(&place, "ids", 1).len(), 1, "once, and only for what failed");
}

#[test]
fn a_webhook_is_posted_and_tried_again_until_it_is_taken() {
    let place = Place::new();
    let (server, address) = server();
    let node = up(&place, &format!("on_failed = {{ webhook = \"{address}\", timeout = \"5s\" }}"));
    let id = fail(&place);
    let first = Request::take(&server);
    assert!(first.head.starts_with("POST /dead?key=T0K3N HTTP/1.1\r\n"), "{}", first.head);
    is_the_dead_letter(&first.body, &id);
    let key = |request: &Request| -> String {
        let line =
            request.head.lines().find(|line| line.to_ascii_lowercase().starts_with("idempotency-key:"));
        line.expect("it can be told from others").to_owned()
    };
    let told = key(&first);
    first.answer("503 Service Unavailable");
    let second = Request::take(&server);
    assert_eq!(key(&second), told, "the same sequence number");
    second.answer("204 No Content");
    ends(node);
    assert_eq!(place.done(["logs", &id]), "why\n[transition] failed: exhausted\n", "all is well: no warning");
}

#[test]
fn a_webhook_goes_through_the_proxy_of_the_environment() {
    let place = Place::new();
    let (proxy, address) = server();
    let lines = "on_failed.webhook = \"http://hooks.invalid/dead\"";
    let node = up_with(&place, lines, &[("http_proxy", &address)]);
    fail(&place);
    let passed_on = Request::take(&proxy);
    assert!(passed_on.head.starts_with("POST http://hooks.invalid/dead HTTP/1.1\r\n"), "{}", passed_on.head);
    passed_on.answer("204 No Content");
    ends(node);
}

#[test]
fn a_hook_that_fails_is_a_warning_on_the_task_and_follows_no_redirect() {
    let place = Place::new();
    let (server, address) = server();
    let (elsewhere, other) = self::server();
    let lines = format!(
        "[[pool.shell.on_failed]]\nwebhook = \"{address}\"\n\
         [[pool.shell.on_failed]]\ncommand = [\"sh\", \"-c\", \"echo no mail >&2; exit 3\"]\nattempts = 2\n"
    );
    let node = up(&place, &lines);
    let id = fail(&place);
    Request::take(&server).answer(&format!("307 Temporary Redirect\r\nLocation: {other}"));
    let said = node.says("on_failed.webhook");
    assert!(said.contains(&id) && said.contains("redirects are not followed"), "{said}");
    let warnings = until("the warning", || {
        let log = place.done(["logs", &id]);
        log.contains("[warning]").then_some(log)
    });
    assert!(warnings.contains("failed after 1 attempt: it answered 307"), "{warnings}");
    assert!(warnings.contains("\"sh\" failed after 2 attempts: exit code 3: no mail"), "{warnings}");
    assert!(!warnings.contains("dead?key=T0K3N failed"), "the address may have a secret in it: {warnings}");
    elsewhere.set_nonblocking(true).expect("it need not wait");
    assert!(elsewhere.accept().is_err(), "no request went there");
    ends(node);
}

#[test]
fn a_task_in_another_queue_is_enqueued_with_the_dead_letter() {
    let place = Place::new();
    let node = up(&place, "on_failed.task = { queue = \"alerts\", kind = \"dead\" }");
    let ids = [fail(&place), fail(&place)];
    let alerts = until("two alerts", || {
        let found = place.json(["ls", "--queue", "alerts"]);
        (found.as_array().map(Vec::len) == Some(2)).then_some(found)
    });
    for alert in alerts.as_array().expect("a list") {
        let alert = place.json(["show", alert["id"].as_str().expect("an id")]);
        assert_eq!((&alert["kind"], &alert["state"]), (&json!("dead"), &json!("queued")));
        let of =
            ids.iter().find(|id| alert["payload"]["id"] == id.as_str()).expect("it is of one of the two");
        is_the_dead_letter(&alert["payload"], of);
    }
    ends(node);
}

#[test]
fn what_is_too_large_for_a_payload_is_left_out_and_that_is_said() {
    let place = Place::new();
    let node = {
        let pool = "store = \"sqlite:ostler.db\"\npayload_limit = \"2KiB\"\n[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"exit 9\"]\n\
                    retry.attempts = 1\non_failed.task = { queue = \"alerts\", kind = \"dead\" }\n";
        place.write("ostler.toml", pool);
        let node = Running::start({
            let mut command = place.bare();
            command.arg("up");
            command
        });
        assert!(node.line().contains("ready"));
        node
    };
    let large = json!("x".repeat(2_000)).to_string();
    // A payload may be this deep, but not a dead letter that contains it.
    let deep = "[".repeat(120) + &"]".repeat(120);
    for payload in [&large, &deep] {
        let ran = place.run(["submit", "shell", "run", "--payload", payload, "--wait"]);
        ran.is_refused(1, "exit code 9");
    }
    let alerts = until("the alerts", || {
        let alerts = place.json(["ls", "--queue", "alerts"]).as_array().cloned().expect("a list");
        (alerts.len() == 2).then_some(alerts)
    });
    for alert in alerts {
        let alert = place.json(["show", alert["id"].as_str().expect("an id")]);
        assert_eq!((&alert["payload"]["cut"], &alert["payload"]["payload"]), (&json!(true), &Value::Null));
        assert_eq!(alert["payload"]["class"], "transient");
    }
    ends(node);
}

#[test]
fn a_hook_that_hangs_holds_up_no_work_and_no_drain() {
    let place = Place::new();
    let node = up(
        &place,
        "on_failed = { command = [\"sh\", \"-c\", \"echo > began; sleep 1000\"], timeout = \"5m\" }",
    );
    fail(&place);
    lines(&place, "began", 1);
    let done = place.run(["submit", "shell", "run", "--payload", "\"echo on\"", "--wait"]);
    assert_eq!(done.out, "\"on\"\n");
    let told = Instant::now();
    ends(node);
    assert!(told.elapsed() < Duration::from_secs(20), "the drain took {:?}", told.elapsed());
}

#[test]
fn a_node_that_is_killed_between_the_failure_and_the_hook_leaves_the_hook_to_the_next_one() {
    let place = Place::new();
    // The first hook leaves a mark and never ends; the second one sees the mark.
    let script = "if [ -e began ]; then cat > letter; echo >> letter; else echo > began; sleep 1000; fi";
    let hooks = format!(
        "on_failed = {{ command = [\"sh\", \"-c\", \"{script}\"], task = {{ queue = \"alerts\", kind = \"dead\" }}, timeout = \"5m\" }}"
    );
    let node = up(&place, &hooks);
    let id = fail(&place);
    lines(&place, "began", 1);
    until("the alert", || place.json(["ls", "--queue", "alerts"]).get(0).cloned());
    node.signal(ProcessSignal::KILL);
    assert_eq!(node.end().0, None);
    assert!(!place.folder().join("letter").exists());
    let next = up(&place, &hooks);
    let told: Value = serde_json::from_str(&lines(&place, "letter", 1)[0]).expect("JSON");
    is_the_dead_letter(&told, &id);
    assert_eq!(place.json(["show", &id])["runs"], 1, "the work itself is not repeated");
    ends(next);
    let alerts = place.json(["ls", "--queue", "alerts"]);
    assert_eq!(alerts.as_array().map(Vec::len), Some(1), "told twice, enqueued once: {alerts}");
}

#[test]
fn completed_tasks_and_retries_have_hooks_of_their_own_with_the_attempt_that_ended() {
    let place = Place::new();
    let to = |file: &str| format!("command = [\"sh\", \"-c\", \"cat >> {file}; echo >> {file}\"]");
    let hooks = format!(
        "retry = {{ attempts = 2, base = \"10ms\" }}\non_completed = {{ {} }}\non_retry = {{ {} }}\non_failed = {{ {} }}",
        to("completed"),
        to("retried"),
        to("failed")
    );
    let pool = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n";
    place.write("ostler.toml", format!("{pool}{hooks}\n"));
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let script = "\"if [ -e once ]; then echo done; else echo > once; echo why >&2; exit 9; fi\"";
    place.done(["submit", "shell", "run", "--payload", script, "--wait"]);
    let told = |file: &str| -> Value { serde_json::from_str(&lines(&place, file, 1)[0]).expect("JSON") };
    let retried = told("retried");
    assert_eq!((&retried["event"], &retried["attempt"]["number"]), (&json!("retry"), &json!(1)));
    assert_eq!(retried["attempt"]["error"]["message"], "exit code 9: why");
    assert!(
        retried["next_attempt_at"].is_string() && retried["attempt"]["duration_ms"].is_u64(),
        "{retried}"
    );
    let completed = told("completed");
    assert_eq!((&completed["event"], &completed["state"]), (&json!("completed"), &json!("completed")));
    assert_eq!((&completed["output"], &completed["attempt"]["number"]), (&json!("done"), &json!(2)));
    assert_eq!((&completed["earlier"], &completed["next_attempt_at"]), (&json!(0), &Value::Null));
    ends(node);
    assert!(!place.folder().join("failed").exists(), "nothing failed for good");
    let wants = |name: &str, what: &str| json!({"name": name, "wants": [what]});
    let expected = [
        wants("hooks", "failed"),
        wants("hooks on_completed", "completed"),
        wants("hooks on_retry", "retry"),
    ];
    assert_eq!(place.json(["queue", "show", "shell"])["subscribers"], json!(expected));
    place.done(["queue", "unsubscribe", "shell", "hooks on_retry"]);
    assert_eq!(place.json(["queue", "show", "shell"])["subscribers"], json!(expected[..2]));
    place.refused(["queue", "unsubscribe", "shell", "hooks on_retry"], 4, "has no subscriber");
}
