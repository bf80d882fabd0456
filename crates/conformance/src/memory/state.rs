//! State of the reference store, and the operations that all verbs are made of.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use ostler_core::{
    Account, AccountEnd, AccountReading, Attempt, AttemptEnd, Breaker, Closed, Conversation, Ending,
    EventBody, Gate, HeldUntil, JobId, LeasePhase, Next, OnFailed, Outcome, Readiness, SessionId, Spending,
    State, StateName, Step, Task, TaskId, Timestamp, Transition, VirtualTime, Wait, arrival, decide,
    end_event, requeue_event,
};
use ostler_store::events::Event;

use super::budgets::KeptReservation;
use super::costs::SpentKey;
use super::gates::Begun;
use super::outbox::Kept;
use ostler_store::LeaseRef;
use ostler_store::Rings;
use ostler_store::calls::{NewSession, Ran};
use ostler_store::costs::CostSums;
use ostler_store::jobs::JobRecord;
use ostler_store::node_commands::{NumberedCommand, Reply};
use ostler_store::schedules::ScheduleRecord;
use ostler_store::views::{Counts, GoneWorker, LaneTotals, QueueSettings, TalkSession, WorkerRecord};
use ostler_store::{Check, Checks};
use ostler_store::{MAX_CASCADE, RECENT_RUNS, bounded};

/// The row of a task: rises with every task.
pub(super) type Slot = i64;

pub(super) struct TaskEntry {
    pub(super) task: Task,
    pub(super) attempts: Vec<Attempt>,
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<Event>,
    /// By the token of the attempt.
    pub(super) conversations: BTreeMap<u64, Conversation>,
    /// When its hold on its unique key is over.
    pub(super) held: HeldUntil,
    /// The key that it holds until its end, or held: another task may have it since.
    pub(super) end_key: Option<String>,
    /// The token of its last lease before it began from scratch.
    pub(super) scratch_token: u64,
    /// Its unfinished dependencies.
    pub(super) after: BTreeSet<Slot>,
    pub(super) on_failed: OnFailed,
    /// Whether it ever had a dependent.
    pub(super) awaited: bool,
}

impl TaskEntry {
    /// The attempt, with what it asked of a model.
    pub(super) fn talks(&self) -> impl Iterator<Item = TalkSession> {
        let sessions = self.conversations.iter();
        sessions
            .filter_map(|(token, talk)| Some(TalkSession { token: *token, session: talk.session.clone()? }))
    }

    pub(super) fn with_conversation(&self, attempt: &Attempt) -> Attempt {
        let conversation = self.conversations.get(&attempt.token).cloned().unwrap_or_default();
        Attempt { conversation, ..attempt.clone() }
    }
}

#[derive(Default)]
pub(super) struct QueueEntry {
    pub(super) high_water: u64,
    pub(super) settings: QueueSettings,
    pub(super) clock: VirtualTime,
    pub(super) gate: Gate,
    /// Its limit keys; the empty one stands for tasks without a key.
    pub(super) keys: BTreeMap<String, KeyEntry>,
}

#[derive(Clone, Default)]
pub(super) struct KeyEntry {
    /// Where its last task was placed.
    pub(super) last: Option<i64>,
    pub(super) gate: Gate,
    /// What its parked tasks wait for, other than the concurrency limit.
    pub(super) shut: Option<Closed>,
}

#[derive(Default)]
pub(super) struct LaneEntry {
    /// Pruned tasks, by terminal state.
    pub(super) pruned: Counts,
    pub(super) tally: LaneTotals,
    pub(super) recent_ms: Vec<u32>,
}

pub(super) struct Session {
    pub(super) node: NewSession,
    pub(super) joined_at: Timestamp,
    pub(super) beat: Duration,
    pub(super) killed: bool,
    /// Whether it announced a shutdown.
    pub(super) departed: bool,
    pub(super) ended: bool,
    pub(super) orders: Vec<NumberedCommand>,
    pub(super) answers: Vec<Reply>,
}

