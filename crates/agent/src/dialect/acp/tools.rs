//! Tools of an agent: from the first line about a call, with pieces of what it is, to its result.

use std::collections::{BTreeMap, BTreeSet};

use ostler_core::{EventBody, ToolStatus};
use serde_json::{Value, json};

use super::messages::AcpToolCall;
use crate::fact::Fact;
use crate::json::{content_text, text};
use crate::transcript::returned;

/// Calls that are remembered: running ones, and those that have ended.
const MAX_CALLS: usize = 1_000;

/// The tool calls of a turn.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    running: BTreeMap<String, RunningTool>,
    /// What has ended: agents repeat the end.
    ended: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct RunningTool {
    call: AcpToolCall,
    /// Whether the call is in the transcript. It is put off until its input is known.
    is_recorded: bool,
}

impl ToolCalls {
    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether nothing is known of this call yet.
    pub(super) fn is_new(&self, call: &AcpToolCall) -> bool {
        let id = call.tool_call_id.as_str();
        !self.running.contains_key(id) && !self.ended.contains(id)
    }

    /// Whether an update only repeats that a call goes on, with output that its end has too.
    pub(super) fn is_repeated(&self, call: &AcpToolCall) -> bool {
        let is_known = self.running.get(&call.tool_call_id).is_some_and(|tool| tool.is_recorded);
        is_known && call.status.as_deref() == Some("in_progress")
    }

    /// All that is known of a call, with this update.
    pub(super) fn known(&self, update: &AcpToolCall) -> AcpToolCall {
        let mut call =
            self.running.get(&update.tool_call_id).map(|tool| tool.call.clone()).unwrap_or_default();
        merge(&mut call, update.clone());
        call
    }

    /// What a line about a call means.
    pub(super) fn update(&mut self, update: AcpToolCall) -> Vec<Fact> {
        let id = update.tool_call_id.clone();
        let mut facts = Vec::new();
        if self.ended.contains(&id) {
            return facts;
        }
        if !self.running.contains_key(&id) {
            if self.running.len() >= MAX_CALLS {
                return facts;
            }
            facts.push(Fact::ToolStarted { call: id.clone() });
        }
        let tool = self.running.entry(id.clone()).or_default();
        merge(&mut tool.call, update);
        let end = match tool.call.status.as_deref() {
            Some("completed") => Some(ToolStatus::Ok),
            Some("failed") => Some(ToolStatus::Error),
            _ => None,
        };
        if end.is_some() || tool.call.status.as_deref() == Some("in_progress") {
            facts.extend(tool.record());
        }
        if let Some(status) = end {
            facts.extend(self.end(&id, status, None));
        }
        facts
    }

    /// A call was allowed: its input is known.
    pub(super) fn allowed(&mut self, update: AcpToolCall) -> Vec<Fact> {
        let id = update.tool_call_id.clone();
        let mut facts = self.update(update);
        facts.extend(self.running.get_mut(&id).and_then(RunningTool::record));
        facts
    }

    /// A call was denied: it is over, whatever the agent says of it.
    pub(super) fn denied(&mut self, update: AcpToolCall) -> Vec<Fact> {
        let id = update.tool_call_id.clone();
        let mut facts = self.update(update);
        if let Some(tool) = self.running.get_mut(&id) {
            facts.extend(tool.record());
            facts.extend(self.end(&id, ToolStatus::Error, Some("denied by the permission of the pool")));
        }
        facts
    }

    /// Calls that are not in the transcript yet.
    pub(super) fn flush(&mut self) -> Vec<Fact> {
        self.running.values_mut().filter_map(RunningTool::record).collect()
    }

    fn end(&mut self, id: &str, status: ToolStatus, said: Option<&str>) -> Vec<Fact> {
        let Some(tool) = self.running.remove(id) else { return Vec::new() };
        if self.ended.len() < MAX_CALLS {
            self.ended.insert(id.to_owned());
        }
        let output = said.map_or_else(|| output(&tool.call), str::to_owned);
        returned(id, Some(name(&tool.call)), status, output).into()
    }
}

impl RunningTool {
    fn record(&mut self) -> Option<Fact> {
        if std::mem::replace(&mut self.is_recorded, true) {
            return None;
        }
        let call = &self.call;
        let input = match &call.raw_input {
            Some(input) if !input.is_null() => input.clone(),
            // Some agents say it only in words for people.
            Some(_) | None => json!({ "title": call.title, "content": call.content }),
        };
        let (id, tool) = (call.tool_call_id.clone(), name(call).to_owned());
        Some(EventBody::ToolCall { call: id, tool, input: input.to_string() }.into())
    }
}

/// The protocol has no names of tools, but it has their sorts.
pub(super) fn name(call: &AcpToolCall) -> &str {
    call.kind.as_deref().unwrap_or("other")
}

fn output(call: &AcpToolCall) -> String {
    let part = |part: &Value| match text(part, "type") {
        Some("content") => {
            part.get("content").map(|content| content_text(&json!([content]))).unwrap_or_default()
        }
        _ => part.to_string(),
    };
    let content: Vec<String> = call.content.iter().flatten().map(part).collect();
    if content.is_empty() {
        call.raw_output.as_ref().map(content_text).unwrap_or_default()
    } else {
        content.join("\n")
    }
}

fn merge(known: &mut AcpToolCall, update: AcpToolCall) {
    let AcpToolCall { tool_call_id, title, kind, status, content, locations, raw_input, raw_output } = update;
    known.tool_call_id = tool_call_id;
    known.title = title.or(known.title.take());
    known.kind = kind.or(known.kind.take());
    known.status = status.or(known.status.take());
    known.content = content.or(known.content.take());
    known.locations = locations.or(known.locations.take());
    known.raw_input = raw_input.or(known.raw_input.take());
    known.raw_output = raw_output.or(known.raw_output.take());
}
