//! The dialogue with `codex app-server`: initialize, begin or resume a thread, start one turn, read until it is completed.
//!
//! A state machine without I/O: each line that is read says which lines to send. The id of the thread is known, and stored, before the
//! first request to a model.

use ostler_core::{EventBody, Timestamp, Usage};
use serde_json::Value;

use super::ending::{answer, concluded, hopeless, trouble};
use super::items::{ItemPhase, Items};
use super::requests;
use crate::ending::{ProcessEnd, RunReport, Trouble};
use crate::fact::{Fact, LimitState, LimitWindow};
use crate::json::{text, whole};
use crate::meter::Meter;
use crate::reason::Reason;
use crate::reset::from_seconds;
use crate::settings::{AgentSettings, SessionStart};
use crate::transcript::{error, raw, status, unreadable, warning};

/// "The server is overloaded."
const OVERLOADED: i64 = -32_001;
/// From this utilization on a limit is near.
const NEAR: f64 = 0.9;

#[derive(Debug)]
pub(in crate::dialect) struct AppServer {
    settings: AgentSettings,
    thread: Option<String>,
    turn: TurnState,
    model: Option<String>,
    items: Items,
    meter: Meter,
    turns: u32,
    /// Whether a tool was called since the last request was counted.
    has_called: bool,
    /// When a reached usage limit resets.
    resets_at: Option<Timestamp>,
    /// What the last error was that ended the turn: its end repeats it, in some versions without this.
    error_info: Option<Value>,
    is_interrupted: bool,
    end: Option<TurnEnd>,
    /// Why it was killed before it repeated a request.
    hopeless: Option<Trouble>,
}

#[derive(Debug)]
enum TurnState {
    NotStarted,
    Running { id: String },
}

#[derive(Debug)]
enum TurnEnd {
    Completed,
    Interrupted,
    Failed { message: String, info: Option<Value> },
    Refused(Trouble),
}

impl AppServer {
    pub(in crate::dialect) fn new(settings: &AgentSettings) -> Self {
        Self {
            thread: None,
            turn: TurnState::NotStarted,
            model: settings.model.clone(),
            items: Items::default(),
            meter: Meter::new(settings.prices.clone(), Vec::new()),
            turns: 0,
            has_called: false,
            resets_at: None,
            error_info: None,
            is_interrupted: false,
            end: None,
            hopeless: None,
            settings: settings.clone(),
        }
    }

    pub(in crate::dialect) fn open(&mut self) -> Vec<Fact> {
        vec![send(&requests::initialize())]
    }

    /// Whether the prompt waits for the thread.
    pub(in crate::dialect) const fn is_opening(&self) -> bool {
        self.thread.is_none() && self.end.is_none()
    }

    /// Interrupts the turn, once.
    pub(in crate::dialect) fn interrupt(&mut self) -> Option<Fact> {
        let (Some(thread), TurnState::Running { id }) = (&self.thread, &self.turn) else { return None };
        if self.is_interrupted || self.end.is_some() {
            return None;
        }
        self.is_interrupted = true;
        Some(send(&requests::interrupt(thread, id)))
    }

    pub(in crate::dialect) fn line(&mut self, line: &[u8]) -> Vec<Fact> {
        let Ok(value @ Value::Object(_)) = serde_json::from_slice(line) else { return unreadable(line) };
        let params = value.get("params").unwrap_or(&Value::Null);
        match (text(&value, "method"), value.get("id")) {
            // Pieces of an item that comes whole.
            (Some(method), None) if method.to_ascii_lowercase().ends_with("delta") => Vec::new(),
            (Some(method), id) => {
                let mut facts = vec![raw(line).into()];
                match id {
                    Some(id) => facts.push(send(&requests::answer(id, method))),
                    None => self.notified(method, params, &mut facts),
                }
                facts
            }
            (None, Some(id)) => {
                let mut facts = vec![raw(line).into()];
                self.answered(id.as_u64(), &value, &mut facts);
                facts
            }
            (None, None) => vec![raw(line).into()],
        }
    }

