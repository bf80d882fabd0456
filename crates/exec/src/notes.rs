//! Notes: progress and log lines of a running attempt, in a bounded buffer until they are stored.
//!
//! Most attempts write no notes, so a sender and receiver cost little until the first one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::cut;
use tokio::sync::Notify;

/// Buffered notes of one attempt. Above it, log lines are dropped and counted.
const MAX_WAITING: usize = 1_024;
/// Bytes of one log line; longer ones are truncated and marked.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Files recorded per attempt. They describe the results, and are never dropped because lines came too fast.
pub const MAX_FILES: usize = 1_000;
/// Pieces of standard output kept per attempt. They are not lines, and are never dropped because lines came too fast.
pub const MAX_STDOUT_PIECES: usize = 2_048;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// For debugging.
    Debug,
    /// Informational.
    Info,
    /// Something is wrong, but the work continues.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// The name shown to users.
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

/// A note of a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Progress {
        /// Units done.
        done: u64,
        /// Units in all, if known.
        total: Option<u64>,
        /// A description.
        note: Option<String>,
    },
    Log {
        level: Level,
        message: String,
    },
    /// Something went wrong, and the work continues without it.
    Warning(String),
    /// A file that the attempt left in its task's folder.
    File {
        /// The path within the folder.
        path: String,
        /// Bytes.
        size: u64,
        /// The SHA-256 in hexadecimal digits.
        sha256: String,
    },
    /// A piece of the standard output of a command that did not succeed: JSON, a string or the list of its bytes.
    Stdout(String),
    /// This many lines were dropped, because the receiver was too slow.
    Dropped(u64),
}

/// Creates the sender and the receiver of one attempt.
#[must_use]
pub fn notes() -> (NoteSender, NoteReceiver) {
    let between = Arc::<Shared>::default();
    (NoteSender(Arc::new(SenderCount(Arc::clone(&between)))), NoteReceiver(between))
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct NoteSender(Arc<SenderCount>);

/// The receiving half.
#[derive(Debug)]
pub struct NoteReceiver(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    said: Mutex<Buffered>,
    /// Notified when there is a note, or when there will be no more.
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

/// Shared by all clones of a sender. Dropping the last one closes the channel.
#[derive(Debug)]
struct SenderCount(Arc<Shared>);

impl Drop for SenderCount {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl NoteSender {
    /// Sends a note. Never blocks: a slow receiver must not slow the work down.
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
        // The gap marker needs space too, or it would be the next to be dropped.
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
    /// The next note; `None` when the channel is closed and empty.
    pub async fn recv(&self) -> Option<Note> {
        let mut one = Vec::with_capacity(1);
        self.recv_many(&mut one, 1).await;
        one.pop()
    }

    /// Waits for notes, and appends up to `most` of them. Returns how many; zero when the channel is closed and empty.
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

    /// A note that is already buffered.
    #[must_use]
    pub fn try_recv(&self) -> Option<Note> {
        self.0.lock().waiting.pop_front()
    }

    /// Closes the channel. Notes sent before stay available.
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
