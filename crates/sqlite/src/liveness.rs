//! Liveness files: heartbeats and liveness locks without the database. All nodes of an embedded store share one host.
//!
//! Each session has a file in the store's folder. The node holds an OS lock on it for as long as it lives, and writes the
//! machine's uptime into it at every heartbeat. A free lock proves that the node is dead, without delay. A heartbeat
//! older than the TTL is an expired lease, even if the node still holds the lock: it may be stopped. Neither a busy
//! database nor a full disk delays a heartbeat: it overwrites eight bytes in place.
//!
//! An observer that cannot open or read the file learns nothing from it and must not guess: it may be out of descriptors,
//! or the file may belong to another user. It can still see whether the file changes, which needs no descriptor and no
//! read permission: a node whose file has not changed for a whole TTL, by the observer's own monotonic clock, has missed
//! its heartbeats.

use std::collections::HashMap;
use std::fs::{File, Metadata, TryLockError};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::{Clock, Error};

use crate::fault::file_fault;
use crate::lock_folder::{Owner, SUFFIX, open_existing, open_or_make};

/// Identifies the boot of this machine: uptimes of different boots are not comparable.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const BOOT_BYTES: usize = 36;
/// A flag after the boot id: the node is shutting down on purpose.
const DEPARTED_OFFSET: u64 = BOOT_BYTES as u64;
const DEPARTED: u8 = 1;
const TTL_OFFSET: usize = 40;
const BEAT_OFFSET: u64 = 48;
const FILE_BYTES: usize = 56;

/// The liveness files of all sessions.
pub(crate) struct LivenessFiles {
    folder: PathBuf,
    /// The owner that the files are given.
    owner: Option<Owner>,
    clock: Arc<dyn Clock>,
    boot: [u8; BOOT_BYTES],
    /// The sessions of this process, with their locks.
    held: Mutex<HashMap<SessionId, File>>,
    /// Sessions whose file this process cannot read.
    unreadable: Mutex<HashMap<SessionId, UnreadableFile>>,
}

/// A file that can be seen but not read.
#[derive(Clone, Copy)]
struct UnreadableFile {
    /// The file's change time. It is compared only with itself: the wall clock decides nothing.
    changed: (i64, i64),
    /// The uptime at which this change time was first seen.
    since: Duration,
}

/// The state that a session's file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LivenessSign {
    /// The lock is free, or the file is gone.
    Dead,
    /// The lock is held.
    Held {
        /// The uptime at the last heartbeat.
        beat: Duration,
        /// How long a heartbeat is valid.
        ttl: Duration,
    },
    /// The file could not be opened or read, or its content is unusable.
    Unknown {
        /// The file's change time; `None`: unknown as well.
        changed: Option<(i64, i64)>,
    },
}