    pub(in crate::dialect) fn end(self, end: &ProcessEnd<'_>) -> RunReport {
        let terminal = self.end.map(|of_turn| match of_turn {
            TurnEnd::Completed => answer(self.items.answer, self.settings.schema.as_deref()),
            TurnEnd::Interrupted => Err(Trouble::new(Reason::Interrupted, "it was interrupted")),
            TurnEnd::Failed { message, info } => Err(trouble(&message, info.as_ref(), self.resets_at, end)),
            TurnEnd::Refused(trouble) => Err(trouble),
        });
        let terminal = terminal.or(self.hopeless.map(Err));
        RunReport { end: concluded(terminal, end), unreported: self.meter.unreported() }
    }

    /// A response to one of the requests.
    fn answered(&mut self, id: Option<u64>, value: &Value, facts: &mut Vec<Fact>) {
        if let Some(refusal) = value.get("error") {
            // The turn may have ended before it could be interrupted.
            if id != Some(requests::INTERRUPT) {
                self.refused(id, refusal, facts);
            }
            return;
        }
        let result = value.get("result").unwrap_or(&Value::Null);
        match id {
            Some(requests::INITIALIZE) => {
                facts.extend([send(&requests::initialized()), send(&requests::thread(&self.settings))]);
            }
            Some(requests::THREAD) => self.opened(result, facts),
            _ => {}
        }
    }

    /// The thread is there: it is stored before the turn is started.
    fn opened(&mut self, result: &Value, facts: &mut Vec<Fact>) {
        let Some(id) = result.get("thread").and_then(|thread| text(thread, "id")) else {
            let trouble = Trouble::new(Reason::Unknown, "it began a conversation without an id");
            return self.finish(TurnEnd::Refused(trouble), facts);
        };
        if let SessionStart::Resume { id: asked } = &self.settings.session {
            if asked != id {
                let message = format!("it began {id}: the conversation to resume is not there");
                let trouble = Trouble::new(Reason::UnknownSession, message);
                return self.finish(TurnEnd::Refused(trouble), facts);
            }
        } else {
            facts.push(EventBody::Session { id: id.to_owned() }.into());
        }
        self.model = text(result, "model").map(str::to_owned).or_else(|| self.model.take());
        self.thread = Some(id.to_owned());
        let schema = self.settings.schema.as_deref().and_then(|schema| serde_json::from_str(schema).ok());
        facts.push(send(&requests::turn(id, &self.settings.prompt, schema.as_ref())));
    }

    /// A request failed: there will be no turn.
    fn refused(&mut self, id: Option<u64>, refusal: &Value, facts: &mut Vec<Fact>) {
        let message = text(refusal, "message").unwrap_or("it refused a request").to_owned();
        facts.push(error(&*message));
        let is_resume = matches!(self.settings.session, SessionStart::Resume { .. });
        let of_turn = if refusal.get("code").and_then(Value::as_i64) == Some(OVERLOADED) {
            TurnEnd::Refused(Trouble::new(Reason::Overloaded, message))
        } else if id == Some(requests::THREAD) && is_resume {
            TurnEnd::Refused(Trouble::new(Reason::UnknownSession, message))
        } else {
            TurnEnd::Failed { message, info: refusal.get("data").and_then(error_info).cloned() }
        };
        self.finish(of_turn, facts);
    }

    fn notified(&mut self, method: &str, params: &Value, facts: &mut Vec<Fact>) {
        match method {
            "turn/started" => {
                if let Some(id) = params.get("turn").and_then(|turn| text(turn, "id")) {
                    self.turn = TurnState::Running { id: id.to_owned() };
                }
                facts.push(Fact::TurnStarted);
            }
            "item/started" | "item/completed" => {
                let phase = if method == "item/started" { ItemPhase::Started } else { ItemPhase::Completed };
                let read = params.get("item").map(|item| self.items.read(phase, item)).unwrap_or_default();
                let calls = read.iter().any(|fact| matches!(fact, Fact::ToolStarted { .. }));
                facts.extend(read);
                if calls && !self.has_called {
                    // Its usage comes when its tools have ended; if the node dies before, it was made all the same.
                    facts.push(Fact::Turns(self.turns + 1));
                }
                self.has_called |= calls;
                self.check_turns(facts);
            }
            "thread/tokenUsage/updated" => self.metered(params, facts),
            "account/rateLimits/updated" => self.limits(params, facts),
            "error" => {
                let of = params.get("error").unwrap_or(&Value::Null);
                let message = text(of, "message").unwrap_or("an error without a message");
                let will_retry = params.get("willRetry").and_then(Value::as_bool) == Some(true);
                if !will_retry {
                    self.error_info = error_info(of).cloned();
                }
                facts.push(if will_retry { status(message) } else { error(message) });
                let details = text(of, "additionalDetails").unwrap_or(message);
                if will_retry && let Some(trouble) = hopeless(details) {
                    self.hopeless = Some(trouble);
                    facts.insert(0, Fact::Hopeless);
                }
            }
            "warning" | "configWarning" | "deprecationNotice" => {
                let words = ["message", "summary"].into_iter().find_map(|name| text(params, name));
                facts.push(warning(words.unwrap_or(method)));
            }
            "turn/completed" => self.turn_ended(params, facts),
            _ => {}
        }
    }

