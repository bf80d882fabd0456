//! The stored form of a map job and of its items. The store keeps both as opaque text.

use ostler_core::TaskId;
use ostler_store::jobs::JobRecord;
use ostler_wire::bytes::ByteString;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::quoting::shell_line;

/// What is run for each item, as stored with the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The words of the template; empty if a pool runs the items.
    pub command: Vec<ByteString>,
    /// The working folder.
    pub folder: String,
    pub served_by: ServedBy,
    /// The maximum number of items running at once; `None`: as many as the pool has workers.
    pub jobs: Option<u32>,
    /// The maximum number of attempts of an item; `None`: that of the pool.
    pub attempts: Option<u32>,
    /// The timeout of an item in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The pool that runs the items, if no command does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<JobPool>,
    /// How many items run before the others are approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<u64>,
    /// Where each item has a folder of its own; `None`: all items work in `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_folders: Option<ItemFolders>,
    /// The shell for a command of one string; `None`: sh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// How many parts an item has, if it is more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<usize>,
    /// The pause between the starts of two items, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// Folders of items, each named after its task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemFolders {
    /// The parent of the folders, absolute.
    pub parent: String,
    /// Each of them is a worktree of this repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktrees: Option<ItemWorktrees>,
}

/// The repository of worktrees, and what they start at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemWorktrees {
    pub repository: String,
    pub base: String,
}

impl ItemFolders {
    /// The folder of an item, whether or not it exists yet.
    #[must_use]
    pub fn of(&self, task: TaskId) -> String {
        format!("{}/{task}", self.parent.trim_end_matches('/'))
    }
}

/// The pool whose executor and settings run the items of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPool {
    pub name: String,
    /// The settings of a pool that only this job has: a table of the config, as TOML. `None`: a pool of the config.
    pub section: Option<String>,
    /// The kind of the tasks.
    pub kind: String,
    /// The template of the prompts.
    pub prompt: Option<String>,
    /// What the payload of each item has besides, such as the model.
    pub options: Map<String, Value>,
    /// What the pool asks of a model that is in no payload, such as its prompt. With it, the items are paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Map<String, Value>>,
    /// The template of the prompt of one last task, over the results of all items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<String>,
}

impl JobPool {
    /// Keeps what the pool asks, as far as the job does not ask something else instead.
    pub fn asks(&mut self, question: Option<Map<String, Value>>) {
        let is_own = |name: &str| {
            let section_has = self.section.is_some() && name != "schema";
            section_has || self.options.contains_key(name) || name == "prompt" && self.prompt.is_some()
        };
        self.question = question.map(|all| all.into_iter().filter(|(name, _)| !is_own(name)).collect());
    }

    /// Whether the items were paid for, so that a complete job is not run anew.
    #[must_use]
    pub const fn is_paid(&self) -> bool {
        self.prompt.is_some() || self.question.is_some()
    }

    /// The pool of the config on which it depends what the items cost; `None`: they have a model of their own, or a pool.
    #[must_use]
    pub fn priced_by(&self) -> Option<&str> {
        (self.section.is_none() && !self.options.contains_key("model")).then_some(self.name.as_str())
    }
}

/// Who runs the items of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServedBy {
    /// The process that runs `ostler map`.
    #[default]
    Mapper,
    /// A running node.
    Node,
    /// The program that made it with the library.
    Program,
}

/// The payload of an item's task. One for a pool has no `argv`, but may have a prompt and options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemPayload {
    /// The position among the items, counted from 1.
    pub number: u64,
    /// The item; a row is a JSON object.
    #[serde(deserialize_with = "text_or_row")]
    pub item: ByteString,
    #[serde(default)]
    pub argv: Vec<ByteString>,
}

fn text_or_row<'de, D: Deserializer<'de>>(found: D) -> Result<ByteString, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum ItemJson {
        Text(ByteString),
        Row(Map<String, Value>),
    }
    Ok(match ItemJson::deserialize(found)? {
        ItemJson::Text(text) => text,
        ItemJson::Row(row) => ByteString(Value::Object(row).to_string().into_bytes()),
    })
}

impl JobSpec {
    /// The spec of a job; `None` if another version wrote one that this one cannot read.
    #[must_use]
    pub fn of(record: &JobRecord) -> Option<Self> {
        serde_json::from_str(&record.job.spec).ok()
    }

    /// The tasks of the job besides those of its items: its synthesis, if it has one.
    #[must_use]
    pub fn more_tasks(&self) -> u64 {
        u64::from(self.pool.as_ref().is_some_and(|pool| pool.synthesis.is_some()))
    }

    /// What runs each item, for people.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        match &self.pool {
            None => self.command.iter().map(ByteString::shown).collect(),
            Some(JobPool { name, kind, prompt, .. }) => prompt
                .clone()
                .map_or_else(|| vec![name.clone(), kind.clone()], |prompt| vec![name.clone(), prompt]),
        }
    }
}

impl ItemPayload {
    /// The item of a task; `None` if it has another payload.
    #[must_use]
    pub fn of(payload: &str) -> Option<Self> {
        serde_json::from_str(payload).ok()
    }

    /// The command as a line for a shell. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn command(&self) -> String {
        String::from_utf8_lossy(&shell_line(self.argv.iter().map(|word| word.0.as_slice()))).into_owned()
    }
}
