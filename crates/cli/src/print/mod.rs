//! Output: text and tables for people, JSON for programs.

mod account;
mod cost;
mod findings;
mod job;
mod limits;
mod schedule;
mod status;
mod system;
mod table;
mod task;
mod when;

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

pub(crate) use ostler_core::{visible, visible_json, visible_lines};

pub(crate) use account::{account, accounts};
pub(crate) use cost::costs;
pub(crate) use findings::findings;
pub(crate) use job::{job, jobs};
pub(crate) use limits::{breaker, breakers, queue, queues};
pub(crate) use schedule::{schedule, schedules};
pub(crate) use status::status;
pub(crate) use system::{gone_workers, nodes, stats, workers};
pub(crate) use task::{list, show};
pub(crate) use when::{ago, long as how_long};

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    People,
    Json,
}

/// How text is styled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Plain text, never truncated.
    Plain,
    /// A terminal: long columns are truncated.
    Terminal,
    /// A terminal with colours.
    Colour,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    format: Format,
    looks: Looks,
}

impl Out {
    pub(crate) fn new(format: Format) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let looks = match (io::stdout().is_terminal(), no_colour) {
            (false, _) => Looks::Plain,
            (true, true) => Looks::Terminal,
            (true, false) => Looks::Colour,
        };
        Self { format, looks }
    }

    pub(crate) const fn format(self) -> Format {
        self.format
    }

    pub(crate) const fn looks(self) -> Looks {
        self.looks
    }

    /// Prints text of a task; on a terminal, control characters are escaped.
    pub(crate) fn task_text(self, text: &str) -> io::Result<()> {
        match self.looks {
            Looks::Plain => self.text(text),
            Looks::Terminal | Looks::Colour => self.text(&visible_lines(text)),
        }
    }

    /// Prints text unchanged.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| io::Error::new(error.kind(), format!("cannot write the output: {error}")))
    }

    pub(crate) fn line(self, line: &str) -> io::Result<()> {
        self.text(&format!("{line}\n"))
    }

    pub(crate) fn json(self, value: &impl Serialize) -> io::Result<()> {
        self.json_line(&serde_json::to_string(value)?)
    }

    /// Prints lines of JSON.
    pub(crate) fn json_line(self, json: &str) -> io::Result<()> {
        match self.looks {
            Looks::Plain => self.line(json),
            Looks::Terminal | Looks::Colour => self.line(&visible_json(json)),
        }
    }

    /// Prints the result of a command: `value` as JSON, otherwise `text`.
    pub(crate) fn answer(self, value: &impl Serialize, text: impl FnOnce(Looks) -> String) -> io::Result<()> {
        match self.format {
            Format::Json => self.json(value),
            Format::People => self.text(&text(self.looks)),
        }
    }
}
