//! What work says while it runs: progress and log lines. They wait, bounded, for whoever keeps them.
//!
//! Most attempts say nothing, so a pair of ends costs little until the first note.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::cut;
use tokio::sync::Notify;

/// Notes of one attempt that wait to be kept. Over it, log lines are dropped and counted.
const MAX_WAITING: usize = 1_024;
/// Bytes of one log line; longer ones are cut, and marked.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Files that are recorded of one attempt. They are facts about what came out, and never dropped because lines came too fast.
pub const MAX_FILES: usize = 1_000;
/// Pieces of standard output that are kept of one attempt. They are no lines, and never dropped because lines came too fast.
pub const MAX_STDOUT_PIECES: usize = 2_048;

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
    /// Something went wrong that the work goes on without.
    Warning(String),
    /// A file that it left in its task's folder.
    File {
        /// Where, in the folder.
        path: String,
        /// Its bytes.
        size: u64,
        /// The SHA-256 of them, in hexadecimal digits.
        sha256: String,
    },
    /// A piece of what a command that did not succeed wrote to its standard output: JSON, a string or the list of its bytes.
    Stdout(String),
    /// So many lines were dropped, because nobody took them in time.
    Dropped(u64),
}

/// The two ends of the notes of one attempt.
#[must_use]
pub fn notes() -> (NoteSender, NoteReceiver) {
    let between = Arc::<Shared>::default();
    (NoteSender(Arc::new(SenderCount(Arc::clone(&between)))), NoteReceiver(between))
}

/// Where notes go in.
#[derive(Clone, Debug)]
pub struct NoteSender(Arc<SenderCount>);

/// Where notes come out.
#[derive(Debug)]
pub struct NoteReceiver(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    said: Mutex<Buffered>,
    /// Rung when there is a note, or never will be.
    news: Notify,
}

#[derive(Debug, Default)]
struct Buffered {
    waiting: VecDeque<Note>,
    dropped: u64,
    files: usize,
    stdout_pieces: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffered> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }
}

/// All who can say something. When the last of them is gone, nothing more is heard.
#[derive(Debug)]
struct SenderCount(Arc<Shared>);

impl Drop for SenderCount {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl NoteSender {
    /// Says something. Never waits: work must not be slower because nobody listens.
    pub fn say(&self, note: Note) {
        let note = match note {
            Note::Log { level, message } => Note::Log { level, message: cut(&message, MAX_LINE_BYTES) },
            Note::Warning(message) => Note::Warning(cut(&message, MAX_LINE_BYTES)),
            Note::Progress { .. } | Note::File { .. } | Note::Stdout(_) | Note::Dropped(_) => note,
        };
        let is_file = matches!(note, Note::File { .. });
        let is_stdout = matches!(note, Note::Stdout(_));
        let between = &self.0.0;
        let mut said = between.lock();
        if said.closed {
            return;
        }
        if is_file {
            said.files += 1;
            match said.files.cmp(&(MAX_FILES + 1)) {
                std::cmp::Ordering::Less => said.waiting.push_back(note),
                std::cmp::Ordering::Equal => {
                    let message = format!("not all files are recorded: there are more than {MAX_FILES}");
                    said.waiting.push_back(Note::Warning(message));
                }
                std::cmp::Ordering::Greater => return,
            }
            drop(said);
            return between.news.notify_one();
        }
        if is_stdout {
            if said.stdout_pieces < MAX_STDOUT_PIECES {
                said.stdout_pieces += 1;
                said.waiting.push_back(note);
            }
            drop(said);
            return between.news.notify_one();
        }
        // The mark of a gap needs room too, or it would be the next to be dropped.
        let needed = if said.dropped > 0 { 2 } else { 1 };
        if said.waiting.len() + needed > MAX_WAITING {
            said.dropped += 1;
            return;
        }
        let missed = std::mem::take(&mut said.dropped);
        if missed > 0 {
            said.waiting.push_back(Note::Dropped(missed));
        }
        said.waiting.push_back(note);
        drop(said);
        between.news.notify_one();
    }
}

impl NoteReceiver {
    /// The next note; `None` when there will be none any more.
    pub async fn recv(&self) -> Option<Note> {
        let mut one = Vec::with_capacity(1);
        self.recv_many(&mut one, 1).await;
        one.pop()
    }

    /// Waits for notes, and adds up to `most` of them. Answers how many; none, when there will be none any more.
    pub async fn recv_many(&self, into: &mut Vec<Note>, most: usize) -> usize {
        loop {
            let news = self.0.news.notified();
            {
                let mut said = self.0.lock();
                let some = said.waiting.len().min(most);
                if some > 0 || said.closed {
                    into.extend(said.waiting.drain(..some));
                    return some;
                }
            }
            news.await;
        }
    }

    /// A note that is there already.
    #[must_use]
    pub fn try_recv(&self) -> Option<Note> {
        self.0.lock().waiting.pop_front()
    }

    /// Hears nothing new. What was said before is still there.
    pub fn close(&self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize) -> Note {
        Note::Log { level: Level::Info, message: number.to_string() }
    }

    #[tokio::test]
    async fn what_was_said_is_heard_in_order_and_ends_with_the_last_who_could_speak() {
        let (said, heard) = notes();
        let other = said.clone();
        said.say(line(1));
        drop(said);
        other.say(line(2));
        drop(other);
        assert_eq!((heard.recv().await, heard.recv().await), (Some(line(1)), Some(line(2))));
        assert_eq!(heard.recv().await, None);
    }

    #[tokio::test]
    async fn after_a_close_nothing_new_is_heard() {
        let (said, heard) = notes();
        said.say(line(1));
        heard.close();
        said.say(line(2));
        assert_eq!((heard.recv().await, heard.recv().await), (Some(line(1)), None));
    }

    #[test]
    fn files_are_heard_however_many_lines_wait_up_to_a_bound_of_their_own() {
        let (said, heard) = notes();
        (0..MAX_WAITING + 5).for_each(|number| said.say(line(number)));
        let file = Note::File { path: "a".into(), size: 1, sha256: String::new() };
        (0..MAX_FILES + 5).for_each(|_| said.say(file.clone()));
        let all: Vec<Note> = std::iter::from_fn(|| heard.try_recv()).collect();
        assert_eq!(all.iter().filter(|note| **note == file).count(), MAX_FILES);
        assert!(matches!(all.last(), Some(Note::Warning(why)) if why.contains("1000")), "{:?}", all.last());
    }

    #[test]
    fn pieces_of_stdout_are_heard_however_many_lines_wait_up_to_a_bound_of_their_own() {
        let (said, heard) = notes();
        (0..MAX_WAITING + 5).for_each(|number| said.say(line(number)));
        (0..MAX_STDOUT_PIECES + 5).for_each(|_| said.say(Note::Stdout("\"a\"".into())));
        let pieces = std::iter::from_fn(|| heard.try_recv()).filter(|note| matches!(note, Note::Stdout(_)));
        assert_eq!(pieces.count(), MAX_STDOUT_PIECES);
    }

    #[test]
    fn over_the_bound_lines_are_dropped_and_the_gap_is_marked_once_there_is_room() {
        let (said, heard) = notes();
        (0..MAX_WAITING + 5).for_each(|number| said.say(line(number)));
        let _ = (heard.try_recv(), heard.try_recv());
        said.say(line(7));
        let all: Vec<Note> = std::iter::from_fn(|| heard.try_recv()).collect();
        assert_eq!(all.len(), MAX_WAITING);
        assert_eq!(all[MAX_WAITING - 2..], [Note::Dropped(5), line(7)]);
    }
}
