//! Turnstile: a fair lock for several processes writing one file.
//!
//! SQLite's own busy waiting is a lottery: next to a hot writer, a one-row commit waited for up to 9.7 s. Here a writer
//! locks `next`, waits for `main`, and releases `next` at once. A hot writer that returns for its next turn finds `next`
//! locked by the waiting writer, and so queues behind it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use ostler_store::{Error, ErrorKind};

use crate::fault::file_fault;
use crate::lock_folder::{Owner, open_or_make};

pub(crate) struct Turnstile {
    next: File,
    main: File,
}

/// The turn to write; ends on drop.
pub(crate) struct WriteTurn<'a>(&'a File);

impl Turnstile {
    /// Opens the two lock files in this folder.
    pub(crate) fn open(folder: &Path, owner: Option<Owner>) -> Result<Self, Error> {
        let open = |name: &str| {
            let path = folder.join(name);
            open_or_make(&path, owner).map_err(|error| file_fault(&path, &error))
        };
        Ok(Self { next: open("next.lock")?, main: open("main.lock")? })
    }

    /// Waits for a turn.
    pub(crate) fn enter(&self) -> Result<WriteTurn<'_>, Error> {
        let locked = |error: std::io::Error| file_fault(Path::new("the store's lock"), &error);
        self.next.lock().map_err(locked)?;
        let main = self.main.lock();
        // Whether or not `main` was locked, `next` must be released for the other writers.
        let _ = self.next.unlock();
        main.map_err(locked)?;
        Ok(WriteTurn(&self.main))
    }
}

/// The retry interval of a bounded wait.
const TRY_EVERY: Duration = Duration::from_millis(5);

impl Turnstile {
    /// Waits for a turn, but not indefinitely: the process that has it may be stopped. The callers of an open store's
    /// writer time out on their own; a process that opens a store has no such bound.
    pub(crate) fn enter_within(&self, patience: Duration) -> Result<WriteTurn<'_>, Error> {
        let until = Instant::now() + patience;
        take_within(&self.next, until)?;
        let main = take_within(&self.main, until);
        let _ = self.next.unlock();
        main?;
        Ok(WriteTurn(&self.main))
    }
}

fn take_within(lock: &File, until: Instant) -> Result<(), Error> {
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(file_fault(Path::new("the store's lock"), &error));
            }
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::park_timeout(TRY_EVERY);
            }
            Err(TryLockError::WouldBlock) => {
                let sentence = "another process holds the write lock of the store; it may be suspended";
                return Err(Error::new(ErrorKind::Busy, sentence));
            }
        }
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        // An unlock fails only for a closed file, and closing frees the lock as well.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_a_store_does_not_wait_forever_for_a_turn_that_another_process_keeps() {
        let folder = std::env::temp_dir().join(format!("ostler-turnstile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (keeps, waits) =
            (Turnstile::open(&folder, None).unwrap(), Turnstile::open(&folder, None).unwrap());
        let turn = keeps.enter().unwrap();
        let refused = waits.enter_within(Duration::from_millis(30)).err().expect("it gives up");
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.is_transient() && refused.to_string().contains("suspended"), "{refused}");
        drop(turn);
        drop(waits.enter_within(Duration::from_millis(30)).unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