pub(super) struct MemoryState {
    pub(super) checks: Checks,
    pub(super) now: Timestamp,
    pub(super) uptime: Duration,
    pub(super) entries: BTreeMap<Slot, TaskEntry>,
    pub(super) queues: BTreeMap<String, QueueEntry>,
    pub(super) lanes: BTreeMap<(String, String), LaneEntry>,
    /// In the order they joined.
    pub(super) sessions: Vec<(SessionId, Session)>,
    pub(super) workers: Vec<WorkerRecord>,
    /// The oldest first.
    pub(super) gone: Vec<GoneWorker>,
    /// In the order of their numbers.
    pub(super) tellings: Vec<Kept>,
    pub(super) next_telling: u64,
    next_slot: Slot,
    /// Ended tasks with unprocessed dependents, and the dependent that was processed last.
    pub(super) freed: BTreeMap<Slot, Slot>,
    /// Whether a task with dependents ended in this verb.
    pub(super) frees: bool,
    pub(super) schedules: BTreeMap<String, ScheduleRecord>,
    /// With the time of the last change.
    pub(super) call_breakers: BTreeMap<String, (Breaker, Timestamp)>,
    /// Those with state.
    pub(super) accounts: BTreeMap<String, Account>,
    /// By queue, if it has a budget.
    pub(super) spending: BTreeMap<String, Spending>,
    pub(super) reservations: Vec<KeptReservation>,
    pub(super) spent: BTreeMap<SpentKey, CostSums>,
    /// As created and changed; the data of their queues is added when they are shown.
    pub(super) jobs: BTreeMap<JobId, JobRecord>,
    /// The wakeups that this verb sends.
    pub(super) rings: Rings,
}

impl MemoryState {
    pub(super) fn new(checks: Checks) -> Self {
        Self {
            checks,
            now: Timestamp::ZERO,
            uptime: Duration::ZERO,
            entries: BTreeMap::new(),
            queues: BTreeMap::new(),
            lanes: BTreeMap::new(),
            sessions: Vec::new(),
            workers: Vec::new(),
            gone: Vec::new(),
            tellings: Vec::new(),
            next_telling: 1,
            next_slot: 1,
            freed: BTreeMap::new(),
            frees: false,
            schedules: BTreeMap::new(),
            call_breakers: BTreeMap::new(),
            accounts: BTreeMap::new(),
            spending: BTreeMap::new(),
            reservations: Vec::new(),
            spent: BTreeMap::new(),
            jobs: BTreeMap::new(),
            rings: Rings::default(),
        }
    }

    pub(super) fn set_time(&mut self, now: Timestamp, uptime: Duration) {
        self.now = now;
        self.uptime = uptime;
    }

    /// Ends a verb: processes the dependents of the tasks that it ended, and records the high water mark of every queue. Returns
    /// the wakeups to send.
    pub(super) fn close_verb(&mut self) -> Rings {
        if std::mem::take(&mut self.frees) {
            self.see_to_dependents(MAX_CASCADE);
            self.frees = false;
        }
        let mut queued: HashMap<String, u64> = HashMap::new();
        for entry in self.entries.values().filter(|entry| entry.task.state.name() == StateName::Queued) {
            *queued.entry(entry.task.queue.clone()).or_default() += 1;
        }
        for (name, count) in queued {
            let queue = self.queues.entry(name).or_default();
            queue.high_water = queue.high_water.max(count);
        }
        // Every verb may have changed something: a hint may be spurious.
        Rings { changed: true, ..std::mem::take(&mut self.rings) }
    }

    pub(super) fn insert(&mut self, task: Task) -> Slot {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.lanes.entry((task.queue.clone(), task.kind.clone())).or_default();
        let (attempts, steps, events) = (Vec::new(), Vec::new(), Vec::new());
        let (after, on_failed, awaited) = (BTreeSet::new(), OnFailed::default(), false);
        let entry = TaskEntry {
            task,
            attempts,
            steps,
            events,
            conversations: BTreeMap::new(),
            held: HeldUntil::Removed,
            end_key: None,
            scratch_token: 0,
            after,
            on_failed,
            awaited,
        };
        self.entries.insert(slot, entry);
        slot
    }

    pub(super) fn slot_of(&self, id: TaskId) -> Option<Slot> {
        self.entries.iter().find(|(_, entry)| entry.task.id == id).map(|(slot, _)| *slot)
    }

