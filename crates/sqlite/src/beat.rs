//! Proof of life without the database: all nodes of an embedded store share one host.
//!
//! Each session has a file in the store's folder. The node holds an OS lock on it for as long as it lives, and
//! writes the machine's uptime into it at every beat. A free lock is a certain death, known at once. A beat that is
//! older than the TTL is an expired lease, also when the node still holds the lock: it may be stopped. Neither a
//! busy database nor a full disk keeps a beat back: it overwrites eight bytes in place.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::{Clock, Error};

use crate::fault::file_fault;

/// Names the boot of this machine: uptimes of different boots do not compare.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const BOOT_BYTES: usize = 36;
/// After the boot id.
const TTL_OFFSET: usize = 40;
const BEAT_OFFSET: u64 = 48;
const FILE_BYTES: usize = 56;

/// The sessions' files.
pub(crate) struct Beats {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    boot: [u8; BOOT_BYTES],
    /// The sessions of this process, with their locks.
    held: Mutex<HashMap<SessionId, File>>,
}

/// What a session's file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Its lock is free, its file is gone, or it is from before a reboot.
    Dead,
    /// Its lock is held.
    Held {
        /// When it last beat.
        beat: Duration,
        /// How long a beat holds.
        ttl: Duration,
    },
}

impl Beats {
    pub(crate) fn open(folder: &Path, clock: Arc<dyn Clock>) -> Self {
        let mut boot = [b'-'; BOOT_BYTES];
        // Without a boot id (not on Linux) the lock alone tells of a reboot, and it does: locks end with it.
        if let Ok(text) = std::fs::read(BOOT_ID) {
            boot.iter_mut().zip(&text).for_each(|(to, from)| *to = *from);
        }
        Self { folder: folder.to_owned(), clock, boot, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SessionId, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, session: SessionId) -> PathBuf {
        self.folder.join(format!("{session}.node"))
    }

    /// Takes the lock of a new session and writes its first beat. False: somebody has the lock.
    pub(crate) fn begin(&self, session: SessionId, ttl: Duration) -> Result<bool, Error> {
        let path = self.path(session);
        let fail = |error: std::io::Error| file_fault(&path, &error);
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = how.open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
        let mut bytes = [0u8; FILE_BYTES];
        bytes[..BOOT_BYTES].copy_from_slice(&self.boot);
        bytes[TTL_OFFSET..BEAT_OFFSET as usize].copy_from_slice(&millis_bytes(ttl));
        bytes[BEAT_OFFSET as usize..].copy_from_slice(&millis_bytes(self.clock.uptime()));
        file.write_all_at(&bytes, 0).map_err(fail)?;
        self.held().insert(session, file);
        Ok(true)
    }

    /// Beats. A session of another process may be helped along; its lock stays with its owner.
    pub(crate) fn beat(&self, session: SessionId) -> Result<(), Error> {
        let bytes = millis_bytes(self.clock.uptime());
        let path = self.path(session);
        let written = match self.held().get(&session) {
            Some(file) => file.write_all_at(&bytes, BEAT_OFFSET),
            None => OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|file| file.write_all_at(&bytes, BEAT_OFFSET)),
        };
        written.map_err(|error| file_fault(&path, &error))
    }

    /// Whether the session's node lives and has beaten within its TTL.
    pub(crate) fn is_in_time(&self, session: SessionId) -> bool {
        match self.sign(session) {
            Sign::Dead => false,
            Sign::Held { beat, ttl } => self.clock.uptime().saturating_sub(beat) <= ttl,
        }
    }

    fn sign(&self, session: SessionId) -> Sign {
        if let Some(file) = self.held().get(&session) {
            return self.read(file);
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(self.path(session)) else {
            return Sign::Dead;
        };
        match file.try_lock() {
            // It was free. Closing the file frees it again.
            Ok(()) => Sign::Dead,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => self.read(&file),
        }
    }

    fn read(&self, file: &File) -> Sign {
        let mut bytes = [0u8; FILE_BYTES];
        if file.read_exact_at(&mut bytes, 0).is_err() || bytes[..BOOT_BYTES] != self.boot {
            return Sign::Dead;
        }
        let millis = |at: usize| {
            let eight: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes are eight bytes");
            Duration::from_millis(u64::from_le_bytes(eight))
        };
        Sign::Held { beat: millis(BEAT_OFFSET as usize), ttl: millis(TTL_OFFSET) }
    }

    /// A copy of what holds the lock of a session of this process: the lock is free when the last copy is closed.
    pub(crate) fn tether(&self, session: SessionId) -> Option<OwnedFd> {
        let held = self.held();
        held.get(&session).and_then(|file| file.try_clone().ok()).map(OwnedFd::from)
    }

    /// The session is over: its file goes, and with it the lock.
    pub(crate) fn end(&self, session: SessionId) {
        self.held().remove(&session);
        // Somebody else may have been first.
        let _ = std::fs::remove_file(self.path(session));
    }

    /// Lets go of a session's lock without a word, as a killed process does.
    #[cfg(feature = "conformance")]
    pub(crate) fn drop_lock(&self, session: SessionId) {
        self.held().remove(&session);
    }
}

fn millis_bytes(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).to_le_bytes()
}
