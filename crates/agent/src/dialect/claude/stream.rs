//! The lines of claude. A line has one content block, several lines belong to one message, and there may be several results.

use ostler_core::{Cost, EventBody, Role, Timestamp, ToolStatus, Usage};
use serde_json::Value;

use super::ending::{self, ApiError, TurnResult};
use crate::ending::{ProcessEnd, RunReport, Trouble, conclude};
use crate::fact::{Fact, LimitState, LimitWindow};
use crate::json::{content_text, list, text, whole};
use crate::meter::Meter;
use crate::reason::Reason;
use crate::reset::from_seconds;
use crate::settings::{AgentSettings, Denials, SessionStart};
use crate::transcript::{called, error, raw, returned, said, status, thought, unreadable, warning};

/// The model of messages that claude writes itself.
const SYNTHETIC: &str = "<synthetic>";

#[derive(Debug)]
pub(in crate::dialect) struct Stream {
    session: String,
    schema: Option<String>,
    denials: Denials,
    meter: Meter,
    turns: u32,
    /// The message that was counted last.
    message: Option<String>,
    /// The last result: there may be several.
    result: Option<TurnResult>,
    /// What claude said of an error in this turn.
    error: Option<ApiError>,
    /// When a reached usage limit resets.
    resets_at: Option<Timestamp>,
    /// Why it was killed before it repeated a request.
    hopeless: Option<Trouble>,
}

impl Stream {
    pub(in crate::dialect) fn new(settings: &AgentSettings) -> Self {
        let (SessionStart::New { id } | SessionStart::Resume { id }) = &settings.session;
        Self {
            session: id.clone(),
            schema: settings.schema.clone(),
            denials: settings.denials,
            // Its totals go on over a resume in some versions only, which report differences too.
            meter: Meter::new(settings.prices.clone(), Vec::new()),
            turns: 0,
            message: None,
            result: None,
            error: None,
            resets_at: None,
            hopeless: None,
        }
    }

    pub(in crate::dialect) fn line(&mut self, line: &[u8]) -> Vec<Fact> {
        let Ok(value @ Value::Object(_)) = serde_json::from_slice(line) else { return unreadable(line) };
        let (sort, subtype) =
            (text(&value, "type").unwrap_or_default(), text(&value, "subtype").unwrap_or_default());
        // Pieces of a message that comes whole.
        match (sort, subtype) {
            ("stream_event", _) => return self.piece(&value).into_iter().collect(),
            ("system", "thinking_tokens") => return Vec::new(),
            ("system", "status") if text(&value, "status") == Some("requesting") => return Vec::new(),
            _ => {}
        }
        let mut facts = vec![raw(line).into()];
        match sort {
            "system" => self.system(subtype, &value, &mut facts),
            "assistant" => self.assistant(&value, &mut facts),
            "user" => user(&value, &mut facts),
            "rate_limit_event" => self.limits(&value, &mut facts),
            "result" => self.turn_ended(&value, &mut facts),
            _ => {}
        }
        facts
    }

    pub(in crate::dialect) fn unreported(&self) -> Vec<Usage> {
        self.meter.unreported_yet()
    }

    pub(in crate::dialect) fn end(self, end: &ProcessEnd<'_>) -> RunReport {
        let terminal = self.result.map(|result| {
            ending::judge(result, self.error.as_ref(), self.resets_at, self.schema.as_deref(), self.denials)
        });
        let terminal = terminal.or(self.hopeless.map(Err));
        let end = conclude(terminal, end, ending::by_stderr);
        RunReport { end, unreported: self.meter.unreported() }
    }