    fn turn_ended(&mut self, params: &Value, facts: &mut Vec<Fact>) {
        let turn = params.get("turn").unwrap_or(&Value::Null);
        let of_turn = match text(turn, "status") {
            Some("completed") => {
                let text = self.items.answer.clone().unwrap_or_default();
                facts.push(EventBody::Result { text }.into());
                TurnEnd::Completed
            }
            Some("interrupted") => TurnEnd::Interrupted,
            _ => {
                let of = turn.get("error").unwrap_or(&Value::Null);
                let message = text(of, "message").unwrap_or("the turn failed").to_owned();
                let info = error_info(of).cloned().or_else(|| self.error_info.take());
                TurnEnd::Failed { message, info }
            }
        };
        self.finish(of_turn, facts);
    }

    /// There is nothing more to ask: the server exits when its input ends.
    fn finish(&mut self, end: TurnEnd, facts: &mut Vec<Fact>) {
        self.end.get_or_insert(end);
        facts.extend([Fact::ResultSeen, Fact::CloseStdin]);
    }

    /// A request that called a tool is followed by another one.
    fn check_turns(&self, facts: &mut Vec<Fact>) {
        if self.has_called && self.turns >= self.settings.max_turns {
            facts.push(Fact::TurnLimit);
        }
    }

    fn metered(&mut self, params: &Value, facts: &mut Vec<Fact>) {
        let Some(total) = params.get("tokenUsage").and_then(|usage| usage.get("total")) else { return };
        let total = total_usage(self.model.clone(), total);
        match &self.turn {
            // Repeated after a resume.
            TurnState::NotStarted => self.meter.baseline(total),
            TurnState::Running { .. } => {
                self.turns += 1;
                facts.push(Fact::Turns(self.turns));
                facts.extend(self.meter.total(vec![total]));
                self.check_turns(facts);
                self.has_called = false;
            }
        }
    }

    fn limits(&mut self, params: &Value, facts: &mut Vec<Fact>) {
        let Some(limits) = params.get("rateLimits") else { return };
        for name in ["primary", "secondary"] {
            let Some(of) = limits.get(name).filter(|window| window.is_object()) else { continue };
            let utilization = of.get("usedPercent").and_then(Value::as_f64).map(|percent| percent / 100.0);
            let resets_at = whole(of, "resetsAt").and_then(from_seconds);
            let state = match utilization {
                Some(used) if used >= 1.0 => LimitState::Reached,
                Some(used) if used >= NEAR => LimitState::Near,
                Some(_) | None => LimitState::Open,
            };
            if state == LimitState::Reached {
                self.resets_at = self.resets_at.max(resets_at);
            }
            facts.push(Fact::Limit(LimitWindow { name: name.to_owned(), utilization, resets_at, state }));
        }
    }
}

fn error_info(error: &Value) -> Option<&Value> {
    error.get("codexErrorInfo").filter(|info| !info.is_null())
}

fn send(request: &Value) -> Fact {
    Fact::Send(request.to_string())
}

/// Its input includes what was read from a cache or written to one.
fn total_usage(model: Option<String>, usage: &Value) -> Usage {
    let tokens = |name| whole(usage, name).unwrap_or(0);
    let (read, written) = (tokens("cachedInputTokens"), tokens("cacheWriteInputTokens"));
    Usage {
        model,
        input_tokens: tokens("inputTokens").saturating_sub(read).saturating_sub(written),
        output_tokens: tokens("outputTokens"),
        cache_read_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: tokens("reasoningOutputTokens"),
        ..Usage::default()
    }
}
