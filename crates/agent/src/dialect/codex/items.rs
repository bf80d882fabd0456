//! Items of codex: messages, reasoning, commands, file changes and other tools. `exec` and `app-server` spell their names differently.

use std::collections::BTreeSet;

use ostler_core::{Role, ToolStatus};
use serde_json::{Map, Value, json};

use crate::fact::Fact;
use crate::json::{content_text, text};
use crate::transcript::{called, returned, said, status, thought, warning};

/// Tools that are remembered as running.
const MAX_RUNNING: usize = 1_000;

/// What is known of the items of a run.
#[derive(Debug, Default)]
pub(super) struct Items {
    running: BTreeSet<String>,
    /// The last message: the answer, if none follows.
    pub(super) answer: Option<String>,
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemPhase {
    Started,
    Completed,
}

impl Items {
    pub(super) fn read(&mut self, phase: ItemPhase, item: &Value) -> Vec<Fact> {
        let sort = text(item, "type").unwrap_or_default();
        // `agent_message` and `agentMessage` are the same.
        let plain = sort.replace('_', "").to_ascii_lowercase();
        match (plain.as_str(), phase) {
            ("usermessage", _) | ("agentmessage" | "reasoning" | "error", ItemPhase::Started) => Vec::new(),
            ("agentmessage", ItemPhase::Completed) => {
                let words = text(item, "text").unwrap_or_default();
                self.answer = Some(words.to_owned());
                vec![said(Role::Assistant, words)]
            }
            ("reasoning", ItemPhase::Completed) => {
                let parts = ["text", "summary", "content"].map(|name| item.get(name).map(content_text));
                let words = parts.into_iter().flatten().find(|words| !words.is_empty());
                words.map(thought).into_iter().collect()
            }
            // A warning, such as that a model is not known.
            ("error", ItemPhase::Completed) => {
                vec![warning(text(item, "message").unwrap_or("an error without a message"))]
            }
            _ if item.get("status").is_some() => self.tool(phase, sort, item),
            (_, ItemPhase::Started) => Vec::new(),
            (_, ItemPhase::Completed) => vec![status(format!("{sort} {}", rest(item)))],
        }
    }

    fn tool(&mut self, phase: ItemPhase, sort: &str, item: &Value) -> Vec<Fact> {
        let id = text(item, "id").unwrap_or_default();
        let tool = text(item, "tool").unwrap_or(sort);
        let mut facts = Vec::new();
        if self.running.len() < MAX_RUNNING && self.running.insert(id.to_owned()) {
            let input =
                item.get("command").map_or_else(|| rest(item), |command| json!({ "command": command }));
            facts.extend(called(id, tool, &input));
        }
        if phase == ItemPhase::Completed {
            self.running.remove(id);
            let exit = field(item, "exit_code", "exitCode").and_then(Value::as_i64);
            let is_failed = text(item, "status") != Some("completed") || exit.is_some_and(|code| code != 0);
            let state = if is_failed { ToolStatus::Error } else { ToolStatus::Ok };
            let output = ["aggregated_output", "aggregatedOutput", "result", "error"];
            let output = output.iter().find_map(|name| item.get(*name).filter(|value| !value.is_null()));
            facts.extend(returned(id, Some(tool), state, output.map(content_text).unwrap_or_default()));
        }
        facts
    }
}

fn field<'a>(item: &'a Value, snake: &str, camel: &str) -> Option<&'a Value> {
    item.get(snake).or_else(|| item.get(camel))
}

/// The fields that are of the item's own type, and not its result.
fn rest(item: &Value) -> Value {
    let common = ["id", "type", "status", "result", "error", "startedAtMs", "completedAtMs", "durationMs"];
    let own = item.as_object().into_iter().flatten().filter(|(name, _)| !common.contains(&name.as_str()));
    Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}
