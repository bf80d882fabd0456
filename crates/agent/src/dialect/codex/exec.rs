//! The lines of `codex exec --json`.

use ostler_core::{EventBody, Usage};
use serde_json::Value;

use super::ending::{answer, concluded, hopeless, trouble};
use super::items::{ItemPhase, Items};
use crate::ending::{ProcessEnd, RunReport, Trouble};
use crate::fact::Fact;
use crate::json::{text, whole};
use crate::meter::Meter;
use crate::reason::Reason;
use crate::settings::{AgentSettings, SessionStart};
use crate::transcript::{error, raw, status, unreadable};

/// How it says that it tries again.
const RETRY: &str = "Reconnecting...";

#[derive(Debug)]
pub(in crate::dialect) struct ExecStream {
    session: SessionStart,
    schema: Option<String>,
    model: Option<String>,
    items: Items,
    meter: Meter,
    turns: u32,
    max_turns: u32,
    end: Option<TurnEnd>,
    /// Why it was killed before it repeated a request.
    hopeless: Option<Trouble>,
}

#[derive(Debug)]
enum TurnEnd {
    Completed,
    Failed(String),
    /// It began a new conversation in place of the one that was to be resumed.
    OtherSession,
}

impl ExecStream {
    pub(in crate::dialect) fn new(settings: &AgentSettings) -> Self {
        Self {
            session: settings.session.clone(),
            schema: settings.schema.clone(),
            model: settings.model.clone(),
            items: Items::default(),
            // Its totals are those of the conversation.
            meter: Meter::new(settings.prices.clone(), total_before(settings)),
            turns: 0,
            max_turns: settings.max_turns,
            end: None,
            hopeless: None,
        }
    }

    pub(in crate::dialect) fn line(&mut self, line: &[u8]) -> Vec<Fact> {
        let Ok(value @ Value::Object(_)) = serde_json::from_slice(line) else { return unreadable(line) };
        let mut facts = vec![raw(line).into()];
        let message = |value: &Value| text(value, "message").unwrap_or_default().to_owned();
        match text(&value, "type").unwrap_or_default() {
            "thread.started" => self.opened(text(&value, "thread_id").unwrap_or_default(), &mut facts),
            "turn.started" => facts.push(Fact::TurnStarted),
            sort @ ("item.started" | "item.completed") => {
                let phase = if sort == "item.started" { ItemPhase::Started } else { ItemPhase::Completed };
                let read = value.get("item").map(|item| self.items.read(phase, item)).unwrap_or_default();
                // It does not say how many requests it makes: one for each command is near.
                let calls = read.iter().filter(|fact| matches!(fact, Fact::ToolStarted { .. })).count();
                let returns = read.iter().any(|fact| matches!(fact, Fact::ToolFinished { .. }));
                facts.extend(read);
                for _ in 0..calls {
                    self.turns += 1;
                    facts.push(Fact::Turns(self.turns));
                }
                if returns && self.turns >= self.max_turns {
                    facts.push(Fact::TurnLimit);
                }
            }
            // Not the end: it also says so when it tries again.
            "error" => {
                let said = message(&value);
                let retried = said.strip_prefix(RETRY).and_then(|rest| rest.split_once('('));
                let trouble = retried.and_then(|(_, why)| hopeless(why.trim_end_matches(')')));
                if trouble.is_some() {
                    self.hopeless = trouble;
                    facts.insert(0, Fact::Hopeless);
                }
                facts.push(status(said));
            }
            "turn.completed" => {
                let total = value.get("usage").map(|usage| total_usage(self.model.clone(), usage));
                facts.extend(self.meter.total(total.into_iter().collect()));
                let text = self.items.answer.clone().unwrap_or_default();
                facts.extend([EventBody::Result { text }.into(), Fact::ResultSeen]);
                self.end.get_or_insert(TurnEnd::Completed);
            }
            "turn.failed" => {
                let said = value.get("error").map(message).unwrap_or_default();
                facts.extend([error(&*said), Fact::ResultSeen]);
                self.end.get_or_insert(TurnEnd::Failed(said));
            }
            _ => {}
        }
        facts
    }

    pub(in crate::dialect) fn end(self, end: &ProcessEnd<'_>) -> RunReport {
        let terminal = self.end.map(|of_turn| match of_turn {
            TurnEnd::Completed => answer(self.items.answer, self.schema.as_deref()),
            TurnEnd::Failed(message) => Err(trouble(&message, None, None, end)),
            TurnEnd::OtherSession => {
                let message = "it began a new conversation: the one to resume is not there";
                Err(Trouble::new(Reason::UnknownSession, message))
            }
        });
        let terminal = terminal.or(self.hopeless.map(Err));
        RunReport { end: concluded(terminal, end), unreported: self.meter.unreported() }
    }

    fn opened(&mut self, id: &str, facts: &mut Vec<Fact>) {
        match &self.session {
            SessionStart::Resume { id: asked } if asked == id => {}
            // A name that it does not know starts a new one, without an error.
            SessionStart::Resume { .. } => {
                self.end = Some(TurnEnd::OtherSession);
                facts.extend([error(format!("it began the new conversation {id}")), Fact::ResultSeen]);
            }
            SessionStart::New { .. } => facts.push(EventBody::Session { id: id.to_owned() }.into()),
        }
    }
}

/// What earlier runs of the conversation spent, as one total: codex names no model.
fn total_before(settings: &AgentSettings) -> Vec<Usage> {
    if settings.spent_before.is_empty() {
        return Vec::new();
    }
    let mut total = Usage { model: settings.model.clone(), ..Usage::default() };
    settings.spent_before.iter().for_each(|usage| total.add(usage));
    vec![Usage { cost: None, ..total }]
}

/// Its input includes what was read from a cache or written to one.
fn total_usage(model: Option<String>, usage: &Value) -> Usage {
    let tokens = |name| whole(usage, name).unwrap_or(0);
    let (read, written) = (tokens("cached_input_tokens"), tokens("cache_write_input_tokens"));
    Usage {
        model,
        input_tokens: tokens("input_tokens").saturating_sub(read).saturating_sub(written),
        output_tokens: tokens("output_tokens"),
        cache_read_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: tokens("reasoning_output_tokens"),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_goes_on_after_the_last_command_it_may_run_is_over_the_limit() {
        let session = SessionStart::New { id: "unused".into() };
        let settings = AgentSettings { max_turns: 2, ..AgentSettings::new("Do it.", session) };
        let mut stream = ExecStream::new(&settings);
        let mut says = |sort: &str, id: &str| {
            let line = format!(
                r#"{{"type":"item.{sort}","item":{{"id":"{id}","type":"command_execution","command":"ls","status":"completed"}}}}"#
            );
            stream.line(line.as_bytes()).contains(&Fact::TurnLimit)
        };
        let lines = [("started", "1"), ("completed", "1"), ("started", "2"), ("completed", "2")];
        assert_eq!(lines.map(|(sort, id)| says(sort, id)), [false, false, false, true]);
    }
}