    pub(super) fn task(&mut self, slot: Slot) -> &mut Task {
        &mut self.entries.get_mut(&slot).expect("slots are only taken from the book").task
    }

    /// The totals of the lane of a task.
    pub(super) fn tally(&mut self, slot: Slot) -> &mut LaneTotals {
        let task = self.task(slot);
        let lane = (task.queue.clone(), task.kind.clone());
        &mut self.lanes.entry(lane).or_default().tally
    }

    pub(super) fn entry(&mut self, slot: Slot) -> &mut TaskEntry {
        self.entries.get_mut(&slot).expect("slots are only taken from the book")
    }

    /// The slots of all tasks that satisfy `wanted`, lowest first.
    pub(super) fn slots(&self, wanted: impl Fn(&Task) -> bool) -> Vec<Slot> {
        self.entries.iter().filter(|(_, entry)| wanted(&entry.task)).map(|(slot, _)| *slot).collect()
    }

    // ---- fencing ----

    /// The task of a lease, if the lease still holds.
    pub(super) fn fenced(&self, lease: LeaseRef, check: Check) -> Option<Slot> {
        let slot = self.slot_of(lease.task)?;
        let task = &self.entries.get(&slot)?.task;
        let token = self.checks.pass(check, task.token == lease.token);
        let leased = self.checks.pass(Check::LeasedState, task.state.name().is_leased());
        (token && leased).then_some(slot)
    }

    // ---- transitions ----

    /// Queues a task: it is ready, or waits for its time or its key.
    pub(super) fn arrive(&mut self, slot: Slot, run_at: Timestamp, why: Wait) {
        self.put(slot, run_at, why);
        // One more waiting task does not open a closed key.
        if self.shut_of(slot).is_none() {
            self.settle(slot);
        }
    }

    /// Queues a task without settling its key.
    fn put(&mut self, slot: Slot, run_at: Timestamp, why: Wait) {
        let (readiness, why) = arrival(run_at, self.now, why);
        let (readiness, why) = match (readiness, self.shut_of(slot)) {
            (Readiness::Ready, Some(shut)) => (Readiness::Parked, shut.why),
            (Readiness::Ready | Readiness::Waiting | Readiness::Parked, _) => (readiness, why),
        };
        self.task(slot).state = State::Queued { readiness, why, run_at };
        self.rings.ready |= readiness == Readiness::Ready;
    }

    /// Ends an attempt: the one path for all outcomes.
    pub(super) fn end_attempt(
        &mut self,
        slot: Slot,
        outcome: &Outcome,
        ran: Option<Ran>,
        output: Option<&str>,
        reading: Option<&AccountReading>,
    ) {
        let now = self.now;
        let outcome = &bounded(outcome);
        let task = self.task(slot);
        let Some(facts) = task.facts() else { return };
        let began = task.state.started_at().or(ran.map(|ran| now.before(ran.took)));
        let (overrides, kind) = (task.overrides, task.kind.clone());
        let settings = self.queue_settings(slot);
        let decided = decide(&facts, outcome, &overrides.resolve(&settings.of_kind(&kind)), now);
        let transition = if settings.account.is_some() { decided.of_account(now) } else { decided };
        let begun = if facts.phase == LeasePhase::Running || ran.is_some() { Begun::Yes } else { Begun::No };
        self.record_attempt(slot, outcome, ran);
        self.settle_budgets(slot, outcome);
        self.tally(slot).retried += u64::from(transition.retries(&facts));
        let task = self.task(slot);
        task.failures = transition.failures;
        task.crashes = transition.crashes;
        task.node_deaths = transition.node_deaths;
        task.suspect |= transition.becomes_suspect;
        if let Outcome::Failed(failure) = outcome {
            task.first_failure_at.get_or_insert(now);
            task.last_failure_at = Some(now);
            task.last_failure = Some(failure.clone());
        }
        if matches!(outcome, Outcome::Success) {
            task.output = output.map(String::from);
        }
        self.write_next(slot, &transition);
        if let (State::Queued { .. }, Next::Queue { run_at, .. }) = (self.task(slot).state, decided.next)
            && let Some(body) = requeue_event(outcome, run_at).filter(|_| begun == Begun::Yes)
        {
            self.log(slot, body);
        }
        self.note_end(slot, Some(outcome));
        self.pause(slot, outcome, &transition);
        self.tell_gates(slot, outcome, transition.effect, begun);
        if let Some(account) = &settings.account {
            let why = outcome.failure().map(|failure| failure.message.as_str());
            self.tell_account(account, &AccountEnd { effect: transition.effect, began, why, reading });
        }
        self.settle(slot);
        if self.task(slot).state.name().is_terminal() {
            self.note_freed(slot);
        }
    }

