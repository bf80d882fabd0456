//! Facts: what an executor learns from an agent while it runs, and what it is to do.

use ostler_core::{Cost, EventBody, Timestamp};

/// One fact. They are handled in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// An event of the transcript, to be stored. A [`Prompt`](EventBody::Prompt) or a [`Session`](EventBody::Session) is stored before the
    /// next fact is handled. A [`Usage`](EventBody::Usage) is what was spent since the last one.
    Event(EventBody),
    /// What the run has cost so far, as far as it is known while it runs. Not a sum to be stored: usage events have that.
    Cost(Cost),
    /// How much of an account's allowance is used.
    Limit(LimitWindow),
    /// The agent begins to work on a prompt. After a [`ResultSeen`](Self::ResultSeen) it means that there will be another result.
    TurnStarted,
    /// Model requests of the run so far, those of sub-agents aside.
    Turns(u32),
    /// A tool runs: silence is not a sign of a stuck agent.
    ToolStarted {
        call: String,
    },
    ToolFinished {
        call: String,
    },
    /// It has made as many model requests as it may, and goes on: it is interrupted.
    TurnLimit,
    /// The agent is about to repeat a request that will be refused again: it is killed before it does.
    Hopeless,
    /// The result is there, and the process should exit: a grace period begins.
    ResultSeen,
    /// A line for standard input, without its line break.
    Send(String),
    /// Standard input is to be closed.
    CloseStdin,
}

/// The state of a usage limit of an account.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitWindow {
    /// The agent's name of it, such as `five_hour`.
    pub name: String,
    /// From 0 to 1, if the agent says it.
    pub utilization: Option<f64>,
    pub resets_at: Option<Timestamp>,
    pub state: LimitState,
}

/// Whether a limit lets requests through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitState {
    Open,
    /// The agent warns that it is near.
    Near,
    Reached,
}

impl From<EventBody> for Fact {
    fn from(body: EventBody) -> Self {
        Self::Event(body)
    }
}
