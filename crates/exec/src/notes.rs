//! What work says while it runs: progress and log lines. They go through a bounded channel to whoever keeps them.

use ostler_core::cut;
use tokio::sync::mpsc;

/// Notes of one attempt that wait to be kept. Over it, log lines are dropped and counted.
const MAX_WAITING: usize = 1_024;
/// Bytes of one log line; longer ones are cut, and marked.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// For whoever looks for a fault.
    Debug,
    /// For anybody.
    Info,
    /// Something is not as it should be.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Something that work said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// How far it is.
    Progress {
        /// So much is done.
        done: u64,
        /// Of so much, if that is known.
        total: Option<u64>,
        /// In words.
        note: Option<String>,
    },
    /// A log line.
    Log {
        /// How much it matters.
        level: Level,
        /// The line.
        message: String,
    },
    /// So many lines were dropped, because nobody took them in time.
    Dropped(u64),
}

/// Where notes go in.
#[derive(Clone, Debug)]
pub struct Notes {
    sender: mpsc::Sender<Note>,
    dropped: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

/// A channel for the notes of one attempt.
#[must_use]
pub fn notes() -> (Notes, mpsc::Receiver<Note>) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    (Notes { sender, dropped: std::sync::Arc::default() }, receiver)
}

impl Notes {
    /// Says something. Never waits: work must not be slower because nobody listens.
    pub fn say(&self, note: Note) {
        use std::sync::atomic::Ordering::Relaxed;
        let note = match note {
            Note::Log { level, message } => Note::Log { level, message: cut(&message, MAX_LINE_BYTES) },
            Note::Progress { .. } | Note::Dropped(_) => note,
        };
        let missed = self.dropped.swap(0, Relaxed);
        let room = missed == 0 || self.sender.try_send(Note::Dropped(missed)).is_ok();
        let said = room && self.sender.try_send(note).is_ok();
        if !room {
            self.dropped.fetch_add(missed, Relaxed);
        }
        if !said {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}
