//! Gateways of handlers: the example of runs with agents of this program and with the reference gateway, killed and resumed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ostler::agent::{AgentPolicy, Dialect, GatewayPolicy, GatewaySettings};
use ostler::{ErrorClass, EventBody, Pool, ResultError, TaskId};
use ostler_testkit::{MAX_WAIT, Twin, Voice, scratch};
use serde_json::{Value, json};

use crate::children::supervisor;

#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/gateway_runs.rs"]
mod gateway_runs;

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const GATEWAY: &str = "OSTLER_TEST_GATEWAY";
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.py");
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_claude.py");
const PROMPT: &str = "Analyze the codebase and generate a report";

/// The reference gateway.
struct Reference {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Reference {
    fn start(folder: &Path, rules: &Value) -> Self {
        let (script, log) = (folder.join("rules.json"), folder.join("gateway.log"));
        std::fs::write(&script, rules.to_string()).unwrap();
        let mut child = Command::new("python3")
            .args([REFERENCE, "--port", "0"])
            .args(["--script".as_ref(), script.as_os_str(), "--log".as_ref(), log.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address, log }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a log that have this field.
fn logged(log: &Path, field: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line.get(field).is_some()).collect()
}

fn external(address: &str) -> GatewaySettings {
    GatewayPolicy::new(address.parse().unwrap()).into()
}

/// A stand-in for claude, which keeps its conversations in this folder.
fn claude(folder: &Path) -> GatewaySettings {
    let mut policy = AgentPolicy {
        command: vec!["python3".into(), STAND_IN.into()],
        config_folders: Some(folder.join("agents")),
        ..AgentPolicy::new("runs", Dialect::Claude)
    };
    let log = folder.join("claude.log").display().to_string();
    policy.environment.set = vec![("STAND_IN_LOG".into(), log), ("ANTHROPIC_API_KEY".into(), "none".into())];
    policy.into()
}

async fn only_task(pool: &Pool) -> TaskId {
    pool.list(ostler::Filter::default(), None, 10).await.unwrap().tasks[0].id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_asks_an_agent_of_this_program_and_a_second_one_of_its_id_is_the_same() {
    let folder = scratch();
    let pool = gateway_runs::pool(folder.path(), gateway_runs::stand_in(), Some(supervisor())).await.unwrap();
    let run = || gateway_runs::run(&pool, folder.path(), PROMPT);
    let report = tokio::time::timeout(MAX_WAIT, run()).await.unwrap().unwrap();
    let expected = gateway_runs::RunReport {
        key: Some("job_abc123".into()),
        plan: "PLAN: ANALYZE THE CODEBASE AND GENERATE A REPORT".into(),
        report: "REPORT".into(),
    };
    assert_eq!(report, expected);
    assert_eq!(run().await.unwrap(), expected);
    let shown = pool.show(only_task(&pool).await).await.unwrap();
    assert_eq!((shown.attempts.len(), shown.task.folder.as_deref()), (1, folder.path().to_str()));
    assert_eq!(std::fs::read_to_string(folder.path().join("report.md")).unwrap(), "REPORT");
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_submits_the_same_run_as_a_client_and_its_id_names_it_once() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("runs.db"))
        .unwrap()
        .handle("ask", |_: Value, ctx: ostler::Context| async move {
            let run = || ctx.run(PROMPT).on("runs").folder("/srv").max_iterations(5).model("small").id("abc");
            let (first, again) = (run().await?, run().await?);
            Ok::<_, ostler::TaskError>([first.to_string(), again.to_string()])
        })
        .start()
        .await
        .unwrap();
    let asked = pool.submit("ask", &Value::Null).await.unwrap();
    let ids = tokio::time::timeout(MAX_WAIT, pool.wait_as::<[String; 2]>(asked)).await.unwrap().unwrap();
    assert_eq!(ids[0], ids[1]);
    let run = pool.show(ids[0].parse().unwrap()).await.unwrap().task;
    let own = pool.on("runs").run(PROMPT).folder("/srv").max_iterations(5).model("small").await.unwrap();
    let own = pool.show(own).await.unwrap().task;
    assert_eq!(
        (run.queue, run.kind, run.payload, run.folder),
        (own.queue, own.kind, own.payload, own.folder)
    );
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_cannot_be_reached_is_a_transient_failure() {
    let folder = scratch();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = external(&format!("http://127.0.0.1:{port}"));
    let pool = ostler::open(folder.path().join("runs.db"))
        .unwrap()
        .handle("run", |_: Value, ctx: ostler::Context| async move {
            ctx.gateway()?.create_session(ostler::SessionRequest::default()).await?;
            Ok(())
        })
        .gateway(gateway)
        .defaults(ostler::Overrides { attempts: Some(1), ..ostler::Overrides::NONE })
        .start()
        .await
        .unwrap();
    let id = pool.run(PROMPT).await.unwrap();
    let Err(ResultError::Failed { failure, .. }) = pool.wait_as::<Value>(id).await else {
        panic!("it fails")
    };
    assert_eq!(failure.class, ErrorClass::Transient);
    assert!(failure.message.contains("cannot connect to 127.0.0.1"), "{}", failure.message);
    pool.drain(MAX_WAIT).await;
}

/// A pool whose handler opens the gate of its own query when it hears these words, and returns what it heard.
async fn listening(folder: &Path, gateway: GatewaySettings, words: &'static str) -> Pool {
    let gate = folder.join("gate");
    ostler::open(folder.join("runs.db"))
        .unwrap()
        .queue("runs")
        .handle("run", move |prompt: String, ctx: ostler::Context| {
            let gate = gate.clone();
            async move {
                let session = ctx.gateway()?.create_session(ostler::SessionRequest::default()).await?;
                let mut stream = session.stream(prompt).await?;
                let mut heard = Vec::new();
                while let Some(event) = stream.next().await? {
                    if let EventBody::Message { text, .. } = event {
                        if text == words {
                            std::fs::write(&gate, "")?;
                        }
                        heard.push(text);
                    }
                }
                heard.push(stream.answer().await?.text());
                Ok(heard)
            }
        })
        .gateway(gateway)
        .supervisor(supervisor())
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_hears_an_agent_and_a_gateway_before_they_answer() {
    let (near, far) = (scratch(), scratch());
    let rules = json!([{"when": "Listen", "gate": far.path().join("gate")}]);
    let reference = Reference::start(far.path(), &rules);
    let gate = format!("[[gate {}]]", near.path().join("gate").display());
    let answer = format!("Prompts: 1, last: {gate}");
    let cases: [(&Path, GatewaySettings, &str, &'static str, &[&str]); 2] = [
        (near.path(), claude(near.path()), &gate, "It begins.", &["It begins.", "It goes on.", &answer]),
        (
            far.path(),
            external(&reference.address),
            "Listen",
            "This is query 1 of the session.",
            &["This is query 1 of the session.", "Queries: 1, last: Listen"],
        ),
    ];
    for (folder, gateway, prompt, words, heard) in cases {
        let pool = listening(folder, gateway, words).await;
        let id = pool.submit("run", &prompt).await.unwrap();
        let ended = tokio::time::timeout(MAX_WAIT, pool.wait_as::<Vec<String>>(id)).await.expect("in time");
        assert_eq!(ended.unwrap(), heard);
        pool.drain(MAX_WAIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_cancelled_in_a_stream_stops_its_query() {
    let folder = scratch();
    let rules = json!([{"when": "endless", "gate": folder.path().join("never")}]);
    let reference = Reference::start(folder.path(), &rules);
    let words = "This is query 1 of the session.";
    let pool = listening(folder.path(), external(&reference.address), words).await;
    let id = pool.submit("run", &"endless").await.unwrap();
    let until = async |is_so: &dyn Fn() -> bool| {
        let wait = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, wait).await.expect("in time");
    };
    until(&|| folder.path().join("gate").exists()).await;
    pool.cancel(id).await.unwrap();
    let ended = tokio::time::timeout(MAX_WAIT, pool.wait_as::<Value>(id)).await.expect("in time");
    assert!(matches!(ended, Err(ResultError::Cancelled(_))), "{ended:?}");
    until(&|| !logged(&reference.log, "given_up").is_empty()).await;
    assert!(has_said(&pool, id, words).await, "what was said is kept");
    pool.drain(MAX_WAIT).await;
}

#[test]
#[ignore = "the other process of the tests below"]
fn asks_until_it_is_killed() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("the test says where"));
    let address = std::env::var(GATEWAY).expect("the test says which");
    let gateway = if address == "claude" { claude(&folder) } else { external(&address) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = gateway_runs::pool(&folder, gateway, Some(supervisor())).await.unwrap();
        Voice::say("up");
        pool.wait_idle().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// Whether a message in the transcript has these words.
async fn has_said(client: &ostler::Client, id: TaskId, words: &str) -> bool {
    let transcript = client.transcript(id).await.unwrap();
    transcript
        .iter()
        .any(|event| matches!(&event.body, EventBody::Message { text, .. } if text.contains(words)))
}

/// Submits a run, kills the process that works on it when these words of its first query are stored, and works on it here.
async fn killed_and_resumed(
    folder: &Path,
    gateway: GatewaySettings,
    name: &str,
    prompt: &str,
    words: &str,
) -> Pool {
    let client = ostler::Client::open(folder.join("runs.db")).await.unwrap().on("runs");
    let id = client.run(prompt).id("job_abc123").folder(folder).await.unwrap();
    let variables = [(FOLDER, folder.as_os_str()), (GATEWAY, name.as_ref())];
    let mut twin = Twin::start("gateway::asks_until_it_is_killed", &variables);
    assert_eq!(twin.hear(), "up");
    let heard = async {
        while !has_said(&client, id, words).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, heard).await.expect("it is asked in time");
    twin.kill();
    std::fs::write(folder.join("gate"), "").unwrap();
    let pool = gateway_runs::pool(folder, gateway, Some(supervisor())).await.unwrap();
    tokio::time::timeout(MAX_WAIT, pool.wait_idle()).await.expect("it ends in time").unwrap();
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_killed_goes_on_in_its_session_of_the_external_gateway() {
    let folder = scratch();
    let rules = json!([{"when": "plan", "gate": folder.path().join("gate")}]);
    let reference = Reference::start(folder.path(), &rules);
    let gateway = external(&reference.address);
    let pool =
        killed_and_resumed(folder.path(), gateway, &reference.address, PROMPT, "This is query 1").await;
    let report: gateway_runs::RunReport = pool.wait_as(only_task(&pool).await).await.unwrap();
    assert_eq!(report.report, "Queries: 3, last: report");
    assert_eq!(logged(&reference.log, "created").len(), 1, "one session");
    let inputs: Vec<Value> =
        logged(&reference.log, "query").iter().map(|query| query["input"].clone()).collect();
    let plan = format!("plan: {PROMPT}");
    assert_eq!(inputs, [plan.as_str(), plan.as_str(), "report"]);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_killed_goes_on_in_the_conversation_of_its_agent() {
    let folder = scratch();
    let prompt = format!("[[gate {}]]", folder.path().join("gate").display());
    let log = folder.path().join("claude.log");
    let gateway = claude(folder.path());
    let pool = killed_and_resumed(folder.path(), gateway, "claude", &prompt, "It begins.").await;
    let id = only_task(&pool).await;
    let report: gateway_runs::RunReport = pool.wait_as(id).await.unwrap();
    assert_eq!(report.report, "Prompts: 3, last: report");
    let asked = logged(&log, "prompt");
    let prompts: Vec<&str> = asked.iter().filter_map(|line| line["prompt"].as_str()).collect();
    assert_eq!(prompts, [format!("plan: {prompt}").as_str(), "Go on.", "report"]);
    assert!(asked.iter().all(|line| line["session"] == asked[0]["session"]), "one conversation");
    let said = [has_said(&pool, id, "It begins.").await, has_said(&pool, id, "It goes on.").await];
    assert_eq!(said, [true, true], "both attempts are in the transcript");
    pool.drain(MAX_WAIT).await;
}
