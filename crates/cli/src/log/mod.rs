//! The log of a node: what `ostler up` writes to standard error, as lines of text or JSON. The events come from the node, which
//! emits them with `tracing`; only the program decides where they go.
//!
//! - `settings.rs`: the format, and which events are written. `line.rs`: an event as a line. `writer.rs`: the queue in front of
//!   standard error, so that a reader that stopped reading stops no work.

mod line;
mod settings;
mod writer;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use ostler_store::{Clock as _, SystemClock};
use tracing::{Level, event};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use line::Line;
pub(crate) use settings::{FILTER, LogFormat, LogLevel, LogSettings, Verbosity, filter};
use writer::LogWriter;

/// How long the end of the program waits for the last lines to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);
/// The target of the program's own sentences, which are about the node.
const TARGET: &str = "ostler::node";
/// The program exits with the message of this event.
const SAID_AT_THE_END: &str = "store.gone";

/// The log of this process, once it is open.
static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
struct Log {
    format: LogFormat,
    writer: LogWriter,
}

/// Opens the log: from now on, events of the node and sentences of the program are lines of it.
pub(crate) fn open(format: LogFormat, which: Targets) -> io::Result<()> {
    let lost = move |lines: u64| line::lost(format, SystemClock.now(), lines);
    let writer = LogWriter::start(io::stderr(), lost)?;
    if LOG.set(Log { format, writer }).is_ok() {
        // The only subscriber of this program.
        let _ = tracing::subscriber::set_global_default(
            tracing_subscriber::registry().with(which).with(LogLayer),
        );
    }
    Ok(())
}

/// Waits until all lines are written, or for a second.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.writer.flush(FLUSH_PATIENCE);
    }
}

/// Writes a sentence of the program to the log, if that is open.
pub(crate) fn takes(level: LogLevel, sentence: &str) -> bool {
    if LOG.get().is_none() {
        return false;
    }
    match level {
        LogLevel::Error | LogLevel::Warn => {
            event!(name: "node.warning", target: TARGET, Level::WARN, "{sentence}");
        }
        LogLevel::Info | LogLevel::Debug => {
            event!(name: "node.note", target: TARGET, Level::INFO, "{sentence}");
        }
    }
    true
}

/// Writes the error with which the program exits, whatever the levels are, if the log is open.
pub(crate) fn takes_last(sentence: &str) -> bool {
    let Some(log) = LOG.get() else { return false };
    log.writer.write(line::exit(log.format, SystemClock.now(), sentence));
    flush();
    true
}

/// What a node is, as its first line says it.
pub(crate) struct UpLine<'a> {
    pub(crate) node: &'a str,
    pub(crate) session: String,
    pub(crate) store: String,
    pub(crate) config: &'a str,
    pub(crate) pools: String,
    pub(crate) containment: &'a str,
}

/// Says that the node is up.
pub(crate) fn node_up(up: &UpLine<'_>) {
    let UpLine { node, session, store, config, pools, containment } = up;
    let version = env!("CARGO_PKG_VERSION");
    event!(
        name: "node.up", target: TARGET, Level::INFO,
        { version, store = store.as_str(), config, pools = pools.as_str(), containment },
        "node {node} ({session}) is up"
    );
}

/// Turns events into lines of the log.
struct LogLayer;

impl<S: tracing::Subscriber> Layer<S> for LogLayer {
    /// Events name what they are about: spans, which handlers of the library need, are not recorded.
    fn enabled(&self, about: &tracing::Metadata<'_>, _context: Context<'_, S>) -> bool {
        about.is_event()
    }

    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        if let Some(log) = LOG.get().filter(|_| event.metadata().name() != SAID_AT_THE_END) {
            log.writer.write(Line::of(event, SystemClock.now()).render(log.format));
        }
    }
}
