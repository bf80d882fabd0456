//! Budgets: what a claim reserves, what attempts spend, and what their ends settle.

use ostler_core::{ChargeVerdict, Closed, Cost, CostReservation, Outcome, Settlement, Task};
use ostler_store::Check;
use ostler_store::budgets::{Charge, ask};
use ostler_store::views::QueueSettings;

use super::state::{MemoryState, Slot};

/// What an attempt has of the budget of a queue.
pub(super) struct KeptReservation {
    pub(super) slot: Slot,
    pub(super) token: u64,
    /// The queue of its task.
    pub(super) queue: String,
    /// The queue whose budget it is.
    pub(super) charged: String,
    pub(super) held: CostReservation,
}

impl MemoryState {
    /// The budgets that the tasks of a queue are charged to.
    pub(super) fn charges(&self, queue: &str) -> Vec<Charge> {
        let Some(settings) = self.queues.get(queue).map(|queue| &queue.settings) else { return Vec::new() };
        let charge = |name: &str| {
            let budget = self.queues.get(name)?.settings.budget?;
            let spending = self.spending.get(name).cloned().unwrap_or_default();
            Some(Charge { queue: name.to_owned(), budget, spending })
        };
        settings.charged(queue).filter_map(charge).collect()
    }

    /// Asks the budgets of a queue whether one more task may start.
    pub(super) fn ask_budgets(&self, queue: &str) -> ChargeVerdict {
        let charges = self.charges(queue);
        if self.checks.pass(Check::Budget, false) {
            return ChargeVerdict::Start(vec![Cost::default(); charges.len()]);
        }
        ask(&charges, self.now)
    }

    /// Why the budgets of a queue let nothing start.
    pub(super) fn shut_by_budget(&self, queue: &str) -> Option<Closed> {
        ostler_store::budgets::shut(&self.charges(queue), self.now)
    }

    /// A claimed task has these amounts reserved.
    pub(super) fn reserve(&mut self, slot: Slot, amounts: &[Cost]) {
        let Task { queue, token, .. } = self.task(slot).clone();
        for (charge, amount) in self.charges(&queue).into_iter().zip(amounts) {
            let held = self.spending.entry(charge.queue.clone()).or_default().reserve(*amount);
            let (queue, charged) = (queue.clone(), charge.queue);
            self.reservations.push(KeptReservation { slot, token, queue, charged, held });
        }
    }

    /// Pauses the queue whose budget is reached.
    pub(super) fn pause_for_budget(&mut self, queue: &str, at: usize) {
        let Charge { queue, budget, spending } = self.charges(queue).swap_remove(at);
        let reason = budget.reason(&spending);
        self.queues.entry(queue).or_default().settings.paused.get_or_insert(reason);
    }

    /// An attempt has spent this.
    pub(super) fn spend(&mut self, slot: Slot, cost: Cost) {
        let (token, now) = (self.task(slot).token, self.now);
        let of_attempt = |kept: &&mut KeptReservation| (kept.slot, kept.token) == (slot, token);
        for kept in self.reservations.iter_mut().filter(of_attempt) {
            self.spending.entry(kept.charged.clone()).or_default().spend(&mut kept.held, cost, now);
        }
    }

    /// An attempt ended.
    pub(super) fn settle_budgets(&mut self, slot: Slot, outcome: &Outcome) {
        let token = self.task(slot).token;
        let how = Settlement::from(outcome.ending());
        for kept in self.take_reservations(|kept| (kept.slot, kept.token) == (slot, token)) {
            self.spending.entry(kept.charged).or_default().settle(kept.held, how);
            // A caller that waits for a settlement asks again.
            self.rings.ready = true;
        }
    }

    fn take_reservations(&mut self, wanted: impl Fn(&KeptReservation) -> bool) -> Vec<KeptReservation> {
        let (taken, kept) = std::mem::take(&mut self.reservations).into_iter().partition(|kept| wanted(kept));
        self.reservations = kept;
        taken
    }

    /// Applies changed settings to what is spent and reserved. May resume the queue.
    pub(super) fn change_budgets(&mut self, name: &str, before: &QueueSettings) {
        let now = self.now;
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.settings.budget.is_none() && before.budget.is_some() {
            self.forget_spending(name);
        }
        let spending = self.spending.get(name).cloned().unwrap_or_default();
        let queue = self.queues.entry(name.to_owned()).or_default();
        queue.settings.resume_with_budget(before, &spending, now);
        let (pool, former) = (queue.settings.pool.clone(), before.pool.clone());
        if let Some(former) = former.filter(|former| pool.as_ref() != Some(former) && former != name) {
            for kept in self.take_reservations(|kept| kept.queue == name && kept.charged == former) {
                self.spending.entry(kept.charged).or_default().release(kept.held);
            }
        }
    }

    /// Forgets what was spent from the budget of a queue.
    pub(super) fn forget_spending(&mut self, name: &str) {
        self.spending.remove(name);
        self.take_reservations(|kept| kept.charged == name);
    }
}