    fn system(&mut self, subtype: &str, value: &Value, facts: &mut Vec<Fact>) {
        match subtype {
            "init" => {
                self.error = None;
                facts.push(Fact::TurnStarted);
                let session = text(value, "session_id").unwrap_or_default();
                if session != self.session && !session.is_empty() {
                    session.clone_into(&mut self.session);
                    facts.push(EventBody::Session { id: session.to_owned() }.into());
                }
                let field = |name| text(value, name).unwrap_or("?");
                let (version, model) = (field("claude_code_version"), field("model"));
                facts.push(status(format!("claude {version}, {model}")));
                for server in list(value, "mcp_servers") {
                    let state = text(server, "status").unwrap_or_default();
                    if state != "connected" && !state.is_empty() {
                        let name = text(server, "name").unwrap_or("?");
                        facts.push(warning(format!("the MCP server {name} is {state}")));
                    }
                }
            }
            "api_retry" => {
                let number = |name| whole(value, name).unwrap_or(0);
                let (attempt, of, wait) =
                    (number("attempt"), number("max_retries"), number("retry_delay_ms"));
                let why = text(value, "error").unwrap_or("unknown");
                let http =
                    whole(value, "error_status").map(|status| format!(" ({status})")).unwrap_or_default();
                facts.push(status(format!("retry {attempt} of {of} in {wait} ms: {why}{http}")));
                // It would repeat even that. The fact comes first: there is half a second.
                if why == "authentication_failed" {
                    let message = format!("its key or its login is refused{http}");
                    self.hopeless = Some(Trouble::new(Reason::BadCredentials, message));
                    facts.insert(0, Fact::Hopeless);
                }
            }
            "permission_denied" => {
                let (tool, why) =
                    (text(value, "tool_name").unwrap_or("?"), text(value, "message").unwrap_or("?"));
                facts.push(warning(format!("{tool} was denied: {why}")));
            }
            // Work that goes on beside the conversation.
            "task_started" if value.get("is_backgrounded").and_then(Value::as_bool) == Some(true) => {
                let call = text(value, "task_id").unwrap_or_default().to_owned();
                let what = text(value, "description").unwrap_or_default();
                facts.extend([status(format!("in the background: {what}")), Fact::ToolStarted { call }]);
            }
            "task_notification" => {
                let call = text(value, "task_id").unwrap_or_default().to_owned();
                let what = text(value, "summary").unwrap_or_default();
                facts.extend([status(what), Fact::ToolFinished { call }]);
            }
            "model_fallback" | "informational" | "notification" | "model_refusal_no_fallback" | "status" => {
                let words = ["content", "text", "compact_error", "compact_result", "status"];
                let shown =
                    words.into_iter().find_map(|word| text(value, word).filter(|text| !text.is_empty()));
                facts.push(status(shown.unwrap_or(subtype)));
            }
            "conversation_reset" => facts.push(status("the conversation was reset")),
            _ => {}
        }
    }

    fn assistant(&mut self, value: &Value, facts: &mut Vec<Fact>) {
        let Some(message) = value.get("message") else { return };
        let model = text(message, "model").unwrap_or_default();
        if let Some(said) = ApiError::of(value, message) {
            facts.push(error(said.text.clone()));
            self.resets_at = said.resets_at.or(self.resets_at);
            self.error = Some(said);
            return;
        }
        for block in list(message, "content") {
            match text(block, "type") {
                Some("text") => facts.push(said(Role::Assistant, text(block, "text").unwrap_or_default())),
                Some("thinking") => facts.push(thought(text(block, "thinking").unwrap_or_default())),
                Some("tool_use") => {
                    let (id, tool) =
                        (text(block, "id").unwrap_or_default(), text(block, "name").unwrap_or("?"));
                    facts.extend(called(id, tool, block.get("input").unwrap_or(&Value::Null)));
                }
                _ => {}
            }
        }
        let id = text(message, "id").unwrap_or_default();
        let is_sub_agent = value.get("parent_tool_use_id").is_some_and(Value::is_string);
        if !is_sub_agent && model != SYNTHETIC && self.message.as_deref() != Some(id) {
            self.message = Some(id.to_owned());
            self.turns += 1;
            facts.push(Fact::Turns(self.turns));
        }
        // What the pieces said of the output is newer.
        if self.meter.known(id).is_none()
            && let Some(usage) = message.get("usage")
        {
            facts.extend(self.meter.seen(id, request_usage(model, usage)));
        }
    }

    /// A piece of a message: only its usage is new.
    fn piece(&mut self, value: &Value) -> Option<Fact> {
        let event = value.get("event")?;
        match text(event, "type")? {
            "message_start" => {
                let message = event.get("message")?;
                let model = text(message, "model").unwrap_or_default();
                self.meter.seen(text(message, "id")?, request_usage(model, message.get("usage")?))
            }
            "message_delta" => {
                let id = text(value, "api_message_id")?;
                let mut usage = self.meter.known(id)?.clone();
                usage.output_tokens = whole(event.get("usage")?, "output_tokens")?;
                self.meter.seen(id, usage)
            }
            _ => None,
        }
    }

