//! The memory meter of an isolate: heap and buffers together, against one limit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The smallest heap that V8 is given. Below it, V8 may abort while it creates a context; a lower limit is checked by the meter.
const MIN_HEAP_BYTES: usize = 8 << 20;
/// Memory beyond twice the limit, for a script that is being terminated.
const LAST_BYTES: usize = 32 << 20;

/// Counts the memory of one isolate. V8 may free buffers on any thread.
#[derive(Debug)]
pub(super) struct MemoryMeter {
    limit: usize,
    /// The heap when it was last measured.
    heap: AtomicUsize,
    buffers: AtomicUsize,
    exceeded: AtomicBool,
}

impl MemoryMeter {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            limit,
            heap: AtomicUsize::new(0),
            buffers: AtomicUsize::new(0),
            exceeded: AtomicBool::new(false),
        }
    }

    /// The heap limit of V8.
    pub(super) fn heap_limit(&self) -> usize {
        self.limit.max(MIN_HEAP_BYTES)
    }

    /// The heap limit when V8 asks for more. It gets no more the next time.
    pub(super) fn last_heap_limit(&self, current: usize) -> usize {
        current.max(self.heap_limit().saturating_mul(2).saturating_add(LAST_BYTES))
    }

    /// Counts a buffer, if there is room for it.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let heap = self.heap.load(Ordering::Relaxed);
        let taken = self.buffers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |buffers| {
            let buffers = buffers.checked_add(bytes)?;
            (buffers.checked_add(heap)? <= self.limit).then_some(buffers)
        });
        taken.is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.buffers.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn buffers(&self) -> usize {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Notes the size of the heap. Returns whether the limit is exceeded.
    pub(super) fn measured(&self, heap: usize) -> bool {
        self.heap.store(heap, Ordering::Relaxed);
        let exceeded = heap.saturating_add(self.buffers()) > self.limit;
        if exceeded {
            self.exceed();
        }
        exceeded
    }

    /// Whether V8's own limit is above this one, and the heap must be measured after each script.
    pub(super) fn is_below_v8(&self) -> bool {
        self.limit < MIN_HEAP_BYTES
    }

    /// The limit is exceeded.
    pub(super) fn exceed(&self) {
        self.exceeded.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_and_buffers_share_a_limit() {
        let meter = MemoryMeter::new(100);
        assert!(!meter.measured(60));
        assert!(meter.take(40) && !meter.take(1), "up to the limit");
        meter.give_back(40);
        assert!(!meter.take(usize::MAX), "no overflow");
        assert_eq!((meter.buffers(), meter.is_exceeded()), (0, false), "a refused buffer is not counted");
        assert!(meter.measured(101) && meter.is_exceeded());
    }

    #[test]
    fn v8_gets_more_memory_once() {
        let meter = MemoryMeter::new(64 << 20);
        assert_eq!(meter.heap_limit(), 64 << 20);
        assert_eq!(meter.last_heap_limit(64 << 20), 160 << 20);
        assert_eq!(meter.last_heap_limit(160 << 20), 160 << 20);
    }
}
