//! The wire format of external gateways: the conformance test that the reference gateway in `examples` passes, and what the node makes
//! of gateways that behave badly.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_agent::gateway::{ExternalGateway, GatewayPolicy};
use ostler_core::{Cost, ErrorClass, EventBody, Id, TaskId, Timestamp, WorkerId};
use ostler_exec::{
    AttemptGateway, Control, GatewayQuery, MAX_INPUT_BYTES, MAX_SESSIONS, SessionRequest, StepError,
    StepLookup, StepStore, Steps, Work, event_channel,
};
use ostler_http::{AddressRules, HeaderValue, HttpClient, HttpRequest, Proxies, header};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::bench::{NOW, SOON};

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.py");
const TOKEN: &str = "the-token-of-the-gateway";

/// The reference gateway.
struct Reference {
    child: Child,
    address: String,
    log: PathBuf,
    _folder: TempDir,
}

impl Reference {
    fn start(rules: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (script, log) = (folder.path().join("rules.json"), folder.path().join("log"));
        std::fs::write(&script, rules.to_string()).expect("the rules are written");
        let mut child = Command::new("python3")
            .args([REFERENCE, "--port", "0"])
            .args(["--script".as_ref(), script.as_os_str(), "--log".as_ref(), log.as_os_str()])
            .env("GATEWAY_TOKEN", TOKEN)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { child, address, log, _folder: folder }
    }

    fn logged(&self, field: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line.get(field).is_some()).collect()
    }

    /// Polls the log of the gateway, which is another process, until it has this field.
    async fn until_logged(&self, field: &str) {
        let logged = async {
            while self.logged(field).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, logged).await.expect(field);
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Posts JSON. Returns the status and the lines of the answer.
async fn post(address: &str, path: &str, token: &str, body: &Value) -> (u16, Vec<Value>) {
    let client = HttpClient::new(AddressRules::Any, Proxies::None);
    let bearer = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
    let uri = format!("{address}{path}").parse().expect("an address");
    let request = HttpRequest::post(uri, body.to_string()).with_header(header::AUTHORIZATION, bearer);
    let answer = client.send(request).await.expect("it answers");
    let status = answer.status.as_u16();
    let body = answer.bytes().await.expect("a body");
    let text = String::from_utf8(body.to_vec()).expect("it is text");
    (status, text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect())
}

fn query(id: &str, key: &str, input: &str) -> Value {
    json!({"query_id": id, "query_key": key, "attempt": 1, "resumed": false, "input": input, "workspace": null,
        "timeout_ms": 1000, "options": {}})
}

#[tokio::test]
async fn the_reference_gateway_conforms() {
    let reference = Reference::start(&json!([]));
    let address = reference.address.as_str();
    let user = json!({"user_id": "worker_1", "workspace": "/srv"});
    let (status, refusal) = post(address, "/sessions", "wrong", &user).await;
    assert_eq!((status, &refusal[0]["error"]["class"]), (401, &json!("queue_stop")));
    let (status, created) = post(address, "/sessions", TOKEN, &user).await;
    let id = created[0]["session_id"].as_str().expect("an id");
    assert!(status == 200 && !id.is_empty() && id.len() <= 256);
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte)), "{id}");
    let path = format!("/sessions/{id}/queries");
    let (status, lines) = post(address, &path, TOKEN, &query("q-1", "k-1", "Hello")).await;
    assert_eq!(status, 200);
    let sorts: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(sorts.last(), Some(&"result"), "the last line says how it ended: {sorts:?}");
    let known = ["text", "thinking", "status", "tool_call", "tool_result", "usage", "session", "ping"];
    assert!(sorts[..sorts.len() - 1].iter().all(|sort| known.contains(sort)), "{sorts:?}");
    let (status, _) = post(address, &path, TOKEN, &query("q-1", "k-1", "Hello")).await;
    assert_eq!(status, 409, "a query that is there already is refused");
    let (_, repeated) = post(address, &path, TOKEN, &query("q-2", "k-1", "Hello")).await;
    assert_eq!(repeated.last(), lines.last(), "an answer that an earlier attempt had is given again");
    let (_, next) = post(address, &path, TOKEN, &query("q-3", "k-2", "And now?")).await;
    assert_eq!(
        next.last().map(|line| &line["output"]),
        Some(&json!("Queries: 2, last: And now?")),
        "one session"
    );
    let (status, _) = post(address, "/sessions/none/queries", TOKEN, &query("q-4", "k-3", "Hello")).await;
    assert_eq!(status, 404, "an unknown session");
    let (status, _) = post(address, "/sessions", TOKEN, &json!({})).await;
    assert_eq!(status, 400);
}

