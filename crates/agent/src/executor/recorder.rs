//! The recorder of an attempt: handles facts in their order, and stores the transcript as it arrives.
//!
//! One event is on its way at a time, and nothing is read from the agent meanwhile: a store that is slower than the agent slows it down,
//! and nothing is lost. A prompt and a session are stored before the fact after them is handled.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;

use ostler_core::{AccountReading, Cost, EventBody, Usage, add_usage};
use ostler_exec::{EventSender, Sent};
use tokio::time::Instant;

use super::home::Home;
use crate::fact::{Fact, LimitState, LimitWindow};
use crate::reason::FollowUp;
use crate::transcript::{status, warning};

/// Tools that are known to run at once. Beyond it, an agent is not watched for silence more strictly.
const MAX_TOOLS: usize = 10_000;

/// Allowances of one account. Agents name two.
const MAX_ALLOWANCES: usize = 16;

pub(crate) struct Recorder {
    events: EventSender,
    /// Where the conversation lives; `None` for an agent that keeps none.
    home: Option<Home>,
    /// The task, or the query.
    query: String,
    began: Instant,
    pending: VecDeque<Fact>,
    sending: Option<Pin<Box<dyn Future<Output = Sent> + Send>>>,
    /// The attempt is over, or its lease is lost: nothing more is stored.
    is_closed: bool,
    /// The conversation, as far as it is known.
    session: Option<String>,
    /// What the attempt has spent.
    spent: Vec<Usage>,
    cost_before: Cost,
    turns_before: u32,
    has_warned: bool,
    /// The last readings of the account's allowances, one for each.
    readings: Vec<AccountReading>,
    has_failed_to_keep: bool,
    run: RunState,
}

/// What is known of the process that runs now.
#[derive(Debug, Default)]
struct RunState {
    /// For its standard input.
    input: Vec<u8>,
    is_input_whole: bool,
    tools: HashSet<String>,
    has_result: bool,
    is_hopeless: bool,
    is_over_turns: bool,
    cost: Cost,
    turns: u32,
}

impl Recorder {
    /// `cost_before` is what earlier attempts of the task have cost.
    pub(super) fn new(
        events: EventSender,
        home: Option<Home>,
        query: String,
        began: Instant,
        cost_before: Cost,
    ) -> Self {
        let turns_before = home.as_ref().map_or(0, Home::turns);
        Self {
            events,
            home,
            query,
            began,
            pending: VecDeque::new(),
            sending: None,
            is_closed: false,
            session: None,
            spent: Vec::new(),
            cost_before,
            turns_before,
            has_warned: false,
            readings: Vec::new(),
            has_failed_to_keep: false,
            run: RunState::default(),
        }
    }

    /// The same for a conversation that lives nowhere but in the transcript.
    pub(crate) fn of_transcript(
        events: EventSender,
        task: String,
        began: Instant,
        cost_before: Cost,
    ) -> Self {
        Self::new(events, None, task, began, cost_before)
    }

    /// Counts usage of an attempt whose node died before it could be reported.
    pub(crate) fn count_lost(&mut self, lost: Vec<Usage>) {
        if lost.is_empty() {
            return;
        }
        self.cost_before =
            lost.iter().filter_map(|usage| usage.cost).fold(self.cost_before, std::ops::Add::add);
        self.note("counts what the attempt before it had used when it was lost");
        self.take(lost.into_iter().map(|usage| EventBody::Usage(usage).into()));
    }

    pub(super) fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// What the attempt has spent so far, by model.
    pub(super) fn spent(&self) -> &[Usage] {
        &self.spent
    }

    /// What the task has cost so far, as far as it is known.
    pub(crate) fn cost(&self) -> Cost {
        self.cost_before + self.run.cost
    }

    /// Model requests of the task so far.
    pub(super) const fn turns(&self) -> u32 {
        self.turns_before + self.run.turns
    }

    /// Another process begins.
    pub(crate) fn next_run(&mut self) {
        let ended = std::mem::take(&mut self.run);
        self.cost_before = self.cost_before + ended.cost;
        self.turns_before += ended.turns;
    }

