//! How several processes take turns at writing one file.
//!
//! SQLite's own waiting is a lottery: beside a hot writer a one-row commit waited for up to 9.7 s. Here a writer
//! queues at `next`, takes `main` from whoever writes, and lets go of `next` at once. The hot writer, back for
//! its next turn, finds `next` taken by the one who waits, and so goes behind it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ostler_store::Error;

use crate::fault::file_fault;

/// The two locks.
pub(crate) struct Turnstile {
    next: File,
    main: File,
}

/// The turn. It ends when this is dropped.
pub(crate) struct Turn<'a>(&'a File);

impl Turnstile {
    /// The locks in this folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let open = |name: &str| {
            let path = folder.join(name);
            let mut how = OpenOptions::new();
            how.read(true).write(true).create(true).truncate(false).mode(0o600);
            how.open(&path).map_err(|error| file_fault(&path, &error))
        };
        Ok(Self { next: open("next.lock")?, main: open("main.lock")? })
    }

    /// Waits for a turn.
    pub(crate) fn enter(&self) -> Result<Turn<'_>, Error> {
        let locked = |error: std::io::Error| file_fault(Path::new("the store's lock"), &error);
        self.next.lock().map_err(locked)?;
        let main = self.main.lock();
        // Whatever became of `main`, nobody may be kept waiting at `next`.
        let _ = self.next.unlock();
        main.map_err(locked)?;
        Ok(Turn(&self.main))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // An unlock fails only for a closed file, and that frees the lock as well.
        let _ = self.0.unlock();
    }
}
