//! Call breakers: circuit breakers around calls that handlers make, by name.

use ostler_core::{Breaker, BreakerPolicy, Pass};
use ostler_store::call_breakers::{BreakerUse, CallBreakerRecord, MAX_CALL_BREAKERS};

use super::state::MemoryState;

impl MemoryState {
    pub(super) fn call_breaker(&mut self, name: &str, policy: &BreakerPolicy, what: BreakerUse) -> Pass {
        let before =
            self.call_breakers.get(name).map_or_else(Breaker::closed, |(breaker, _)| breaker.clone());
        let mut breaker = before.clone();
        let pass = match what {
            BreakerUse::Ask => breaker.ask(policy, self.now),
            BreakerUse::Report(result) => {
                breaker.report(policy, result, self.now);
                Pass::Go
            }
        };
        if breaker == Breaker::closed() {
            self.call_breakers.remove(name);
        } else if breaker != before {
            self.call_breakers.insert(name.to_owned(), (breaker, self.now));
        }
        if self.call_breakers.len() > MAX_CALL_BREAKERS {
            let oldest = self.call_breakers.iter().min_by_key(|(name, (_, changed_at))| (*changed_at, *name));
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.call_breakers.remove(&oldest);
            }
        }
        pass
    }

    pub(super) fn list_call_breakers(&self) -> Vec<CallBreakerRecord> {
        let records = self.call_breakers.iter().map(|(name, (breaker, changed_at))| CallBreakerRecord {
            name: name.clone(),
            state: breaker.state,
            changed_at: *changed_at,
        });
        records.collect()
    }
}