/// Steps that outlive an attempt.
#[derive(Debug, Default)]
struct Kept {
    values: Mutex<BTreeMap<String, String>>,
    begun: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl StepStore for Kept {
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError> {
        if !self.begun.lock().expect("no panic").insert(name.to_owned()) {
            return Ok(StepLookup::Twice);
        }
        let found = self.values.lock().expect("no panic").get(name).cloned();
        Ok(found.map_or(StepLookup::New, StepLookup::Done))
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        Ok(Vec::new())
    }

    async fn previous_session(&self) -> Result<Option<String>, StepError> {
        Ok(None)
    }

    async fn save(&self, name: &str, value: &str) -> Result<(), StepError> {
        self.values.lock().expect("no panic").insert(name.to_owned(), value.to_owned());
        Ok(())
    }
}

/// An attempt that asks a gateway, and the events that it stored.
struct Asking {
    gateway: AttemptGateway,
    control: Control,
    events: watch::Receiver<Vec<EventBody>>,
}

impl Asking {
    fn attempt(address: &str, token: u64, steps: &Arc<Kept>) -> Self {
        let (sender, receiver) = event_channel();
        let (stored, events) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while receiver.recv_many(&mut batch, 100).await > 0 {
                for queued in batch.drain(..) {
                    stored.send_modify(|events| events.push(queued.body));
                    queued.receipt.stored();
                }
            }
        });
        steps.begun.lock().expect("no panic").clear();
        let control = Control { steps: Steps::kept(Arc::clone(steps) as _), ..Control::new(sender) };
        let work = Work {
            task: TaskId(Id::from_bits(7)),
            token,
            worker: WorkerId(Id::from_bits(2)),
            attempt: 1,
            queue: "runs".into(),
            kind: "run".into(),
            payload: "null".into(),
            timeout: SOON,
            grace: Duration::from_secs(1),
            folder: Some("/srv".into()),
            traceparent: None,
        };
        let policy = GatewayPolicy {
            idle_watchdog: Duration::from_millis(500),
            ..GatewayPolicy::new(address.parse().expect("an address"))
        };
        let gateway = ExternalGateway::new(policy, Some(TOKEN), || Timestamp::from_millis(NOW));
        let gateway = AttemptGateway::new(Arc::new(gateway.expect("a gateway")), &work, &control);
        Self { gateway, control, events }
    }

    /// The events, once there are this many.
    async fn events(&self, count: usize) -> Vec<EventBody> {
        let mut events = self.events.clone();
        let stored = tokio::time::timeout(SOON, events.wait_for(|events| events.len() >= count)).await;
        stored.expect("they are stored in time").expect("the attempt goes on").clone()
    }

    /// The class and the message of a query that fails.
    async fn failure(&self, input: &str) -> (ErrorClass, String) {
        let session = self.gateway.create_session(SessionRequest::default()).await;
        let ended = match session {
            Ok(session) => session.run_query(input).await.map(|_| ()),
            Err(error) => Err(error),
        };
        let failure = ended.expect_err("it fails").into_failure();
        (failure.class, failure.message)
    }
}

