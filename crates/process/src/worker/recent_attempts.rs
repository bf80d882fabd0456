//! Recent attempts of a worker. A late frame about one of them is no protocol violation: one of the worker's threads may still
//! have been busy when the result was sent.

use std::collections::VecDeque;

/// How many attempts are remembered, at least.
const REMEMBERED: usize = 64;

#[derive(Debug)]
pub(super) struct RecentAttempts {
    known: VecDeque<(String, u64)>,
    most: usize,
}

impl RecentAttempts {
    /// Remembers those of a worker that runs this many at once.
    pub(super) fn new(at_once: usize) -> Self {
        Self { known: VecDeque::new(), most: REMEMBERED.max(at_once) }
    }

    pub(super) fn add(&mut self, id: String, token: u64) {
        if self.known.len() == self.most {
            self.known.pop_front();
        }
        self.known.push_back((id, token));
    }

    pub(super) fn has(&self, id: &str, token: u64) -> bool {
        self.known.iter().any(|(known, its)| known == id && *its == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempts_are_remembered_each_with_its_token() {
        let mut recent = RecentAttempts::new(1);
        (0..=REMEMBERED as u64).for_each(|token| recent.add("T".to_owned(), token));
        assert!(recent.has("T", 1) && recent.has("T", REMEMBERED as u64));
        assert!(!recent.has("T", 0), "it is too long ago");
        assert!(!recent.has("U", 1) && !recent.has("T", REMEMBERED as u64 + 1));
    }
}
