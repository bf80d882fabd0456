//! A question to the user of `ostler map`, where there is a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::print::Format;
use crate::up::Signals;

/// What came of a question.
pub(crate) enum Reply {
    /// The line, without blanks around it.
    Line(String),
    Interrupted,
}

/// Whether the user can be asked.
pub(crate) fn can_ask(format: Format) -> bool {
    format == Format::People && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks, and waits for a line.
pub(crate) async fn ask(question: String, signals: &mut Signals) -> anyhow::Result<Reply> {
    tokio::select! {
        line = tokio::task::spawn_blocking(move || read(&question)) => Ok(Reply::Line(line??)),
        () = signals.next() => Ok(Reply::Interrupted),
    }
}

fn read(question: &str) -> io::Result<String> {
    let _ = write!(io::stderr(), "{question}");
    let _ = io::stderr().flush();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
