//! A place whose node has pools of real agents, all of which ask one scripted server.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::llm::ScriptedLlm;
use super::{acp_programs, in_time, in_time_or, programs};
use crate::ostler::{Place, Running};

/// The program of codex among the packages.
const NATIVE_CODEX: &str = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";

/// An agent, and how it is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    Claude,
    Codex,
    CodexExec,
    Gemini,
    OpenCode,
}

impl Agent {
    /// Those that say what they do in a protocol of their own.
    pub(super) const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::CodexExec];

    /// The name of its pool, and the word for it in a config.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::CodexExec => "codex-exec",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    /// The folder with its program. `None`: it cannot be installed.
    pub(super) fn bin(self) -> Option<&'static Path> {
        match self {
            Self::Claude | Self::Codex | Self::CodexExec => programs(),
            Self::Gemini | Self::OpenCode => acp_programs(),
        }
    }

    /// What is in the path of its requests to a model.
    pub(super) const fn api(self) -> &'static str {
        match self {
            Self::Claude => "/messages",
            Self::Codex | Self::CodexExec => "/responses",
            Self::Gemini => "GenerateContent",
            Self::OpenCode => "/chat/completions",
        }
    }

    /// Its program. The `codex` of the registry is a launcher in JavaScript: `codex-exec` has it, and `codex` what it starts.
    fn program(self, bin: &Path) -> PathBuf {
        match self {
            Self::Claude => bin.join("claude"),
            Self::Codex => {
                let native = bin.with_file_name(NATIVE_CODEX);
                if native.exists() { native } else { bin.join("codex") }
            }
            Self::CodexExec => bin.join("codex"),
            Self::Gemini => bin.join("gemini"),
            Self::OpenCode => bin.join("opencode"),
        }
    }

    /// A model whose tokens cost a dollar for a million, and five dollars for a million of its answer.
    pub(super) const fn model(self) -> &'static str {
        match self {
            Self::Claude => "claude-haiku-4-5",
            Self::Codex | Self::CodexExec => "gpt-5",
            Self::Gemini => "gemini-2-flash",
            Self::OpenCode => "scripted-1",
        }
    }

    /// The section of its pool. Its shell may be used without a question.
    fn section(self, bin: &Path, port: &str, lines: &str) -> String {
        let (key, root, shell) = match self {
            Self::Claude => ("CLAUDE_CODE_OAUTH_TOKEN", "", "tools = [\"Bash\"]"),
            Self::Codex | Self::CodexExec => ("OPENAI_API_KEY", "/v1", "permission = \"everything\""),
            Self::Gemini => ("GEMINI_API_KEY", "", "permission = \"everything\""),
            Self::OpenCode => ("OPENAI_API_KEY", "/v1", "permission = \"everything\""),
        };
        format!(
            "[pool.{name}]\nexecutor = \"agent\"\nagent = \"{name}\"\ncommand = [\"{}\"]\nconfig_folders = \"agents\"\n\
             model = \"{}\"\nbase_url = \"http://127.0.0.1:{port}{root}\"\nenv = {{ {key} = \"sk-of-a-test-0000\", OF_THE_TEST = \"{port}\" }}\n\
             grace = \"5s\"\n{shell}\n{lines}\n",
            self.program(bin).display(),
            self.model(),
            name = self.name(),
        )
    }
}

/// A folder with a config, and the server that its agents ask.
pub(super) struct Site {
    pub(super) place: Place,
    pub(super) llm: ScriptedLlm,
}

impl Site {
    /// A place with a pool for each of these agents, with these lines. `None`: there are no agents.
    pub(super) fn new(pools: &[(Agent, &str)]) -> Option<Self> {
        let bins = pools.iter().map(|(agent, _)| agent.bin()).collect::<Option<Vec<_>>>()?;
        let place = Place::new();
        let llm = ScriptedLlm::start(place.folder());
        let mut config =
            "payload_limit = \"4MiB\"\n[lease]\nttl = \"5s\"\nheartbeat = \"200ms\"\npoll = \"200ms\"\n"
                .to_owned();
        for model in [Agent::Claude, Agent::Codex, Agent::Gemini, Agent::OpenCode].map(Agent::model) {
            config += &format!("[prices.{model}]\ninput = \"$1\"\noutput = \"$5\"\n");
        }
        for ((agent, lines), bin) in pools.iter().zip(bins) {
            config += &agent.section(bin, &llm.port, lines);
        }
        config += "[pool.other]\nexecutor = \"command\"\ncommand = [\"true\"]\n";
        place.write("ostler.toml", config);
        Some(Self { place, llm })
    }

    /// Starts a node, with these variables.
    pub(super) fn up_with(&self, variables: &[(&str, &str)]) -> Running {
        let mut command = self.place.command(["up"]);
        command.env("HOME", self.place.folder()).envs(variables.iter().copied());
        let node = Running::start(command);
        assert!(node.line().contains("ready"));
        node
    }

    pub(super) fn up(&self) -> Running {
        self.up_with(&[])
    }

