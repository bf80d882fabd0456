//! A scripted LLM server of one test, and what it has seen.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::workers::until;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/tools/scripted_llm.py");

/// The server. It is killed on drop.
pub(super) struct ScriptedLlm {
    child: Child,
    folder: PathBuf,
    pub(super) port: String,
}

/// A request, as the server saw it.
#[derive(Clone, Debug)]
pub(super) struct LlmRequest {
    /// Seconds since 1970.
    pub(super) at: f64,
    pub(super) path: String,
    pub(super) session: String,
    pub(super) item: String,
    /// Of each text of the user.
    pub(super) sha256: Vec<String>,
    /// The end of the last text of the user.
    pub(super) last: String,
    /// `None`: it is being answered.
    pub(super) answer: Option<LlmAnswer>,
}

/// How it answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct LlmAnswer {
    pub(super) status: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
}

impl ScriptedLlm {
    pub(super) fn start(folder: &Path) -> Self {
        let folder = folder.join("llm");
        std::fs::create_dir(&folder).expect("the folder is new");
        let child = Command::new("python3").arg(SERVER).arg(&folder).stdin(Stdio::null()).spawn();
        let child = child.expect("it starts");
        let port = until("it listens", || std::fs::read_to_string(folder.join("port")).ok());
        Self { child, folder, port }
    }

    /// What it refuses from now on.
    pub(super) fn set(&self, mode: &Value) {
        let next = self.folder.join("mode.next");
        std::fs::write(&next, mode.to_string()).expect("it can be written");
        std::fs::rename(next, self.folder.join("mode.json")).expect("it can be renamed");
    }

    /// The requests so far, without those that an agent makes for itself, such as one for a title.
    pub(super) fn requests(&self) -> Vec<LlmRequest> {
        let text = std::fs::read_to_string(self.folder.join("requests.jsonl")).unwrap_or_default();
        // The last line may be half written.
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let texts = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let asked = lines.iter().filter(|line| line["event"] == "asked" && line["side"] == false);
        asked
            .map(|line| {
                let is_its =
                    |other: &&Value| other["event"] == "answered" && other["number"] == line["number"];
                let number = |value: &Value| value.as_u64().expect("a number");
                let seconds = |value: &Value| value.as_f64().expect("a time");
                let answer = lines.iter().find(is_its).map(|line| LlmAnswer {
                    status: number(&line["status"]),
                    input_tokens: number(&line["input_tokens"]),
                    output_tokens: number(&line["output_tokens"]),
                });
                LlmRequest {
                    at: seconds(&line["at"]),
                    path: texts(&line["path"]),
                    session: texts(&line["session"]),
                    item: texts(&line["item"]),
                    sha256: line["sha256"].as_array().expect("a list").iter().map(texts).collect(),
                    last: texts(&line["last"]),
                    answer,
                }
            })
            .collect()
    }

    /// Requests with this status.
    pub(super) fn answered(&self, status: u64) -> Vec<LlmRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.answer.is_some_and(|answer| answer.status == status));
        requests
    }

    /// Requests for this item.
    pub(super) fn of(&self, item: &str) -> Vec<LlmRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.item == item);
        requests
    }
}

impl Drop for ScriptedLlm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
