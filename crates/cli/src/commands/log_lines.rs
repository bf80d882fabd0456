//! The lines of `ostler logs`: which events are printed, with what in front, and how many of the last.

use std::collections::{BTreeMap, VecDeque};

use ostler_core::Level;
use ostler_wire::event::EventView;

use super::Console;
use crate::args::LogShape;
use crate::exit::{Code, refused, say};
use crate::print::Format;

/// Prints the events of a task.
pub(super) struct LogLines<'a> {
    console: &'a Console,
    shape: &'a LogShape,
    /// The numbers of attempts, by their tokens.
    attempts: BTreeMap<u64, u32>,
    at: LineEnd,
    /// The last lines, until the log has been read for the first time.
    tail: Option<VecDeque<String>>,
    printed: u64,
    left_out: u64,
}

/// Whether the last output ended its line: pieces of standard output may not.
#[derive(Clone, Copy, Default)]
enum LineEnd {
    #[default]
    Whole,
    Open,
}

/// What is known of a task whose log is empty.
pub(super) enum SilentTask {
    Running,
    Ended,
    WithOutput,
}

impl<'a> LogLines<'a> {
    pub(super) fn new(console: &'a Console, shape: &'a LogShape) -> Self {
        let tail = shape.tail.map(|_| VecDeque::new());
        let (attempts, at) = (BTreeMap::new(), LineEnd::Whole);
        Self { console, shape, attempts, at, tail, printed: 0, left_out: 0 }
    }

    /// Whether the attempts of the task must be known before these events can be printed.
    pub(super) fn must_know_attempts(&self, views: &[EventView]) -> bool {
        let asked = self.shape.attempt_numbers || self.shape.attempt.is_some();
        asked && views.iter().any(|view| !self.attempts.contains_key(&view.token))
    }

    /// The numbers and tokens of the attempts so far.
    pub(super) fn know_attempts(&mut self, attempts: impl IntoIterator<Item = (u32, u64)>) {
        self.attempts.extend(attempts.into_iter().map(|(number, token)| (token, number)));
    }

    /// Refuses an attempt that the task does not have.
    pub(super) fn check_attempt(&self, id: &str) -> anyhow::Result<()> {
        let Some(wanted) = self.shape.attempt else { return Ok(()) };
        if self.attempts.values().any(|number| *number == wanted) {
            return Ok(());
        }
        let sentence = match self.attempts.values().max() {
            None => format!("{id} has no attempt {wanted}: it has not started"),
            Some(last) => format!("{id} has no attempt {wanted}; the last one is {last}"),
        };
        Err(refused(Code::NotFound, sentence))
    }

    pub(super) fn print(&mut self, views: &[EventView]) -> anyhow::Result<()> {
        let (wanted, others): (Vec<&EventView>, Vec<&EventView>) =
            views.iter().partition(|view| self.is_wanted(view));
        self.left_out += others.len() as u64;
        self.printed += wanted.len() as u64;
        let text = match self.console.out.format() {
            Format::Json => {
                let lines: Result<Vec<String>, _> = wanted.iter().map(serde_json::to_string).collect();
                lines?.into_iter().map(|line| line + "\n").collect()
            }
            Format::People => self.text(&wanted),
        };
        self.put(&text)
    }

    /// All events so far were printed.
    pub(super) fn up_to_date(&mut self) -> anyhow::Result<()> {
        match self.tail.take() {
            Some(tail) => self.out(&tail.into_iter().collect::<String>()),
            None => Ok(()),
        }
    }

    /// There is no more: ends an open line, and says why nothing was printed.
    pub(super) fn end(mut self, id: &str, task: SilentTask) -> anyhow::Result<()> {
        self.up_to_date()?;
        self.console.out.text(self.end_line())?;
        if self.printed > 0 || self.console.out.format() == Format::Json {
            return Ok(());
        }
        let sentence = match (self.left_out, task) {
            (1.., _) => format!("nothing in the log of {id} fits the options; all of it: ostler logs {id}"),
            (0, SilentTask::Running) => {
                format!("{id} has written nothing to its log so far; to follow it: ostler logs -f {id}")
            }
            (0, SilentTask::Ended) => {
                format!("{id} wrote nothing to its log; more about it: ostler show {id}")
            }
            (0, SilentTask::WithOutput) => {
                format!("{id} wrote nothing to its log; its output: ostler show {id}")
            }
        };
        say(&sentence);
        Ok(())
    }

    fn is_wanted(&self, view: &EventView) -> bool {
        let level = self.shape.level.is_none_or(|least| rank(view.severity()) >= rank(least));
        let attempt = self.shape.attempt.is_none_or(|wanted| self.attempts.get(&view.token) == Some(&wanted));
        level && attempt
    }

    fn text(&mut self, views: &[&EventView]) -> String {
        let mut text = String::new();
        for (view, next) in views.iter().zip(views.iter().skip(1).map(Some).chain([None])) {
            if view.is_stdout() {
                self.add(&mut text, view, &view.data);
                continue;
            }
            // Of one that follows later, the line has ended.
            if !view.is_continued() {
                text.push_str(self.end_line());
            }
            self.add(&mut text, view, &view.line());
            if !next.is_some_and(|next| next.is_continued()) {
                // A text that is empty is a line, too.
                self.at = LineEnd::Open;
                text.push_str(self.end_line());
            }
        }
        text
    }

    /// Adds what an event says, with the time and the attempt in front of each line that begins.
    fn add(&mut self, text: &mut String, view: &EventView, said: &str) {
        let front = self.front(view);
        let empty = said.is_empty().then_some("");
        for line in said.split_inclusive('\n').chain(empty) {
            match self.at {
                LineEnd::Whole => text.push_str(&front),
                LineEnd::Open => {}
            }
            text.push_str(line);
            self.at = if line.ends_with('\n') { LineEnd::Whole } else { LineEnd::Open };
        }
    }

    fn front(&self, view: &EventView) -> String {
        let time = if self.shape.time { format!("{} ", view.at) } else { String::new() };
        let attempt = self.attempts.get(&view.token).filter(|_| self.shape.attempt_numbers);
        time + &attempt.map(|number| format!("#{number} ")).unwrap_or_default()
    }

    fn end_line(&mut self) -> &'static str {
        match std::mem::take(&mut self.at) {
            LineEnd::Whole => "",
            LineEnd::Open => "\n",
        }
    }

    /// Prints the text, or keeps its last lines.
    fn put(&mut self, text: &str) -> anyhow::Result<()> {
        let (Some(tail), Some(most)) = (&mut self.tail, self.shape.tail) else { return self.out(text) };
        for line in text.split_inclusive('\n') {
            match tail.back_mut().filter(|last| !last.ends_with('\n')) {
                Some(open) => open.push_str(line),
                None => tail.push_back(line.to_owned()),
            }
        }
        tail.drain(..tail.len().saturating_sub(most));
        Ok(())
    }

    fn out(&self, text: &str) -> anyhow::Result<()> {
        match self.console.out.format() {
            Format::Json if text.is_empty() => Ok(()),
            Format::Json => Ok(self.console.out.json_line(text.trim_end_matches('\n'))?),
            Format::People => Ok(self.console.out.task_text(text)?),
        }
    }
}

/// How grave a level is.
const fn rank(level: Level) -> u8 {
    match level {
        Level::Debug => 0,
        Level::Info => 1,
        Level::Warn => 2,
        Level::Error => 3,
    }
}