impl LivenessFiles {
    /// # Errors
    /// If the boot id cannot be read.
    pub(crate) fn open(folder: &Path, owner: Option<Owner>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let mut boot = [b'-'; BOOT_BYTES];
        match std::fs::read(BOOT_ID) {
            Ok(text) => boot.iter_mut().zip(&text).for_each(|(to, from)| *to = *from),
            // Without a boot id (not on Linux) only the lock reveals a reboot, and that suffices: locks do not survive
            // one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_fault(Path::new(BOOT_ID), &error)),
        }
        let folder = folder.to_owned();
        Ok(Self { folder, owner, clock, boot, held: Mutex::default(), unreadable: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SessionId, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self, session: SessionId) -> PathBuf {
        self.folder.join(format!("{session}.{SUFFIX}"))
    }

    /// Takes the lock of a new session and writes its first heartbeat. False: another process holds the lock.
    pub(crate) fn begin(&self, session: SessionId, ttl: Duration) -> Result<bool, Error> {
        let path = self.path(session);
        let fail = |error: std::io::Error| file_fault(&path, &error);
        let file = open_or_make(&path, self.owner).map_err(fail)?;
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

    /// Writes a heartbeat. This may be done for a session of another process; its lock stays with its owner.
    pub(crate) fn beat(&self, session: SessionId) -> Result<(), Error> {
        let bytes = millis_bytes(self.clock.uptime());
        let path = self.path(session);
        let written = match self.held().get(&session) {
            Some(file) => file.write_all_at(&bytes, BEAT_OFFSET),
            None => open_existing(&path).and_then(|file| file.write_all_at(&bytes, BEAT_OFFSET)),
        };
        written.map_err(|error| file_fault(&path, &error))
    }

    /// Records that the session's node is shutting down on purpose. False: the session has ended.
    pub(crate) fn depart(&self, session: SessionId) -> Result<bool, Error> {
        let path = self.path(session);
        let note = |file: &File| {
            // Another process found the session ended and removed its file.
            if file.metadata()?.nlink() == 0 {
                return Err(std::io::ErrorKind::NotFound.into());
            }
            file.write_all_at(&[DEPARTED], DEPARTED_OFFSET)
        };
        let written = match self.held().get(&session) {
            Some(file) => note(file),
            None => open_existing(&path).and_then(|file| note(&file)),
        };
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(file_fault(&path, &error)),
        }
    }

    /// Whether the session's node recorded that it is shutting down on purpose; false if that cannot be read.
    pub(crate) fn has_departed(&self, session: SessionId) -> bool {
        let mut note = [0u8; 1];
        let mut read = |file: &File| file.read_exact_at(&mut note, DEPARTED_OFFSET);
        let read = match self.held().get(&session) {
            Some(file) => read(file),
            None => File::open(self.path(session)).and_then(|file| read(&file)),
        };
        read.is_ok() && note == [DEPARTED]
    }

    /// Whether the session may still act, as far as is known: its node is not dead, and its last heartbeat is within its
    /// TTL.
    pub(crate) fn is_in_time(&self, session: SessionId) -> bool {
        match self.sign(session) {
            LivenessSign::Dead => false,
            LivenessSign::Held { beat, ttl } => self.is_within(beat, ttl),
            LivenessSign::Unknown { .. } => true,
        }
    }

    /// Whether the session has ended: its node is dead, or its last heartbeat is older than its TTL. `ttl` is the one in
    /// the session's row, for a file that cannot be read.
    pub(crate) fn is_over(&self, session: SessionId, ttl: Duration) -> bool {
        let sign = self.sign(session);
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        match sign {
            LivenessSign::Dead | LivenessSign::Held { .. } => {
                unreadable.remove(&session);
            }
            LivenessSign::Unknown { .. } => {}
        }
        match sign {
            LivenessSign::Dead => true,
            LivenessSign::Held { beat, ttl } => !self.is_within(beat, ttl),
            LivenessSign::Unknown { changed: Some(changed) } => {
                let seen = UnreadableFile { changed, since: self.clock.uptime() };
                let watched = unreadable.entry(session).or_insert(seen);
                if watched.changed != changed {
                    *watched = seen;
                }
                !self.is_within(watched.since, ttl)
            }
            // Without an observation there is no conclusion.
            LivenessSign::Unknown { changed: None } => false,
        }
    }

    fn is_within(&self, beat: Duration, ttl: Duration) -> bool {
        self.clock.uptime().saturating_sub(beat) <= ttl
    }

    fn sign(&self, session: SessionId) -> LivenessSign {
        if let Some(file) = self.held().get(&session) {
            return self.read(file);
        }
        let path = self.path(session);
        let file = match open_existing(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return LivenessSign::Dead,
            Err(_) => return unknown(std::fs::symlink_metadata(&path)),
        };
        match file.try_lock() {
            // The lock was free. Closing the file frees it again.
            Ok(()) => LivenessSign::Dead,
            // The heartbeat is readable even if the lock could not be tested.
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => self.read(&file),
        }
    }

    /// Reads a file whose lock is held, or may be.
    fn read(&self, file: &File) -> LivenessSign {
        let mut bytes = [0u8; FILE_BYTES];
        // A lock does not survive a reboot, so a file with another boot's id was not written by the process that holds
        // its lock.
        if file.read_exact_at(&mut bytes, 0).is_err() || bytes[..BOOT_BYTES] != self.boot {
            return unknown(file.metadata());
        }
        let millis = |at: usize| {
            let eight: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes are eight bytes");
            Duration::from_millis(u64::from_le_bytes(eight))
        };
        LivenessSign::Held { beat: millis(BEAT_OFFSET as usize), ttl: millis(TTL_OFFSET) }
    }

    /// Duplicates the descriptor that holds the lock of one of this process's sessions: the lock is free once the last
    /// duplicate is closed.
    pub(crate) fn liveness_lock(&self, session: SessionId) -> Result<Option<OwnedFd>, Error> {
        let held = self.held();
        let copy = held.get(&session).map(File::try_clone).transpose();
        let copy = copy.map_err(|error| file_fault(&self.path(session), &error))?;
        Ok(copy.map(OwnedFd::from))
    }

    /// Removes the file of an ended session, and releases its lock.
    pub(crate) fn end(&self, session: SessionId) {
        self.held().remove(&session);
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        // Another process may have removed it first.
        let _ = std::fs::remove_file(self.path(session));
    }

    /// Releases a session's lock without ending the session, as a killed process does.
    #[cfg(feature = "conformance")]
    pub(crate) fn drop_lock(&self, session: SessionId) {
        self.held().remove(&session);
    }
}

/// The sign for a file that cannot be read.
fn unknown(seen: std::io::Result<Metadata>) -> LivenessSign {
    match seen {
        Ok(file) => LivenessSign::Unknown { changed: Some((file.mtime(), file.mtime_nsec())) },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => LivenessSign::Dead,
        Err(_) => LivenessSign::Unknown { changed: None },
    }
}

fn millis_bytes(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).to_le_bytes()
}
