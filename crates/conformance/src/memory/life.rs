//! The life of a task: enqueue, claim, start, finish, events and steps, cancel and replay.

use std::collections::BTreeMap;

use ostler_core::{
    Attempt, CancelReason, Cancelling, ChargeVerdict, Charging, Conversation, EventBody, Fairness, Overrides,
    PROMPT_SHOWN, PromptRef, Rank, Readiness, Replaying, State, StateName, Step, Task, TaskId, Timestamp,
    Usage, Wait, add_usage, beginning, cancel, former_payload_event, place, replay, replay_event, too_late,
};

use super::costs::FirstUsage;
use super::gates::ClaimVerdict;
use super::state::{MemoryState, Slot};
use ostler_store::Check;
use ostler_store::calls::Amended;
use ostler_store::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Finished, NewStep, NewTask,
    Replay, ReplayAnswer, Report, Saved, Start, StepsOnReplay,
};
use ostler_store::events::Event;
use ostler_store::gates::{MAX_DUE_KEYS, most_looked_at};
use ostler_store::{Lease, LeaseRef};
use ostler_store::{MAX_EVENT_BYTES, MAX_STEPS};

impl MemoryState {
    pub(super) fn enqueue(&mut self, new: NewTask) -> Enqueued {
        if self.slot_of(new.id).is_some() {
            return Enqueued::Existing(new.id);
        }
        let new = match self.queues.get(&new.queue) {
            Some(queue) => queue.settings.filled(new),
            None => new,
        };
        if let Some(answer) = self.clash(&new) {
            return answer;
        }
        let others = match self.places(&new.after) {
            Ok(others) => others,
            Err(unknown) => return Enqueued::NoSuchTask(unknown),
        };
        let queue = self.queues.entry(new.queue.clone()).or_default();
        if let Some(limit) = queue.settings.limit {
            let waiting = self
                .slots(|task| task.queue == new.queue && task.state.name() == StateName::Queued)
                .len() as u64;
            if waiting >= limit {
                return Enqueued::QueueFull { limit };
            }
        }
        let run_at = new.run_at.unwrap_or(self.now);
        let id = new.id;
        let slot = self.insert(Task {
            id,
            queue: new.queue,
            kind: new.kind,
            payload: new.payload,
            output: None,
            priority: new.priority,
            rank: Rank(0),
            state: State::Queued { readiness: Readiness::Waiting, why: Wait::New, run_at },
            unique_key: None,
            limit_key: new.limit_key,
            overrides: new.overrides,
            not_after: new.not_after,
            deadline: new.deadline,
            folder: new.folder,
            traceparent: new.traceparent,
            cost: new.cost.unwrap_or(1),
            token: 0,
            runs: 0,
            failures: 0,
            crashes: 0,
            node_deaths: 0,
            suspect: false,
            created_at: self.now,
            cancel_requested_at: None,
            first_failure_at: None,
            last_failure_at: None,
            last_failure: None,
        });
        if let Some(unique) = &new.unique {
            self.give_key(slot, unique);
        }
        self.place(slot, run_at);
        self.arrive_after(slot, &others, new.on_failed);
        Enqueued::Created(id)
    }

