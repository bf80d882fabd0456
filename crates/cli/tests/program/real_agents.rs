//! The real claude and codex, from the npm registry, with a scripted LLM server on loopback: what they ask of it is in its log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::ostler::{Place, Running};
use crate::workers::until;

/// The versions whose lines were recorded.
const PACKAGES: [&str; 2] = ["@anthropic-ai/claude-code@2.1.325", "@openai/codex@0.166.0"];
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/tools/scripted_llm.py");
/// The agents, by the names of their pools, with the path of their requests.
const AGENTS: [(&str, &str, &str); 3] = [
    ("claude", "claude", "/v1/messages"),
    ("codex", "codex", "/v1/responses"),
    ("codex-exec", "codex", "/v1/responses"),
];

/// The folder with the programs, installed once and kept with the build. `None` where the registry cannot be reached.
fn programs() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(install).as_deref()
}

fn install() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agents");
    std::fs::create_dir_all(&folder).expect("the build has a folder");
    let lock = File::create(folder.join("lock")).expect("a file");
    lock.lock().expect("it can be locked");
    let bin = folder.join("node_modules/.bin");
    if !(bin.join("claude").exists() && bin.join("codex").exists()) {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).args(PACKAGES);
        let installed = npm.stdin(Stdio::null()).output();
        if !installed.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: the real agents could not be installed by npm: {installed:?}");
            return None;
        }
    }
    Some(bin)
}

/// A scripted LLM server. It is killed on drop.
struct ScriptedLlm {
    child: Child,
    port: String,
    log: PathBuf,
}

impl ScriptedLlm {
    fn start(folder: &Path) -> Self {
        let (port, log) = (folder.join("port"), folder.join("llm.log"));
        let child = Command::new("python3").arg(SERVER).args([&port, &log]).stdin(Stdio::null()).spawn();
        let child = child.expect("it starts");
        let port = until("it listens", || std::fs::read_to_string(&port).ok());
        Self { child, port, log }
    }

    /// The requests so far.
    fn requests(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for ScriptedLlm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place with a pool for each agent.
fn place(bin: &Path) -> (Place, ScriptedLlm) {
    let place = Place::new();
    let llm = ScriptedLlm::start(place.folder());
    let mut config = "[lease]\nttl = \"5s\"\nheartbeat = \"200ms\"\npoll = \"200ms\"\n".to_owned();
    for (pool, program, path) in AGENTS {
        let (model, key, root) = match program {
            "claude" => ("claude-sonnet-4-5", "ANTHROPIC_API_KEY", ""),
            _ => ("gpt-5", "OPENAI_API_KEY", path.trim_end_matches("/responses")),
        };
        config += &format!(
            "[pool.{pool}]\nexecutor = \"agent\"\nagent = \"{pool}\"\ncommand = [\"{}\"]\nconfig_folders = \"agents\"\n\
             model = \"{model}\"\nbase_url = \"http://127.0.0.1:{}{root}\"\nenv = {{ {key} = \"sk-of-a-test-0000\" }}\n",
            bin.join(program).display(),
            llm.port
        );
    }
    place.write("ostler.toml", config);
    (place, llm)
}

fn up(place: &Place) -> Running {
    let mut command = place.command(["up"]);
    command.env("HOME", place.folder());
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

#[test]
fn the_real_agents_answer_and_go_on_after_the_death_of_their_node_and_ask_nothing_twice() {
    let Some(bin) = programs() else { return };
    let (place, llm) = place(bin);
    let node = up(&place);
    let payload = json!("[[words 8 0.5]] Say some words.").to_string();
    let submit = |pool| place.done(["submit", pool, "say", "--payload", &payload]).trim().to_owned();
    let ids = AGENTS.map(|(pool, _, _)| submit(pool));
    until("each has asked", || (llm.requests().len() == AGENTS.len()).then_some(()));
    // An agent writes its conversation to a file some time after it has asked. The answer takes four seconds.
    let is_kept = |pool: &str, id: &str| {
        let files = walkdir::WalkDir::new(place.folder().join("agents").join(pool).join(id));
        let mut files = files.into_iter().filter_map(Result::ok);
        files.any(|file| {
            file.path().extension().is_some_and(|end| end == "jsonl")
                && std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains("Say some words."))
        })
    };
    let all_kept = || AGENTS.iter().zip(&ids).all(|((pool, _, _), id)| is_kept(pool, id));
    until("each has its conversation in a file", || all_kept().then_some(()));
    node.signal(ProcessSignal::KILL);
    drop(node);
    let _node = up(&place);
    for ((pool, _, _), id) in AGENTS.iter().zip(&ids) {
        let task = until("it is done", || {
            let task = place.json(["show", id]);
            assert_ne!(task["state"], "failed", "{pool}: {task}");
            (task["state"] == "completed").then_some(task)
        });
        let words = "word0 word1 word2 word3 word4 word5 word6 word7";
        assert_eq!(task["output"].as_str().map(str::trim), Some(words), "{pool}");
        let attempts = task["attempts"].as_array().expect("a list");
        assert_eq!(attempts.len(), 2, "{pool}: {task}");
        assert!(attempts[0]["session_id"].is_string(), "{pool}: {task}");
        assert_eq!(attempts[0]["session_id"], attempts[1]["session_id"], "{pool}");
        assert!(place.done(["logs", id]).contains("resumes the conversation"), "{pool}");
    }
    let requests = llm.requests();
    for path in ["/v1/messages", "/v1/responses"] {
        let agents = AGENTS.iter().filter(|(_, _, of)| *of == path).count();
        let asked = requests.iter().filter(|request| request["path"] == path).count();
        assert_eq!(asked, 2 * agents, "the one in flight at the death, and the one that goes on: {path}");
    }
}