    /// What the process is to read next.
    pub(super) fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.run.input)
    }

    /// Whether no more input follows.
    pub(super) const fn is_input_whole(&self) -> bool {
        self.run.is_input_whole
    }

    /// Gives the process its whole input.
    pub(super) fn say_all(&mut self, text: &str) {
        self.run.input.extend_from_slice(text.as_bytes());
        self.run.is_input_whole = true;
    }

    pub(super) fn has_tools(&self) -> bool {
        !self.run.tools.is_empty()
    }

    pub(super) const fn has_result(&self) -> bool {
        self.run.has_result
    }

    /// Whether the agent would only repeat what is refused.
    pub(super) const fn is_hopeless(&self) -> bool {
        self.run.is_hopeless
    }

    /// Whether the agent goes on although it has made as many model requests as it may.
    pub(super) const fn is_over_turns(&self) -> bool {
        self.run.is_over_turns
    }

    /// Whether everything so far is stored, or at least on its way.
    pub(crate) fn is_free(&self) -> bool {
        self.pending.is_empty() && self.sending.is_none()
    }

    pub(super) const fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) fn take(&mut self, facts: impl IntoIterator<Item = Fact>) {
        self.pending.extend(facts);
        self.pump();
    }

    /// Records what the executor itself has to say.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.take([status(text)]);
    }

    /// Waits until the event on its way is stored or in the buffer. Cancel safe.
    pub(super) async fn sent(&mut self) {
        if let Some(sending) = &mut self.sending {
            if sending.await == Sent::Closed {
                self.is_closed = true;
            }
            self.sending = None;
        }
        self.pump();
    }

    /// Waits until all facts are handled. Cancel safe.
    pub(crate) async fn drained(&mut self) {
        while !self.is_free() {
            self.sent().await;
        }
    }

    /// Writes down what the agent has used and not reported yet.
    pub(super) fn saw(&mut self, usage: &[Usage]) {
        let elapsed = self.began.elapsed();
        self.keep(|home| home.has_seen(usage, elapsed));
        self.pump();
    }

    /// Time passes.
    pub(super) fn tick(&mut self) {
        let elapsed = self.began.elapsed();
        self.keep(|home| home.tick(elapsed));
        self.pump();
    }

    /// The last reading of the allowance of which most is used: that is the one that is reached first.
    pub(crate) fn take_reading(&mut self) -> Option<AccountReading> {
        std::mem::take(&mut self.readings).into_iter().max_by_key(|reading| reading.utilization_permille)
    }

    /// The attempt came to an end.
    pub(super) fn ended(&mut self, next: FollowUp) {
        self.keep(|home| home.has_ended(next));
    }

    fn pump(&mut self) {
        while self.sending.is_none()
            && let Some(fact) = self.pending.pop_front()
        {
            self.handle(fact);
        }
    }

    fn handle(&mut self, fact: Fact) {
        match fact {
            Fact::Event(body) => self.send(body),
            Fact::Cost(cost) => self.run.cost = cost,
            Fact::Limit(window) => self.limit(&window),
            Fact::TurnStarted => {
                self.run.has_result = false;
                let query = self.query.clone();
                self.keep(|home| home.has_begun(&query));
            }
            Fact::Turns(turns) => {
                self.run.turns = turns;
                let (turns, elapsed) = (self.turns(), self.began.elapsed());
                self.keep(|home| home.has_turned(turns, elapsed));
            }
            Fact::ToolStarted { call } => {
                if self.run.tools.len() < MAX_TOOLS {
                    self.run.tools.insert(call);
                }
            }
            Fact::ToolFinished { call } => {
                self.run.tools.remove(&call);
            }
            Fact::ResultSeen => self.run.has_result = true,
            Fact::Hopeless => self.run.is_hopeless = true,
            Fact::TurnLimit => self.run.is_over_turns = true,
            Fact::Send(line) => {
                self.run.input.extend_from_slice(line.as_bytes());
                self.run.input.push(b'\n');
            }
            Fact::CloseStdin => self.run.is_input_whole = true,
        }
    }

    fn send(&mut self, body: EventBody) {
        let events = self.events.clone();
        if let EventBody::Usage(usage) = &body {
            add_usage(&mut self.spent, usage);
            self.keep(|home| home.has_reported(usage));
        }
        if let EventBody::Session { id } = &body {
            self.session = Some(id.clone());
            let id = id.clone();
            self.keep(|home| home.has_session(&id));
        }
        let is_needed = matches!(body, EventBody::Prompt { .. } | EventBody::Session { .. });
        if !self.is_closed {
            self.sending = Some(Box::pin(async move {
                if is_needed { events.store(body).await } else { events.send(body).await }
            }));
        }
    }

    /// Keeps the reading of the allowance, and warns once that the limit is near.
    fn limit(&mut self, window: &LimitWindow) {
        if let Some(used) = window.utilization {
            let utilization_permille = (used.clamp(0.0, 1.0) * 1000.0).round() as u32;
            let (window, resets_at) = (window.name.clone(), window.resets_at);
            self.readings.retain(|reading| reading.window != window);
            if self.readings.len() < MAX_ALLOWANCES {
                self.readings.push(AccountReading { window, utilization_permille, resets_at });
            }
        }
        let how = match window.state {
            LimitState::Open => return,
            LimitState::Near => "near",
            LimitState::Reached => "reached",
        };
        if !std::mem::replace(&mut self.has_warned, true) {
            let used = window.utilization.map(|used| format!(" ({:.0} % used)", used * 100.0));
            let used = used.unwrap_or_default();
            self.pending.push_front(warning(format!("the usage limit {} is {how}{used}", window.name)));
        }
    }

    /// Writes down how the conversation stands. Without that, the next attempt begins anew.
    fn keep(&mut self, write: impl FnOnce(&mut Home) -> std::io::Result<()>) {
        let Some(home) = &mut self.home else { return };
        if let Err(error) = write(home)
            && !std::mem::replace(&mut self.has_failed_to_keep, true)
        {
            let text = format!("it cannot be written down how the conversation stands: {error}");
            self.pending.push_front(warning(text));
        }
    }
}