#[tokio::test]
async fn what_streams_in_is_stored_in_order_and_a_repeated_attempt_asks_only_what_was_not_answered() {
    let lines = json!([
        {"type": "tool_call", "call": "c", "tool": "Read", "input": {"path": "a"}},
        {"type": "tool_result", "call": "c", "output": "text"},
        {"type": "usage", "model": "m", "input_tokens": 7, "cost_usd": 0.25},
        {"type": "result", "output": {"answer": 42}},
    ]);
    let reference = Reference::start(&json!([{"when": "tools", "lines": lines}]));
    let steps = Arc::<Kept>::default();
    let first = Asking::attempt(&reference.address, 1, &steps);
    let request = SessionRequest { user_id: Some("custom".into()), workspace: None };
    let session = first.gateway.create_session(request.clone()).await.expect("a session");
    let answer =
        session.run_query(GatewayQuery::new("use tools").with("model", "m")).await.expect("an answer");
    assert_eq!((answer.output.as_str(), answer.text().as_str()), (r#"{"answer": 42}"#, r#"{"answer": 42}"#));
    let id = session.id().await;
    assert_eq!(answer.session, id);
    let spent = |event: &EventBody| {
        if let EventBody::Usage(usage) = event { usage.cost } else { None }
    };
    let events = first.events(5).await;
    assert_eq!(events[0], EventBody::Session { id: id.clone() }, "stored before the query is sent");
    assert_eq!(events[1], EventBody::Prompt { text: "use tools".into() });
    assert_eq!(events[2].kind().name(), "tool_call");
    assert_eq!(events[3].kind().name(), "tool_result");
    assert_eq!(spent(&events[4]), Cost::from_usd(0.25));

    let second = Asking::attempt(&reference.address, 2, &steps);
    let session = second.gateway.create_session(request).await.expect("a session");
    assert_eq!(session.id().await, id);
    let again =
        session.run_query(GatewayQuery::new("use tools").with("model", "m")).await.expect("an answer");
    assert_eq!(again, answer);
    assert_eq!(reference.logged("query").len(), 1, "it was answered");
    session.run_query("and then?").await.expect("an answer");
    let queries = reference.logged("query");
    assert_eq!(queries[1]["session"], id);
    assert_eq!(queries[1]["resumed"], true);
    assert_eq!(reference.logged("created").len(), 1);

    // A handler that asks something else at the same place gets no earlier answer.
    let third = Asking::attempt(&reference.address, 3, &steps);
    let session = third.gateway.create_session(SessionRequest::default()).await.expect("a session");
    session.run_query("something else").await.expect("an answer");
    assert_eq!(reference.logged("query").len(), 3);
}

#[tokio::test]
async fn a_session_that_the_gateway_has_forgotten_is_replaced_and_the_log_says_so() {
    let steps = Arc::<Kept>::default();
    let forgetful = Reference::start(&json!([]));
    let first = Asking::attempt(&forgetful.address, 1, &steps);
    let gone = first.gateway.create_session(SessionRequest::default()).await.expect("a session").id().await;
    // The step of another gateway's session is not this one's: only a restart at the same address forgets.
    let port: u16 = forgetful.address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    drop(forgetful);
    let server = Scripted::at(port, "404 Not Found\r\nContent-Length: 0\r\n", "").await;
    let second = Asking::attempt(&server.address, 2, &steps);
    let session = second.gateway.create_session(SessionRequest::default()).await.expect("it is kept");
    assert_eq!(session.id().await, gone);
    let failure =
        session.run_query("x").await.expect_err("this server knows no session at all").into_failure();
    assert_eq!(failure.class, ErrorClass::Permanent);
    let noted =
        |event: &EventBody| matches!(event, EventBody::Status { text } if text.contains("a new one begins"));
    let events = second.events(4).await;
    assert!(events.iter().any(noted), "{events:?}");
}

/// A server that gives every request the same answer, and closes the connection.
struct Scripted {
    address: String,
}

impl Scripted {
    async fn start(status: &str, body: &str) -> Self {
        Self::at(0, status, body).await
    }

    async fn at(port: u16, status: &str, body: &str) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        // A session is created, whatever follows; an empty body refuses that too.
        let (status, body) = (status.to_owned(), body.to_owned());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (status, body) = (status.clone(), body.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    // The body ends with the object in it.
                    while !request.ends_with(b"}") {
                        let mut some = [0; 1024];
                        match stream.read(&mut some).await {
                            Ok(0) | Err(_) => return,
                            Ok(count) => request.extend_from_slice(&some[..count]),
                        }
                    }
                    let is_session = request.starts_with(b"POST /sessions HTTP") && !body.is_empty();
                    let answer = if is_session {
                        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"session_id\":\"sess-1\"}".to_owned()
                    } else {
                        format!("HTTP/1.1 {status}\r\nConnection: close\r\n{body}")
                    };
                    let _ = stream.write_all(answer.as_bytes()).await;
                    if body.contains("silence") && !is_session {
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { address }
    }
}

#[tokio::test]
async fn a_gateway_that_behaves_badly_ends_in_one_classed_sentence() {
    let long = format!("\r\n{{\"type\":\"text\",\"text\":\"{}\"}}\n", "x".repeat(9 << 20));
    for (status, body, class, words) in [
        (
            "200 OK",
            "\r\n{\"type\":\"text\",\"text\":\"half\"}\n",
            ErrorClass::Transient,
            "neither a result nor an error",
        ),
        ("200 OK", "\r\nnonsense\n", ErrorClass::Transient, "cannot be read"),
        (
            "200 OK",
            "\r\n{\"type\":\"text\",\"text\":\"silence\"}\n",
            ErrorClass::Stuck,
            "took longer than 500ms",
        ),
        (
            "200 OK",
            "\r\n{\"type\":\"error\",\"class\":\"usage_limit\",\"message\":\"used up\"}",
            ErrorClass::UsageLimit,
            "used up",
        ),
        ("200 OK", long.as_str(), ErrorClass::Permanent, "the limit is 8388608"),
        ("401 Unauthorized", "\r\n", ErrorClass::QueueStop, "401"),
        ("500 Oops", "\r\n<h1>broken</h1>", ErrorClass::Transient, "<h1>broken</h1>"),
        ("503 Busy", "Retry-After: 5\r\n\r\n", ErrorClass::RateLimited, "503"),
        (
            "302 Found",
            "Location: http://169.254.169.254/\r\n\r\n",
            ErrorClass::Permanent,
            "redirects are not followed",
        ),
        ("422 No", "\r\n{\"error\":{\"message\":\"no such model\"}}", ErrorClass::Permanent, "no such model"),
    ] {
        let server = Scripted::start(status, body).await;
        let asking = Asking::attempt(&server.address, 1, &Arc::default());
        let (found, message) = asking.failure("Hello").await;
        assert!(found == class && message.contains(words), "{status}: {found:?}: {message}");
    }
}

#[tokio::test]
async fn a_cancelled_attempt_drops_its_query_and_bounds_hold() {
    let never = json!([{"when": "slow", "gate": "/nowhere/at/all"}]);
    let reference = Reference::start(&never);
    let asking = Asking::attempt(&reference.address, 1, &Arc::default());
    let session = asking.gateway.create_session(SessionRequest::default()).await.expect("a session");
    let (_, ended) = tokio::join!(
        async {
            reference.until_logged("query").await;
            asking.control.cancel.cancel();
        },
        session.run_query("slow"),
    );
    assert!(ended.is_err());
    reference.until_logged("given_up").await;

    let asking = Asking::attempt(&reference.address, 2, &Arc::default());
    let session = asking.gateway.create_session(SessionRequest::default()).await.expect("a session");
    for input in ["  ".to_owned(), "x".repeat(MAX_INPUT_BYTES + 1)] {
        let refused = session.run_query(input).await.expect_err("it is refused").into_failure();
        assert_eq!(refused.class, ErrorClass::Permanent);
    }
    for _ in 1..MAX_SESSIONS {
        asking.gateway.create_session(SessionRequest::default()).await.expect("a session");
    }
    let refused =
        asking.gateway.create_session(SessionRequest::default()).await.expect_err("it is one too many");
    assert!(refused.message().contains("at most 64 sessions"));
}