    /// Submits a prompt, and returns the id of the task.
    pub(super) fn submit(&self, agent: Agent, prompt: &str) -> String {
        self.submit_payload(agent, &Value::from(prompt))
    }

    /// Submits a prompt with settings of its own.
    pub(super) fn submit_payload(&self, agent: Agent, payload: &Value) -> String {
        let payload = payload.to_string();
        self.place.done(["submit", agent.name(), "ask", "--payload", &payload]).trim().to_owned()
    }

    /// Leaves a job over these items to the node, and returns its id.
    pub(super) fn detach(&self, agent: Agent, options: &[&str], prompt: &str, items: &[String]) -> String {
        let words = ["map", "--detach", "--pool", agent.name(), "--kind", "ask", "--prompt", prompt];
        let items = items.iter().map(String::as_str);
        let words: Vec<&str> =
            words.into_iter().chain(options.iter().copied()).chain([":::"]).chain(items).collect();
        self.place.done(words).trim().to_owned()
    }

    /// Waits until a task is done, and returns it.
    pub(super) fn done(&self, id: &str) -> Value {
        self.ended(id, "completed")
    }

    /// Waits until a task has ended in this state. If it ends in another one, or its queue is paused, the test fails with what is known of it.
    pub(super) fn ended(&self, id: &str, state: &str) -> Value {
        in_time_or(
            "the task has ended",
            || self.story(id),
            || {
                let task = self.place.json(["show", id]);
                let is_over = ["completed", "failed", "cancelled"].iter().any(|over| task["state"] == *over);
                assert!(!is_over || task["state"] == state, "{task}");
                assert!(task["held"]["waits_for"] != "paused", "its queue is paused\n{}", self.story(id));
                is_over.then_some(task)
            },
        )
    }

    /// A task, its transcript, its queue, the accounts, and the requests of all agents.
    fn story(&self, id: &str) -> String {
        let (task, log) = (self.place.json(["show", id]), self.place.done(["logs", id]));
        let queue = self.circumstances(task["queue"].as_str().expect("a name"));
        format!("{task}\n{log}\n{queue}\n{:#?}\nprocesses: {:?}", self.llm.requests(), self.processes())
    }

    /// What may keep the tasks of a queue from running.
    fn circumstances(&self, queue: &str) -> String {
        self.place.done(["queue", "show", queue]) + &self.place.done(["account", "ls"])
    }

    /// Waits until a job is done. If an item fails, or the job is paused, the test fails at once.
    pub(super) fn all_done(&self, job: &str) {
        let show = || self.place.json(["job", "show", job]);
        let story = |shown: &Value| {
            let queue = self.circumstances(shown["queue"].as_str().expect("a name"));
            format!("{shown}\n{queue}\nprocesses: {:?}", self.processes())
        };
        in_time_or(
            "the job is done",
            || story(&show()),
            || {
                let shown = show();
                assert_eq!(shown["tasks"]["failed"], 0, "{}", story(&shown));
                assert!(shown["paused"].is_null(), "{}", story(&shown));
                (shown["state"] == "completed").then_some(())
            },
        );
    }

    /// The results of a job, in the order of its items.
    pub(super) fn results(&self, job: &str) -> Vec<Value> {
        let lines = self.place.done(["job", "export", job]);
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The folder of a task's conversation.
    pub(super) fn home(&self, agent: Agent, task: &str) -> PathBuf {
        self.place.folder().join("agents").join(agent.name()).join(task)
    }

    /// Waits until the agent has written its conversation, with these words, to a file: some time after it has asked.
    pub(super) fn is_kept(&self, agent: Agent, task: &str, words: &str) {
        is_kept_in(&self.home(agent, task), words);
    }

    /// The processes that agents of this place have started and that still run.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mark = format!("OF_THE_TEST={}\0", self.llm.port);
        let entries = std::fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok);
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.windows(mark.len()).any(|part| part == mark.as_bytes())
        })
        .collect()
    }
}

/// Waits until a conversation with these words is in a file of this folder.
pub(super) fn is_kept_in(folder: &Path, words: &str) {
    in_time("the conversation is in a file", || {
        let files = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok);
        let has = |path: &Path| {
            path.extension().is_some_and(|end| end == "jsonl")
                && std::fs::read_to_string(path).is_ok_and(|text| text.contains(words))
        };
        files.into_iter().any(|file| has(file.path())).then_some(())
    });
}

/// Seconds since 1970 of a time that the program shows.
pub(super) fn seconds(time: &Value) -> f64 {
    let text = time.as_str().expect("a time");
    let read = Command::new("date").args(["-u", "+%s.%N", "-d", text]).output().expect("there is date");
    let read = String::from_utf8(read.stdout).expect("text");
    read.trim().parse().unwrap_or_else(|_| panic!("{text} is no time"))
}

/// Names of items, which have a prefix.
pub(super) fn items(prefix: &str, count: u64) -> Vec<String> {
    (1..=count).map(|number| format!("{prefix}{number:03}")).collect()
}