    fn limits(&mut self, value: &Value, facts: &mut Vec<Fact>) {
        let Some(info) = value.get("rate_limit_info") else { return };
        let all = window(text(info, "rateLimitType").unwrap_or("limit"), info);
        if all.state == LimitState::Reached {
            self.resets_at = all.resets_at.or(self.resets_at);
        }
        let windows = info.get("unifiedWindows").and_then(Value::as_object);
        match windows.filter(|windows| !windows.is_empty()) {
            Some(windows) => {
                facts.extend(windows.iter().map(|(name, one)| Fact::Limit(window(name, one))));
            }
            None => facts.push(Fact::Limit(all)),
        }
    }

    fn turn_ended(&mut self, value: &Value, facts: &mut Vec<Fact>) {
        let result = TurnResult::of(value);
        match value.get("model_usage_since_last_result") {
            Some(since) => facts.extend(self.meter.spent(usage_by_model(since))),
            // An older version: its totals are those of the process.
            None => {
                let totals = value.get("modelUsage").map(usage_by_model).unwrap_or_default();
                facts.extend(self.meter.total(totals));
            }
        }
        match (&self.error, result.is_error) {
            (_, false) => facts.push(EventBody::Result { text: result.text.clone() }.into()),
            (None, true) => facts.push(error(result.message())),
            // It was said before.
            (Some(_), true) => {}
        }
        facts.push(Fact::ResultSeen);
        self.result = Some(result);
    }
}

fn user(value: &Value, facts: &mut Vec<Fact>) {
    // An echo of the prompt.
    if value.get("isReplay").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let Some(content) = value.get("message").and_then(|message| message.get("content")) else { return };
    let Value::Array(blocks) = content else {
        facts.push(said(Role::User, content_text(content)));
        return;
    };
    for block in blocks {
        match text(block, "type") {
            Some("tool_result") => {
                let is_error = block.get("is_error").and_then(Value::as_bool) == Some(true);
                let state = if is_error { ToolStatus::Error } else { ToolStatus::Ok };
                let output = block.get("content").map(content_text).unwrap_or_default();
                facts.extend(returned(text(block, "tool_use_id").unwrap_or_default(), None, state, output));
            }
            Some("text") => facts.push(said(Role::User, text(block, "text").unwrap_or_default())),
            _ => {}
        }
    }
}

fn window(name: &str, value: &Value) -> LimitWindow {
    LimitWindow {
        name: name.to_owned(),
        utilization: value.get("utilization").and_then(Value::as_f64),
        resets_at: whole(value, "resetsAt").and_then(from_seconds),
        state: match text(value, "status") {
            Some("rejected") => LimitState::Reached,
            Some("allowed_warning") => LimitState::Near,
            _ => LimitState::Open,
        },
    }
}

/// The usage of one request, as the API has it.
fn request_usage(model: &str, usage: &Value) -> Usage {
    let tokens = |name| whole(usage, name).unwrap_or(0);
    Usage {
        model: Some(model.to_owned()),
        input_tokens: tokens("input_tokens"),
        output_tokens: tokens("output_tokens"),
        cache_read_tokens: tokens("cache_read_input_tokens"),
        cache_write_tokens: tokens("cache_creation_input_tokens"),
        ..Usage::default()
    }
}

/// The usage of a turn or a session, as claude adds it up.
fn usage_by_model(value: &Value) -> Vec<Usage> {
    let of = |(model, usage): (&String, &Value)| {
        let tokens = |name| whole(usage, name).unwrap_or(0);
        Usage {
            model: Some(model.clone()),
            input_tokens: tokens("inputTokens"),
            output_tokens: tokens("outputTokens"),
            cache_read_tokens: tokens("cacheReadInputTokens"),
            cache_write_tokens: tokens("cacheCreationInputTokens"),
            reasoning_tokens: tokens("thinkingTokens"),
            cost: usage.get("costUSD").and_then(Value::as_f64).and_then(Cost::from_usd),
            ..Usage::default()
        }
    };
    value.as_object().map(|models| models.iter().map(of).collect()).unwrap_or_default()
}
