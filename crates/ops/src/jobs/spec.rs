//! The stored form of a map job and of its items. The store keeps both as opaque text.

use ostler_store::jobs::JobRecord;
use ostler_wire::bytes::ByteString;
use serde::{Deserialize, Serialize};

/// The command for each item, as stored with the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The words of the template.
    pub command: Vec<ByteString>,
    /// The working folder.
    pub folder: String,
    pub served_by: ServedBy,
    /// The maximum number of items running at once.
    pub jobs: u32,
    /// The maximum number of attempts of an item.
    pub attempts: u32,
    /// The timeout of an item in milliseconds.
    pub timeout_ms: Option<u64>,
}

/// Who runs the items of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServedBy {
    /// The process that runs `ostler map`.
    Mapper,
    /// A running node.
    Node,
}

/// The payload of an item's task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemPayload {
    /// The position among the items, counted from 1.
    pub number: u64,
    pub item: ByteString,
    pub argv: Vec<ByteString>,
}

impl JobSpec {
    /// The spec of a job; `None` if another version wrote one that this one cannot read.
    #[must_use]
    pub fn of(record: &JobRecord) -> Option<Self> {
        serde_json::from_str(&record.job.spec).ok()
    }
}

impl ItemPayload {
    /// The item of a task; `None` if it has another payload.
    #[must_use]
    pub fn of(payload: &str) -> Option<Self> {
        serde_json::from_str(payload).ok()
    }
}
