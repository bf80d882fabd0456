//! The writer of the log: a bounded queue and a thread. Writing a line never waits for standard error: lines that find no room are
//! dropped and counted, and the count is written when there is room again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum lines that wait to be written.
const MAX_LINES: usize = 4_096;

#[derive(Debug)]
pub(super) struct LogWriter(Arc<LogQueue>);

#[derive(Debug, Default)]
struct LogQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<String>,
    dropped: u64,
    /// Lines that the thread has taken and not written yet.
    taken: usize,
}

impl LogWriter {
    /// Starts the thread. `lost` renders the line about dropped ones.
    pub(super) fn start(
        mut to: impl Write + Send + 'static,
        lost: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(LogQueue::default());
        let served = Arc::clone(&queue);
        let serve = move || {
            loop {
                let (lines, dropped) = served.take();
                let unwritten = write_all(&mut to, &lines, dropped, &lost);
                served.wrote(unwritten);
            }
        };
        std::thread::Builder::new().name("ostler-log".to_owned()).spawn(serve)?;
        Ok(Self(queue))
    }

    /// Queues a line, which ends with a line feed.
    pub(super) fn write(&self, line: String) {
        let mut state = self.0.lock();
        if state.lines.len() < MAX_LINES {
            state.lines.push_back(line);
            drop(state);
            self.0.changed.notify_all();
        } else {
            state.dropped += 1;
        }
    }

    /// Waits until all lines are written, at most this long.
    pub(super) fn flush(&self, patience: Duration) {
        let busy = |state: &mut QueueState| !state.lines.is_empty() || state.taken > 0;
        drop(self.0.changed.wait_timeout_while(self.0.lock(), patience, busy));
    }
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for lines, and takes all of them, with the number of those that were dropped before them.
    fn take(&self) -> (VecDeque<String>, u64) {
        let idle = |state: &mut QueueState| state.lines.is_empty();
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        state.taken = state.lines.len();
        let dropped = std::mem::take(&mut state.dropped);
        (std::mem::take(&mut state.lines), dropped)
    }

    fn wrote(&self, unwritten: u64) {
        let mut state = self.lock();
        state.taken = 0;
        state.dropped += unwritten;
        drop(state);
        self.changed.notify_all();
    }
}

/// Writes the lines, and then how many are missing. Returns how many lines could not be written, for the next time.
fn write_all(
    to: &mut impl Write,
    lines: &VecDeque<String>,
    dropped: u64,
    lost: &impl Fn(u64) -> String,
) -> u64 {
    let unwritten = lines.iter().filter(|line| to.write_all(line.as_bytes()).is_err()).count() as u64;
    match dropped + unwritten {
        0 => 0,
        missing => match to.write_all(lost(missing).as_bytes()) {
            Ok(()) => 0,
            Err(_) => missing,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use ostler_testkit::MAX_WAIT;

    use super::*;

    /// A standard error whose reader takes each write when the test does.
    struct Pipe(SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(bytes).into_owned();
            self.0.send(text).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn opened() -> (LogWriter, Receiver<String>) {
        let (sender, read) = sync_channel(0);
        let lost = |lines| format!("{lines} dropped\n");
        (LogWriter::start(Pipe(sender), lost).expect("a thread starts"), read)
    }

    #[test]
    fn a_reader_that_stops_reading_delays_no_line_and_hears_what_it_missed() {
        let (log, read) = opened();
        log.write("first\n".to_owned());
        // The thread has taken the first line and waits in its write, once this one is queued alone.
        while log.0.lock().taken == 0 {
            std::thread::yield_now();
        }
        for number in 0..MAX_LINES + 7 {
            log.write(format!("{number}\n"));
        }
        let lines: Vec<String> =
            (0..MAX_LINES + 2).map(|_| read.recv_timeout(MAX_WAIT).expect("a line")).collect();
        assert_eq!((lines[0].as_str(), lines[MAX_LINES].as_str()), ("first\n", "4095\n"));
        assert_eq!(lines[MAX_LINES + 1], "7 dropped\n");
        log.flush(MAX_WAIT);
        assert!(read.try_recv().is_err(), "nothing is left");
    }

    #[test]
    fn a_closed_reader_blocks_neither_lines_nor_the_end() {
        let (log, read) = opened();
        drop(read);
        (0..3 * MAX_LINES).for_each(|number| log.write(format!("{number}\n")));
        log.flush(MAX_WAIT);
        let state = log.0.lock();
        assert!(state.lines.is_empty() && state.dropped == 3 * MAX_LINES as u64, "{state:?}");
    }
}
