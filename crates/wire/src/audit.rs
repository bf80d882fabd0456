//! Records of changes that were made by hand.

use ostler_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::time::TimeView;

/// A change: who, from where, what, and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditView {
    /// Counted from 1.
    pub number: u64,
    pub at: TimeView,
    /// The name of the token; `mcp`: a program that asked through `ostler mcp`.
    pub who: String,
    /// The address of the caller; `null`: a Unix socket, or a program on this machine.
    pub from: Option<String>,
    /// The id of the operation.
    pub operation: String,
    /// The method and path.
    pub target: String,
    /// The id of an action on all tasks that match a filter. One that is started again, as after the death of its node, has the
    /// record that it had; `null` for other changes.
    pub action: Option<String>,
    /// `null` while it is under way, or if the node died meanwhile.
    pub result: Option<ChangeResult>,
}

/// A change before it is made.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Timestamp,
    /// The name of the token.
    pub who: String,
    /// The address of the caller; `None`: a Unix socket.
    pub from: Option<String>,
    /// The id of the operation.
    pub operation: &'static str,
    /// The method and path.
    pub target: String,
    /// The id of an action on all tasks that match a filter.
    pub action: Option<String>,
}

impl AuditView {
    #[must_use]
    pub fn new(number: u64, change: Change, result: Option<ChangeResult>) -> Self {
        let Change { at, who, from, operation, target, action } = change;
        Self { number, at: at.into(), who, from, operation: operation.to_owned(), target, action, result }
    }

    /// Adds what a later line of the same change says. Of an action that was started again, the result that is about more tasks
    /// stays: those that were done before no longer match.
    pub fn add(&mut self, later: Self) {
        let tasks = |result: &Option<ChangeResult>| result.as_ref().and_then(|result| result.tasks);
        if self.result.is_none() || tasks(&later.result) > tasks(&self.result) {
            self.result = later.result;
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeResult {
    /// The HTTP status of the answer.
    pub status: u16,
    /// How many tasks were meant, if it was about several.
    pub tasks: Option<u64>,
}
