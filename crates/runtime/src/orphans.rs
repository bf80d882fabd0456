//! Orphaned leases: leases that the store has for this session, but the node does not know. The response to their claim was
//! lost, or their report could not be written. They are handed back, so that the task runs again instead of staying leased
//! for as long as the node lives.
//!
//! A lease that is missing from a renewal is usually not an orphan: its claim or its report is under way. So it is handed
//! back only if two consecutive renewals list it, it is neither held nor being reported, and no claim that began before the
//! first of the two is still open. The token has the final say: handing back an outdated lease has no effect.

use std::collections::HashMap;

use ostler_store::LeaseRef;

use crate::leases::HeldLeases;

/// Suspects of the last renewal.
#[derive(Default)]
pub(crate) struct Orphans {
    /// Each with the number of claims begun when it was first seen.
    suspects: HashMap<LeaseRef, u64>,
}

impl Orphans {
    /// Takes the leases that a renewal did not name, and returns those to hand back.
    pub(crate) fn see(&mut self, unnamed: &[LeaseRef], held: &HeldLeases) -> Vec<LeaseRef> {
        let before = std::mem::take(&mut self.suspects);
        if unnamed.is_empty() {
            return Vec::new();
        }
        let claims = held.claims();
        let mut orphans = Vec::new();
        for lease in held.unknown(unnamed) {
            let first_seen = before.get(&lease).copied();
            if first_seen.is_some_and(|begun| claims.oldest_open.is_none_or(|open| open >= begun)) {
                orphans.push(lease);
            }
            // A lease that cannot be handed back now is retried with the next renewal.
            self.suspects.insert(lease, first_seen.unwrap_or(claims.begun));
        }
        orphans
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, TaskId};

    use super::*;

    fn lease(task: u128, token: u64) -> LeaseRef {
        LeaseRef { task: TaskId(Id::from_bits(task)), token, row: 1 }
    }

    #[test]
    fn an_unknown_lease_is_handed_back_when_it_is_listed_twice() {
        let (mut orphans, held) = (Orphans::default(), HeldLeases::default());
        let (one, other) = (lease(1, 1), lease(2, 5));
        assert_eq!(orphans.see(&[one], &held), []);
        assert_eq!(orphans.see(&[one, other], &held), [one]);
        assert_eq!(orphans.see(&[], &held), []);
        assert_eq!(orphans.see(&[other], &held), [], "not in a row");
        assert_eq!(orphans.see(&[lease(2, 6)], &held), [], "the token is another");
    }

    #[test]
    fn a_claim_that_is_under_way_may_have_taken_it() {
        let (mut orphans, held) = (Orphans::default(), HeldLeases::default());
        let one = lease(1, 1);
        let claim = held.claiming();
        for _ in 0..3 {
            assert_eq!(orphans.see(&[one], &held), [], "the claim is not answered");
        }
        // A claim that begins now cannot have taken it.
        let later = held.claiming();
        held.take(std::iter::once(one));
        drop(claim);
        assert_eq!(orphans.see(&[one], &held), [], "the claim took it");
        held.let_go(one);
        held.reported(&[one]);
        assert_eq!(orphans.see(&[one], &held), [], "it is listed for the first time");
        drop(later);
        let latest = held.claiming();
        assert_eq!(orphans.see(&[one], &held), [one]);
        drop(latest);
    }

    #[test]
    fn what_is_being_reported_is_not_handed_back() {
        let (mut orphans, held) = (Orphans::default(), HeldLeases::default());
        let one = lease(1, 1);
        held.take(std::iter::once(one));
        assert_eq!(held.let_go(one), None);
        for _ in 0..3 {
            assert_eq!(orphans.see(&[one], &held), []);
        }
        // Its report could not be written, or has just been written; in the latter case it is not listed again.
        held.reported(&[one]);
        assert_eq!(orphans.see(&[one], &held), []);
        assert_eq!(orphans.see(&[one], &held), [one]);
    }
}
