//! The dialect of a plain command: text on standard output, an exit code, and optional patterns for cost and session.

use ostler_core::{Cost, EventBody, Role, Usage};
use regex::Regex;

use crate::ending::{
    AgentAnswer, AgentEnd, ProcessEnd, ProcessExit, RunReport, StopCause, Trouble, conclude,
};
use crate::fact::Fact;
use crate::launch::{LaunchPlan, PlanError, PromptInput};
use crate::meter::Meter;
use crate::reason::Reason;
use crate::settings::{AgentSettings, LinePatterns, SessionStart};
use crate::transcript::{raw, said, warning};

/// Bytes of the answer, but for the line that passes them.
const MAX_ANSWER_BYTES: usize = 4 << 20;

pub(super) fn plan(settings: &AgentSettings) -> Result<LaunchPlan, PlanError> {
    let Some((program, first)) = settings.command.split_first() else { return Err(PlanError::NoCommand) };
    if let SessionStart::Resume { .. } = settings.session {
        return Err(PlanError::NoResume);
    }
    Ok(LaunchPlan {
        program: program.clone(),
        arguments: first.iter().chain(&settings.extra).cloned().collect(),
        set: Vec::new(),
        files: Vec::new(),
        credentials: &[],
        input: PromptInput::Whole(settings.prompt.clone()),
    })
}

/// The text so far.
#[derive(Debug)]
pub(super) struct Text {
    patterns: LinePatterns,
    answer: String,
    is_schema_asked: bool,
    meter: Meter,
    session: Option<String>,
}

impl Text {
    pub(super) fn new(settings: &AgentSettings) -> Self {
        Self {
            patterns: settings.patterns.clone(),
            answer: String::new(),
            is_schema_asked: settings.schema.is_some(),
            meter: Meter::new(settings.prices.clone(), Vec::new()),
            session: None,
        }
    }

    pub(super) fn line(&mut self, line: &[u8]) -> Vec<Fact> {
        let text = String::from_utf8_lossy(line);
        let mut facts = Vec::new();
        // A line of text is its own event; only other bytes have to be kept beside it.
        if std::str::from_utf8(line).is_err() || line.contains(&0) {
            facts.push(raw(line).into());
        }
        facts.push(said(Role::Assistant, &*text));
        let value = |pattern: &Option<Regex>| {
            let found = pattern.as_ref()?.captures(&text)?;
            Some(found.get(1).or_else(|| found.get(0))?.as_str().trim().to_owned())
        };
        if let Some(id) = value(&self.patterns.session).filter(|id| self.session.as_ref() != Some(id)) {
            facts.push(EventBody::Session { id: id.clone() }.into());
            self.session = Some(id);
        }
        let usd = value(&self.patterns.cost).and_then(|usd| usd.trim_start_matches('$').parse().ok());
        if let Some(cost) = usd.and_then(Cost::from_usd) {
            facts.extend(self.meter.total(vec![Usage { cost: Some(cost), ..Usage::default() }]));
        }
        facts.extend(self.keep(&text));
        facts
    }

    /// Adds a line to the answer. Says once that the rest is left out.
    fn keep(&mut self, line: &str) -> Option<Fact> {
        if self.answer.len() > MAX_ANSWER_BYTES {
            return None;
        }
        self.answer.push_str(line);
        self.answer.push('\n');
        let size = MAX_ANSWER_BYTES;
        (self.answer.len() > size)
            .then(|| warning(format!("the answer has more than {size} bytes; the rest is only in the log")))
    }

    pub(super) fn end(self, end: &ProcessEnd<'_>) -> RunReport {
        let is_done = end.exit == ProcessExit::Code(0) && end.stop == StopCause::None;
        let text = self.answer.strip_suffix('\n').unwrap_or(&self.answer).to_owned();
        let terminal = is_done.then(|| {
            if !self.is_schema_asked {
                return Ok(AgentAnswer { text, ..AgentAnswer::default() });
            }
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(value) => {
                    Ok(AgentAnswer { structured: Some(value.to_string()), text, ..AgentAnswer::default() })
                }
                Err(error) => Err(Trouble::new(Reason::Schema, format!("the answer is not JSON: {error}"))),
            }
        });
        let mut end_of_run = conclude(terminal, end, |_| None);
        if let AgentEnd::Failed(trouble) = &mut end_of_run
            && trouble.reason == Reason::Unknown
            && let ProcessExit::Code(code) = end.exit
        {
            let said =
                crate::ending::last_line(end.stderr).map(|said| format!(": {said}")).unwrap_or_default();
            trouble.message = format!("it exited with {code}{said}");
        }
        RunReport { end: end_of_run, unreported: Vec::new() }
    }
}
