//! A pool of agents over work units: four conversations at once, a submission that is refused while all workers are busy, callbacks
//! with the whole record of a unit, a unit that its agent gives up and one whose agent crashes, and the conversations read back.
//!
//! It runs without an agent: a script of some lines stands in for claude, writes what claude writes, and asks no model. For the real
//! one, install Claude Code, log in, and name the program: `agent_pool FOLDER claude`. The rest of this file stays as it is, except
//! that the real claude has no reason to fail at these prompts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ostler::agent::{AgentPolicy, Dialect, Permission};
use ostler::process::{Folders, SupervisorProgram};
use ostler::{AttemptEnded, Client, Cost, Event, EventBody, Overrides, Pool, StateName};
use serde_json::json;
use tokio::sync::mpsc;

/// The concurrency limit. It is the default of agents.
const MAX_WORKERS: usize = 4;
/// The subjects of the units. The stand-in reports a failure for one of them, and dies of another.
const SUBJECTS: [&str; 8] = ["a lamp", "a cat", "a boat", "a volcano", "a bell", "a coat", "a pen", "a drum"];
/// The prompt of a unit, as a template over its payload.
const PROMPT: &str = "Describe {{ subject }} in one sentence. Write it to answer.md.";

/// Stands in for claude: its version, its JSON lines, its tools, its costs and its failures.
const STAND_IN: &str = r#"
import json, os, signal, sys

MODEL = "claude-sonnet-4-5"
if "--version" in sys.argv:
    print("2.1.325 (Claude Code)")
    sys.exit()
session = next(word.split("=", 1)[1] for word in sys.argv if word.startswith(("--session-id=", "--resume=")))
prompt = sys.stdin.read()

def line(**fields):
    print(json.dumps({"session_id": session, **fields}), flush=True)

def say(number, block):
    usage = {"input_tokens": 100, "output_tokens": 20}
    line(type="assistant", message={"id": f"m{number}", "model": MODEL, "content": [block], "usage": usage})

def result(**fields):
    spent = {MODEL: {"inputTokens": 200, "outputTokens": 40, "costUSD": 0.0012}}
    line(type="result", modelUsage=spent, **fields)

line(type="system", subtype="init", model=MODEL, claude_code_version="2.1.325")
if "volcano" in prompt:
    os.kill(os.getpid(), signal.SIGKILL)
if "cat" in prompt:
    say(1, {"type": "text", "text": "I will not describe cats."})
    result(subtype="error_during_execution", is_error=True, errors=["the model knows no cats"])
    sys.exit(1)
subject = prompt.removeprefix("Describe ").split(" in one")[0]
answer = subject.capitalize() + " is a thing."
say(1, {"type": "tool_use", "id": "call-1", "name": "Write", "input": {"file_path": "answer.md", "content": answer}})
with open("answer.md", "w") as file:
    file.write(answer)
line(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "call-1", "content": "written"}]})
say(2, {"type": "text", "text": answer})
result(subtype="success", is_error=False, result=answer)
"#;

/// What is kept of a unit.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) state: StateName,
    /// The answer, or why there is none.
    pub(crate) answer: String,
    /// As it was sent.
    pub(crate) prompt: String,
    pub(crate) session: Option<String>,
    pub(crate) cost: Option<Cost>,
    pub(crate) took: Duration,
    /// Paths in the unit's folder.
    pub(crate) files: Vec<String>,
    /// The conversation, as one word for each part.
    pub(crate) conversation: Vec<&'static str>,
}

/// What became of the units, by their subjects.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) units: BTreeMap<String, Unit>,
    pub(crate) cost: Cost,
    /// How often a submission was refused, because all workers were busy.
    pub(crate) refused: usize,
}

