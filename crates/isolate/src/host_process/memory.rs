//! The memory of a host: from its start on, its data may grow by twice the memory limit of a call, and by some room. The kernel
//! refuses more, whatever the engine does, and the host may not raise the bound: that system call is not in its list.
//!
//! An engine counts its memory itself and ends a call at its limit. V8 does not count everything: a long text is copied before it looks
//! (`docs/decisions/0030-memory-of-hosts.md`). What a call leaves behind in the process is the next one's, so a host that has grown leaves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};

use rustix::param::page_size;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Room for frames, payloads and outputs, and for an engine that is ending a call.
const ROOM_BYTES: u64 = 64 << 20;
/// What the last result of an exhausted host may need.
const RESERVE_BYTES: usize = 1 << 20;
/// The field of `/proc/self/statm` with the data of the process, in pages.
const DATA_FIELD: usize = 5;

/// Measures the data of this process: writable private memory, used or not, which is what the kernel compares with its bound.
pub(super) struct DataGauge {
    /// Opened once: a host may not open files later.
    statm: File,
    at_start: u64,
    limit: u64,
}

/// Memory that is given back when there is no more.
pub(super) struct MemoryReserve(Mutex<Option<Vec<u8>>>);

impl MemoryReserve {
    /// Gives it back: there is memory for a last result.
    pub(super) fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl DataGauge {
    /// For a process in which calls may use so much memory.
    pub(super) fn new(limit_bytes: usize) -> io::Result<Self> {
        let limit = u64::try_from(limit_bytes).unwrap_or(u64::MAX);
        let mut gauge = Self { statm: File::open("/proc/self/statm")?, at_start: 0, limit };
        gauge.at_start = gauge.bytes()?;
        Ok(gauge)
    }

    /// Bounds the data of this process.
    pub(super) fn bound(&self) -> io::Result<MemoryReserve> {
        let reserve = Vec::with_capacity(RESERVE_BYTES);
        let most = self.bytes()?.saturating_add(self.limit.saturating_mul(2)).saturating_add(ROOM_BYTES);
        setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
        Ok(MemoryReserve(Mutex::new(Some(reserve))))
    }

    /// Whether so much is left over from earlier calls that another one might not have its limit.
    pub(super) fn has_grown(&self) -> bool {
        // An engine that is at its limit leaves the rest to the one after it: half a limit, and half of the room.
        let usual = self.limit.saturating_add(self.limit / 2);
        let most = self.at_start.saturating_add(usual).saturating_add(ROOM_BYTES / 2);
        self.bytes().is_ok_and(|bytes| bytes > most)
    }

    fn bytes(&self) -> io::Result<u64> {
        let mut text = [0; 128];
        let read = self.statm.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(text.get(..read).unwrap_or_default()).unwrap_or_default();
        let pages: Option<u64> = text.split(' ').nth(DATA_FIELD).and_then(|pages| pages.parse().ok());
        let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has another form"))?;
        Ok(pages.saturating_mul(u64::try_from(page_size()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_grown_is_seen() {
        let gauge = DataGauge::new(1 << 20).expect("it is there");
        assert!(!gauge.has_grown());
        let more = vec![0_u8; 256 << 20];
        assert!(gauge.has_grown(), "by {} bytes", more.len());
    }
}
