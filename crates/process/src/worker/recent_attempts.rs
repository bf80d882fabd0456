//! Recent attempts of a worker. A late frame about one of them is no protocol violation: one of the worker's threads may still
//! have been busy when the result was sent.

use std::collections::VecDeque;

/// How many attempts are remembered.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct RecentAttempts(VecDeque<(String, u64)>);

impl RecentAttempts {
    pub(super) fn add(&mut self, id: String, token: u64) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((id, token));
    }

    pub(super) fn has(&self, id: &str, token: u64) -> bool {
        self.0.iter().any(|(known, its)| known == id && *its == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempts_are_remembered_each_with_its_token() {
        let mut recent = RecentAttempts::default();
        (0..=REMEMBERED as u64).for_each(|token| recent.add("T".to_owned(), token));
        assert!(recent.has("T", 1) && recent.has("T", REMEMBERED as u64));
        assert!(!recent.has("T", 0), "it is too long ago");
        assert!(!recent.has("U", 1) && !recent.has("T", REMEMBERED as u64 + 1));
    }
}