    /// Ranks the task as of now.
    pub(super) fn place(&mut self, slot: Slot, run_at: Timestamp) {
        let arrival = run_at.max(self.now);
        let task = self.task(slot);
        let (name, priority, key) = (task.queue.clone(), task.priority, task.limit_key.clone());
        let queue = self.queues.entry(name).or_default();
        let kept = queue.keys.entry(key.clone().unwrap_or_default()).or_default();
        let last = kept.last;
        let turn = if key.is_some() { Fairness::Keyed { last } } else { Fairness::Unkeyed { last } };
        let placement = place(queue.clock, turn, arrival, priority, queue.settings.priority);
        queue.clock = placement.clock;
        kept.last = placement.last.or(last);
        self.task(slot).rank = placement.rank;
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> ClaimAnswer {
        let live = self.is_live(claim.session);
        if !self.checks.pass(Check::ClaimSession, live) {
            return ClaimAnswer::SessionEnded;
        }
        let paused = self.queues.get(&claim.queue).is_some_and(|queue| queue.settings.paused.is_some());
        if paused {
            return ClaimAnswer::Tasks { tasks: Vec::new(), next: None };
        }
        if let Some(shut) = self.queue_shut(&claim.queue) {
            return ClaimAnswer::Tasks { tasks: Vec::new(), next: shut.until };
        }
        if let ChargeVerdict::Wait(until) = self.ask_budgets(&claim.queue) {
            return ClaimAnswer::Tasks { tasks: Vec::new(), next: until };
        }
        let account = self.account_places(&claim.queue, claim.limit);
        let limit = self.free_places(&claim.queue, claim.limit).min(account.places);
        if limit == 0 && claim.limit > 0 {
            return ClaimAnswer::Tasks { tasks: Vec::new(), next: account.until };
        }
        self.settle_due_keys(Some(&claim.queue), MAX_DUE_KEYS);
        let mut ready = self.slots(|task| {
            task.queue == claim.queue
                && claim.kinds.has(&task.kind)
                && matches!(task.state, State::Queued { readiness: Readiness::Ready, .. })
        });
        ready.sort_by_key(|slot| (self.entries[slot].task.rank, *slot));
        let now = self.now;
        let mut next = None;
        let (mut claimed, mut late, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        // Once a key has refused a task, no other task of the key overtakes it in this claim.
        let mut refused = BTreeMap::new();
        for (looked, slot) in ready.into_iter().enumerate() {
            if claimed.len() + late.len() == limit {
                break;
            }
            if looked == most_looked_at(limit) {
                next = Some(now);
                break;
            }
            let task = &self.entries[&slot].task;
            if too_late(task.not_after, task.deadline, now).is_some() {
                late.push(slot);
                continue;
            }
            let amounts = match self.ask_budgets(&claim.queue) {
                ChargeVerdict::Start(amounts) => amounts,
                ChargeVerdict::Wait(until) => {
                    next = until;
                    break;
                }
                ChargeVerdict::Reached(at) => {
                    self.pause_for_budget(&claim.queue, at);
                    break;
                }
            };
            match self.pass(slot, &refused) {
                ClaimVerdict::Yes => {
                    let charging = if amounts.is_empty() { Charging::Free } else { Charging::Charged };
                    claimed.push(Claimed { charging, ..self.take(slot, claim) });
                    self.reserve(slot, &amounts);
                }
                ClaimVerdict::Key(shut) => {
                    self.park(slot, shut);
                    refused.extend(self.task(slot).limit_key.clone().map(|key| (key, shut)));
                }
                ClaimVerdict::Queue(shut) => {
                    next = shut.until;
                    break;
                }
            }
            asked.push(slot);
        }
        // Tasks that are too late are ended last: ending one may move others of its key.
        for slot in late {
            self.end_late(slot);
        }
        for slot in asked {
            self.settle(slot);
        }
        let keys = self.key_moments(Some(&claim.queue)).into_iter().map(|(until, _, _)| until);
        ClaimAnswer::Tasks { tasks: claimed, next: keys.chain(next).min() }
    }

    fn take(&mut self, slot: Slot, claim: &Claim) -> Claimed {
        let queue = self.queue_settings(slot);
        let task = self.task(slot);
        task.token += 1;
        task.state = State::Claimed { session: claim.session };
        let (rank, priority) = (task.rank, task.priority);
        let claimed = Claimed {
            lease: Lease::granted(LeaseRef { task: task.id, token: task.token, row: slot }),
            queue: task.queue.as_str().into(),
            kind: task.kind.as_str().into(),
            payload: task.payload.clone(),
            attempt: task.runs + 1,
            failures: task.failures,
            priority,
            suspect: task.suspect,
            node_deaths: task.node_deaths,
            policy: task.overrides.resolve(&queue.of_kind(&task.kind)),
            folder: task.folder.clone(),
            traceparent: task.traceparent.clone(),
            created_at: task.created_at,
            not_after: task.not_after,
            deadline: task.deadline,
            charging: Charging::Free,
        };
        let queue = self.queues.entry(claim.queue.clone()).or_default();
        queue.clock = queue.clock.advanced(rank, priority);
        claimed
    }

    /// Ends a queued task that is too late.
    pub(super) fn end_late(&mut self, slot: Slot) {
        let now = self.now;
        let task = self.task(slot);
        if let Some(state) = too_late(task.not_after, task.deadline, now) {
            self.end(slot, state);
            self.note_end(slot, None);
        }
    }

    pub(super) fn start(&mut self, start: Start) -> Fenced {
        let Some(slot) = self.fenced(start.lease, Check::StartToken) else { return Fenced::Lost };
        let started_at = self.now;
        let entry = self.entry(slot);
        if let State::Claimed { session } = entry.task.state {
            entry.task.runs += 1;
            entry.task.state = State::Running { session, started_at };
            let (number, token) = (entry.task.runs, entry.task.token);
            let worker = start.worker;
            entry.attempts.push(Attempt {
                number,
                token,
                session,
                worker,
                started_at,
                end: None,
                conversation: Conversation::default(),
            });
            self.tally(slot).attempts += 1;
        }
        Fenced::Recorded
    }

    pub(super) fn finish(&mut self, report: &Report) -> Finished {
        let check = Check::of_report(&report.outcome);
        let Some(slot) = self.fenced(report.lease.as_ref(), check) else { return Finished::LeaseLost };
        let (output, reading) = (report.output.as_deref(), report.reading.as_ref());
        self.end_attempt(slot, &report.outcome, report.ran, output, reading);
        Finished::Recorded(self.task(slot).state.name())
    }

    pub(super) fn append(&mut self, lease: LeaseRef, events: Vec<EventBody>) -> Appended {
        let Some(slot) = self.fenced(lease, Check::AppendToken) else { return Appended::LeaseLost };
        let at = self.now;
        for body in events {
            if let EventBody::Usage(usage) = &body {
                self.spent_by(slot, usage);
            }
            let entry = self.entry(slot);
            let token = entry.task.token;
            let number = entry.events.len() as u64 + 1;
            let conversation = entry.conversations.entry(token).or_default();
            if let EventBody::Prompt { text } = &body {
                let (bytes, text) = (text.len() as u64, beginning(text, PROMPT_SHOWN).to_owned());
                conversation.prompt = Some(PromptRef { event: number, bytes, text });
            } else if let EventBody::Session { id } = &body {
                conversation.session = Some(id.clone());
            } else if let EventBody::Usage(usage) = &body {
                add_usage(&mut conversation.usage, usage);
            }
            entry.events.push(Event { number, at, token, body, cut: None });
        }
        Appended::Recorded { last: self.entry(slot).events.len() as u64 }
    }

    /// The attempt of a task has spent this, which is not recorded with it yet.
    fn spent_by(&mut self, slot: Slot, usage: &Usage) {
        let entry = self.entry(slot);
        let talk = entry.conversations.get(&entry.task.token);
        let first =
            if talk.is_none_or(|talk| talk.usage.is_empty()) { FirstUsage::Yes } else { FirstUsage::No };
        self.record_cost(slot, usage, first);
        self.spend(slot, usage.cost.unwrap_or_default());
    }

    pub(super) fn save_step(&mut self, lease: LeaseRef, step: NewStep) -> Saved {
        let Some(slot) = self.fenced(lease, Check::StepToken) else { return Saved::LeaseLost };
        let saved_at = self.now;
        let entry = self.entry(slot);
        if entry.steps.iter().any(|saved| saved.name == step.name) {
            return Saved::AlreadySaved;
        }
        if entry.steps.len() >= MAX_STEPS {
            return Saved::TooMany;
        }
        entry.steps.push(Step { name: step.name, value: step.value, saved_at, token: entry.task.token });
        Saved::Recorded
    }

    pub(super) fn cancel(&mut self, id: TaskId) -> CancelAnswer {
        let Some(slot) = self.slot_of(id) else { return CancelAnswer::NotFound };
        self.stop(slot, CancelReason::Requested)
    }

    /// Cancels a task for this reason, or marks it so that its worker gets a stop signal.
    pub(super) fn stop(&mut self, slot: Slot, reason: CancelReason) -> CancelAnswer {
        let now = self.now;
        let state = self.task(slot).state;
        match cancel(&state) {
            Cancelling::Now(_) => {
                self.end(slot, State::Cancelled { finished_at: now, reason });
                CancelAnswer::Cancelled
            }
            Cancelling::Mark => {
                self.task(slot).cancel_requested_at.get_or_insert(now);
                self.rings.control = true;
                CancelAnswer::Requested
            }
            Cancelling::Ended(state) => CancelAnswer::Ended(state),
        }
    }

    pub(super) fn amend(&mut self, id: TaskId, overrides: &Overrides) -> Amended {
        let Some(slot) = self.slot_of(id) else { return Amended::NotFound };
        let task = self.task(slot);
        let state = task.state.name();
        if state.is_terminal() {
            return Amended::Ended(state);
        }
        task.overrides = overrides.or(&task.overrides);
        Amended::Done
    }

    pub(super) fn replay(&mut self, id: TaskId, how: &Replay) -> ReplayAnswer {
        let Some(slot) = self.slot_of(id) else { return ReplayAnswer::NotFound };
        let now = self.now;
        let state = self.task(slot).state;
        let answer = match replay(&state) {
            Replaying::Refused(state) => return ReplayAnswer::Refused(state),
            Replaying::Hasten => ReplayAnswer::Hastened,
            Replaying::Requeue => {
                if let Some(holder) = self.take_back_key(slot) {
                    return ReplayAnswer::KeyTaken { holder };
                }
                self.tally(slot).replay(state.name());
                let task = self.task(slot);
                task.failures = 0;
                task.crashes = 0;
                task.node_deaths = 0;
                task.cancel_requested_at = None;
                task.not_after = None;
                task.deadline = None;
                self.place(slot, now);
                self.freed.remove(&slot);
                ReplayAnswer::Requeued
            }
        };
        if let Some(payload) = &how.payload {
            let former = std::mem::replace(&mut self.task(slot).payload, payload.clone());
            if let Some(event) = former_payload_event(&former, payload, MAX_EVENT_BYTES) {
                self.log(slot, event);
            }
        }
        if how.steps == StepsOnReplay::Drop {
            let entry = self.entry(slot);
            entry.steps.clear();
            entry.scratch_token = entry.task.token;
        }
        self.arrive(slot, now, Wait::Replayed);
        self.log(slot, replay_event());
        answer
    }
}