    fn write_next(&mut self, slot: Slot, transition: &Transition) {
        let now = self.now;
        match transition.next {
            Next::Queue { run_at, why } => return self.put(slot, run_at, why),
            Next::Complete => self.task(slot).state = State::Completed { finished_at: now },
            Next::Fail(reason) => self.task(slot).state = State::Failed { finished_at: now, reason },
            Next::Cancel(reason) => self.task(slot).state = State::Cancelled { finished_at: now, reason },
        }
        self.log_end(slot);
    }

    /// Adds the event of a task that ended without success.
    fn log_end(&mut self, slot: Slot) {
        if let Some(body) = end_event(&self.task(slot).state) {
            self.log(slot, body);
        }
    }

    /// Adds an event to a task, whatever its state.
    pub(super) fn log(&mut self, slot: Slot, body: EventBody) {
        let at = self.now;
        let entry = self.entry(slot);
        let (number, token) = (entry.events.len() as u64 + 1, entry.task.token);
        entry.events.push(Event { number, at, token, body, cut: None });
    }

    /// Ends a queued task: its key has room for another, and it may have dependents.
    pub(super) fn end(&mut self, slot: Slot, state: State) {
        self.task(slot).state = state;
        self.log_end(slot);
        self.settle(slot);
        self.note_freed(slot);
    }

    fn record_attempt(&mut self, slot: Slot, outcome: &Outcome, ran: Option<Ran>) {
        let now = self.now;
        let end =
            AttemptEnd { finished_at: now, ending: outcome.ending(), failure: outcome.failure().cloned() };
        let entry = self.entry(slot);
        match (entry.task.state, ran) {
            (State::Running { .. }, _) => {
                let attempt = entry.attempts.last_mut().expect("a running task has an attempt");
                attempt.end = Some(end);
            }
            (State::Claimed { session }, Some(ran)) => {
                entry.task.runs += 1;
                let (number, token) = (entry.task.runs, entry.task.token);
                let started_at = now.before(ran.took);
                entry.attempts.push(Attempt {
                    number,
                    token,
                    session,
                    worker: ran.worker,
                    started_at,
                    end: Some(end),
                    conversation: Conversation::default(),
                });
                self.tally(slot).attempts += 1;
            }
            _ => return,
        }
        let TaskEntry { task, attempts, .. } = self.entry(slot);
        let took = attempts.last().and_then(Attempt::took).unwrap_or_default();
        let lane = (task.queue.clone(), task.kind.clone());
        match outcome.ending() {
            Ending::Success | Ending::Failed(_) => {
                let recent = &mut self.lanes.entry(lane).or_default().recent_ms;
                recent.push(u32::try_from(took.as_millis()).unwrap_or(u32::MAX));
                let excess = recent.len().saturating_sub(RECENT_RUNS);
                recent.drain(..excess);
            }
            Ending::NodeDied | Ending::HandedBack | Ending::Cancelled => {}
        }
    }

    fn pause(&mut self, slot: Slot, outcome: &Outcome, transition: &Transition) {
        if let Some(reason) = transition.effect.pause_reason(outcome) {
            let queue = self.task(slot).queue.clone();
            self.queues.entry(queue).or_default().settings.paused.get_or_insert(reason);
        }
    }

    pub(super) fn queue_settings(&mut self, slot: Slot) -> QueueSettings {
        let queue = self.task(slot).queue.clone();
        self.queues.get(&queue).map(|queue| queue.settings.clone()).unwrap_or_default()
    }
}