/// Runs the units with this program; `None`: with the stand-in. `supervisor`: for programs whose `main` is not this one.
pub(crate) async fn run(
    folder: &Path,
    program: Option<String>,
    supervisor: Option<SupervisorProgram>,
) -> Result<Report, Box<dyn std::error::Error>> {
    let agents = AgentPolicy {
        command: match program {
            Some(program) => vec![program],
            None => stand_in(folder)?,
        },
        prompt: Some(PROMPT.to_owned()),
        permission: Permission::Edit,
        // Each unit works in a folder of its own, and these of its files are recorded.
        folders: Folders { each: Some(folder.join("units")), ..Folders::default() },
        files: vec!["*.md".to_owned()],
        config_folders: Some(folder.join("conversations")),
        ..AgentPolicy::new("units", Dialect::Claude)
    };
    // Callbacks should be quick: they pass on what they get.
    let (completed, mut ends) = mpsc::unbounded_channel();
    let failed = completed.clone();
    let path = folder.join("units.db");
    let builder = ostler::open(&path)?
        .queue("units")
        .executor(agents)
        .workers(MAX_WORKERS)
        // A unit that fails is not repeated. By default it has four attempts, each of which goes on with the conversation.
        .defaults(Overrides { attempts: Some(1), ..Overrides::NONE })
        .on_completed(move |ended| {
            let told = completed.send(ended);
            async { drop(told) }
        })
        .on_failed(move |ended| {
            let told = failed.send(ended);
            async { drop(told) }
        });
    let builder = match supervisor {
        Some(program) => builder.supervisor(program),
        None => builder,
    };
    let pool = builder.start().await?;

    let mut refused = 0;
    for subject in SUBJECTS {
        let unit = json!({ "subject": subject });
        // Nothing is stored while all workers are busy: another program could take the unit instead.
        while pool.submit_if_free("describe", &unit).await?.is_none() {
            refused += 1;
            pool.wait_for_slot().await?;
        }
    }
    pool.wait_for_completion().await;
    let (mut units, mut cost) = (BTreeMap::new(), Cost::default());
    for _ in SUBJECTS {
        let ended = ends.recv().await.ok_or("the pool has a callback for each end")?;
        let unit = unit(&pool, &ended).await?;
        cost = cost + unit.cost.unwrap_or_default();
        let payload: serde_json::Value = serde_json::from_str(&ended.task.payload)?;
        units.insert(payload["subject"].as_str().unwrap_or_default().to_owned(), unit);
    }
    pool.drain(Duration::from_secs(30)).await;

    // Everything is in the store, for any other program.
    let client = Client::open(&path).await?.on("units");
    let page = client.list(ostler::Filter::default(), None, SUBJECTS.len()).await?;
    for event in client.transcript(page.tasks[0].id).await? {
        println!("{}", shown(&event));
    }
    Ok(Report { units, cost, refused })
}

/// The record of a unit whose attempt has ended.
async fn unit(pool: &Pool, ended: &AttemptEnded) -> Result<Unit, Box<dyn std::error::Error>> {
    let attempt = ended.record.as_ref().ok_or("an agent ran")?;
    let talk = &attempt.conversation;
    let answer = ended.failure.as_ref().map(|failure| failure.message.clone());
    Ok(Unit {
        state: ended.task.state.name(),
        answer: match answer {
            Some(why) => why,
            None => serde_json::from_str(ended.task.output.as_deref().unwrap_or("\"\""))?,
        },
        prompt: talk.prompt.as_ref().map(|prompt| prompt.text.clone()).unwrap_or_default(),
        session: talk.session.clone(),
        cost: talk.cost(),
        took: attempt.took().unwrap_or_default(),
        files: ended.files.iter().map(|file| file.path.clone()).collect(),
        conversation: pool
            .transcript(ended.task.id)
            .await?
            .iter()
            .map(|event| event.body.kind().name())
            .collect(),
    })
}

/// An event of a conversation, for people.
fn shown(event: &Event) -> String {
    let what =
        if let EventBody::Session { id } = &event.body { Some(id.as_str()) } else { event.body.text() };
    format!("{}: {}", event.body.kind().name(), what.unwrap_or_default())
}

/// The command of the stand-in.
fn stand_in(folder: &Path) -> std::io::Result<Vec<String>> {
    let script = folder.join("stand_in.py");
    std::fs::write(&script, STAND_IN)?;
    Ok(vec!["python3".to_owned(), script.display().to_string()])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before anything else: the program is also the supervisor of its children.
    ostler::process::init();
    let mut args = std::env::args_os().skip(1);
    let folder = args.next().map_or_else(std::env::temp_dir, Into::into);
    let program = args.next().and_then(|program| program.into_string().ok());
    std::fs::create_dir_all(&folder)?;
    let report = tokio::runtime::Runtime::new()?.block_on(run(&folder, program, None))?;
    for (subject, unit) in &report.units {
        let Unit { state, answer, prompt, session, cost, took, files, conversation } = unit;
        let (cost, session) = (cost.unwrap_or_default(), session.as_deref().unwrap_or("none"));
        println!("{subject}: {} in {took:?} for {cost}: {answer}", state.name());
        println!("  \"{prompt}\", session {session}, files {files:?}, {}", conversation.join(" "));
    }
    println!(
        "{} units cost {}; {} submissions were refused",
        report.units.len(),
        report.cost,
        report.refused
    );
    Ok(())
}
