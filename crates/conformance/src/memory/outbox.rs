//! Outbox: entries are added when an attempt ends, taken by sessions, and removed when acknowledged.

use ostler_core::{EventBody, Outcome, SessionId, State, end_kind};

use super::state::{MemoryState, Slot};
use ostler_store::Check;
use ostler_store::outbox::{Ack, OutboxAnswer, OutboxEntry};

/// An outbox entry, its task, and the session that has taken it.
pub(super) struct Kept {
    telling: OutboxEntry,
    subscriber: String,
    pub(super) slot: Slot,
    taken: Option<SessionId>,
}

impl MemoryState {
    /// Adds an outbox entry for the task's current state, if its queue wants one.
    pub(super) fn note_end(&mut self, slot: Slot, outcome: Option<&Outcome>) {
        let subscribers = self.queue_settings(slot).subscribers;
        let at = self.now;
        let task = self.task(slot);
        let Some(what) = end_kind(&task.state, outcome) else { return };
        let run_at = match task.state {
            State::Queued { run_at, .. } => Some(run_at),
            State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => None,
        };
        let (queue, task, kind, attempt) = (task.queue.clone(), task.id, task.kind.clone(), task.runs);
        let failure = outcome.and_then(Outcome::failure).cloned();
        let entry =
            OutboxEntry { number: 0, queue, task, kind, attempt, what, at, failure, run_at, earlier: 0 };
        for subscriber in subscribers.wanting(what) {
            let number = self.next_telling;
            self.next_telling += 1;
            let telling = OutboxEntry { number, ..entry.clone() };
            self.tellings.push(Kept { telling, subscriber: subscriber.to_owned(), slot, taken: None });
            self.rings.ready = true;
        }
    }

    pub(super) fn take_outbox(
        &mut self,
        id: SessionId,
        queue: &str,
        subscriber: &str,
        limit: usize,
    ) -> OutboxAnswer {
        let live = self.is_live(id);
        if !self.checks.pass(Check::HearSession, live) {
            return OutboxAnswer::SessionEnded;
        }
        let free = |kept: &&mut Kept| {
            kept.telling.queue == queue && kept.subscriber == subscriber && kept.taken.is_none()
        };
        let taken = self.tellings.iter_mut().filter(free).take(limit).map(|kept| {
            kept.taken = Some(id);
            kept.telling.earlier += 1;
            OutboxEntry { earlier: kept.telling.earlier - 1, ..kept.telling.clone() }
        });
        OutboxAnswer::Entries(taken.collect())
    }

    pub(super) fn ack_outbox(&mut self, id: SessionId, delivery: Ack) {
        let Ack { number, warning } = delivery;
        let Some(place) = self.tellings.iter().position(|kept| kept.telling.number == number) else { return };
        let mine = self.tellings[place].taken == Some(id);
        if !self.checks.pass(Check::ToldTaken, mine) {
            return;
        }
        let Kept { slot, .. } = self.tellings.remove(place);
        if let Some(text) = warning {
            self.log(slot, EventBody::Warning { text });
        }
    }

    /// Removes the entries of a subscriber of a queue.
    pub(super) fn drop_entries(&mut self, queue: &str, subscriber: &str) {
        self.tellings.retain(|kept| kept.telling.queue != queue || kept.subscriber != subscriber);
    }

    /// Releases the unacknowledged entries of a session that ends.
    pub(super) fn free_tellings(&mut self, id: SessionId) {
        for kept in self.tellings.iter_mut().filter(|kept| kept.taken == Some(id)) {
            kept.taken = None;
            self.rings.ready = true;
        }
    }
}
