//! A line of the log: an event as text for people, or as a JSON object. Text of tasks may contain anything; control characters are
//! escaped, and long values are cut.

use std::fmt;
use std::fmt::Write as _;

use ostler_core::{Timestamp, cut, visible, visible_json};
use ostler_wire::time::TimeView;
use serde_json::Value;
use tracing::Level;
use tracing::field::{Field, Visit};

use super::settings::LogFormat;

/// The maximum size of a sentence or value.
const MAX_VALUE_BYTES: usize = 2_048;
/// The field with the sentence.
const MESSAGE: &str = "message";

pub(super) struct Line {
    time: Timestamp,
    level: &'static str,
    target: &'static str,
    event: &'static str,
    sentence: String,
    fields: Vec<(&'static str, Value)>,
}

impl Line {
    pub(super) fn of(event: &tracing::Event<'_>, time: Timestamp) -> Self {
        let about = event.metadata();
        let (level, target) = (level_name(*about.level()), about.target());
        let mut line = Self::plain(level, about.name(), time, String::new());
        line.target = target;
        event.record(&mut line);
        line
    }

    fn plain(level: &'static str, event: &'static str, time: Timestamp, sentence: String) -> Self {
        Self { time, level, target: super::TARGET, event, sentence, fields: Vec::new() }
    }

    pub(super) fn render(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => self.text(),
            LogFormat::Json => self.json(),
        }
    }

    /// Time, level, sentence, fields.
    fn text(&self) -> String {
        let (time, level) = (TimeView::from(self.time), self.level.to_ascii_uppercase());
        let mut line = format!("{time} {level:5} {}", visible(&self.sentence));
        for (name, value) in &self.fields {
            let _ = match value {
                Value::String(text) if is_word(text) => write!(line, " {name}={text}"),
                Value::String(text) => {
                    write!(line, " {name}=\"{}\"", visible(text).replace('"', "\\\""))
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    write!(line, " {name}={value}")
                }
            };
        }
        line.push('\n');
        line
    }

    fn json(&self) -> String {
        let text = |text: &str| Value::from(text);
        let own = [
            ("time", Value::from(TimeView::from(self.time).to_string())),
            ("level", text(self.level)),
            ("target", text(self.target)),
            ("event", text(self.event)),
            (MESSAGE, text(&self.sentence)),
        ];
        // In this order, which a map does not keep.
        let pairs: Vec<String> =
            own.iter().chain(&self.fields).map(|(name, value)| format!("{}:{value}", text(name))).collect();
        format!("{{{}}}\n", visible_json(&pairs.join(",")))
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            (MESSAGE, Value::String(sentence)) => self.sentence = sentence,
            (MESSAGE, value) => self.sentence = value.to_string(),
            (name, value) => self.fields.push((name, value)),
        }
    }
}

/// Only what `tracing` calls with.
impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, cut(value, MAX_VALUE_BYTES).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, cut(&format!("{value:?}"), MAX_VALUE_BYTES).into());
    }
}

/// The line about lines that were not written.
pub(super) fn lost(format: LogFormat, time: Timestamp, lines: u64) -> String {
    let sentence = format!("{lines} lines of the log were dropped: standard error was not read in time");
    Line::plain("warn", "log.dropped", time, sentence).render(format)
}

/// The error with which the program exits. For people, it looks like that of any other command.
pub(super) fn exit(format: LogFormat, time: Timestamp, sentence: &str) -> String {
    match format {
        LogFormat::Text => format!("ostler: {}\n", ostler_core::visible_lines(sentence)),
        LogFormat::Json => Line::plain("error", "exit", time, sentence.to_owned()).render(format),
    }
}

const fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Whether a value needs no quotes.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_.:/?#@+,".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(sentence: &str, fields: &[(&'static str, Value)]) -> Line {
        let time = Timestamp::from_millis(1_785_553_200_000);
        let fields = fields.to_vec();
        Line { fields, ..Line::plain("warn", "task.retried", time, sentence.to_owned()) }
    }

    #[test]
    fn a_line_for_people_has_time_level_sentence_and_fields() {
        let fields = [("task", "01J".into()), ("attempt", 2.into()), ("error", "no \"route\"".into())];
        let text = line("task failed", &fields).render(LogFormat::Text);
        let expected =
            "2026-08-01T03:00:00.000Z WARN  task failed task=01J attempt=2 error=\"no \\\"route\\\"\"\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_line_for_programs_is_one_object() {
        let fields = [("task", "01J".into()), ("attempt", 2.into())];
        let text = line("task failed", &fields).render(LogFormat::Json);
        let expected = "{\"time\":\"2026-08-01T03:00:00.000Z\",\"level\":\"warn\",\"target\":\"ostler::node\",\
             \"event\":\"task.retried\",\"message\":\"task failed\",\"task\":\"01J\",\"attempt\":2}\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn text_of_a_task_moves_no_cursor_and_begins_no_line() {
        let hostile = "a\nb\u{1b}[2J\u{9b}c\r\u{202e}";
        let found = line(hostile, &[("error", hostile.into())]);
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = found.render(format);
            let shown = text.strip_suffix('\n').expect("it is a line");
            assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
        }
        let read: Value = serde_json::from_str(&found.render(LogFormat::Json)).expect("it is JSON");
        assert_eq!((read["message"].as_str(), read["error"].as_str()), (Some(hostile), Some(hostile)));
    }
}
