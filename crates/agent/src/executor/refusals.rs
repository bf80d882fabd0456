//! Refused logins: what an agent means that asks for a login and does not say why.
//!
//! Without a login no task of the queue can work, and the queue stops. But some agents answer so whenever a login cannot be renewed, as when
//! the network is down. A login with which a conversation was held is there: that refusal may pass, so it is retried like other failures. This
//! is so for the conversation that is resumed, and a number of times for those that begin.

use std::sync::atomic::{AtomicU32, Ordering};

/// Refusals in a row that may pass after a login has worked: two for each of the usual number of workers.
const MAX_PASSING: u32 = 8;

/// The refusals of a pool since its login has worked.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Those that may still pass.
    left: AtomicU32,
}

impl Refusals {
    /// A conversation was held to its end.
    pub(super) fn login_works(&self) {
        self.left.store(MAX_PASSING, Ordering::Relaxed);
    }

    /// Whether a new refusal may pass by itself.
    pub(super) fn may_pass(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_may_pass_only_after_the_login_has_worked_and_not_for_ever() {
        let refusals = Refusals::default();
        assert!(!refusals.may_pass());
        refusals.login_works();
        let passing = (0..100).take_while(|_| refusals.may_pass()).count();
        assert_eq!(passing, 8);
        refusals.login_works();
        assert!(refusals.may_pass());
    }
}
