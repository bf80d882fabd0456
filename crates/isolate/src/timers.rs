//! The timer heap of a call. Which callback a timer has is known to the prelude alone.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::Instant;

/// Timers by their due time. Timers with the same due time fire in the order in which they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
    pending: HashSet<u32>,
    last: u32,
}

/// Cancelled timers that the heap may hold before it is rebuilt.
const MAX_CANCELLED: usize = 1_024;

impl Timers {
    /// Sets a timer, and returns its id.
    pub(crate) fn set(&mut self, due: Instant) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.heap.push(Reverse((due, self.last)));
        self.pending.insert(self.last);
        self.last
    }

    /// Cancels a timer. One that has fired, or never was, is ignored.
    pub(crate) fn cancel(&mut self, id: u32) {
        self.pending.remove(&id);
        if self.heap.len() > self.pending.len() + MAX_CANCELLED {
            self.heap.retain(|Reverse((_, id))| self.pending.contains(id));
        }
    }

    /// Timers that will fire.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, id))) = self.heap.peek() {
            if self.pending.contains(id) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the next timer, if it is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u32> {
        self.next_due().filter(|due| *due <= now)?;
        let Reverse((_, id)) = self.heap.pop()?;
        self.pending.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_fire_by_due_time_and_then_in_order() {
        let now = Instant::now();
        let mut timers = Timers::default();
        let late = timers.set(now + Duration::from_millis(2));
        let (first, second) = (timers.set(now), timers.set(now));
        assert_eq!(timers.take_due(now), Some(first));
        assert_eq!(timers.take_due(now), Some(second));
        assert_eq!(timers.take_due(now), None, "the next one is not due");
        assert_eq!(timers.take_due(now + Duration::from_millis(2)), Some(late));
        assert_eq!(timers.next_due(), None);
    }

    #[test]
    fn a_cancelled_timer_neither_fires_nor_piles_up() {
        let now = Instant::now();
        let mut timers = Timers::default();
        for _ in 0..100_000 {
            let id = timers.set(now);
            timers.cancel(id);
        }
        assert_eq!((timers.len(), timers.next_due()), (0, None));
        assert!(timers.heap.capacity() < 10 * MAX_CANCELLED, "the heap holds what was cancelled");
    }
}
