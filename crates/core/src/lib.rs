//! The pure rules of Ostler: state transitions, retries, rate limits, breakers, ranks.
//!
//! What happens to a task is decided in this crate alone: no I/O, no clock, no async, no randomness of its
//! own. `now` and seeds are arguments, so that every store decides alike and every decision can be tested.
//!
//! Start at [`decide`]: the transition at the end of an attempt.

mod account;
mod breaker;
mod budget;
mod decide;
mod dependency;
mod duration;
mod event;
mod gate;
mod id;
mod id_part;
mod nesting;
mod outbox;
mod outcome;
mod policy;
pub mod price;
mod rank;
mod rate;
mod requests;
mod retry;
mod scaling;
mod schedule;
mod seed;
mod state;
mod task;
mod text;
mod time;
mod traceparent;
mod transition_event;
mod unique;
mod usage;
mod visible;
mod worker;

pub use account::{
    Account, AccountChange, AccountEnd, AccountHold, AccountReading, AccountWindow, MAX_ACCOUNT_HOLD,
    MAX_ACCOUNT_WINDOW, NEAR_LIMIT_PERMILLE, UNKNOWN_RESET,
};
pub use breaker::{
    Breaker, BreakerPolicy, BreakerState, CallAdmission, CallResult, CallVerdict, OutcomeCounts, Pass, Trip,
};
pub use budget::{
    BUDGET_REACHED, Budget, BudgetVerdict, ChargeVerdict, Charging, CostReservation, ExpectedCost,
    RECENT_COSTS, Settlement, Spending, ask_all, day_of, day_start,
};
pub use decide::{Effect, Facts, LeasePhase, Next, Transition, decide, lapsed};
pub use dependency::{OnFailed, Release, release};
pub use duration::{DurationError, parse_duration};
pub use event::{EventBody, EventKind, EventKinds, Level, LogStream, Loss, Role, ToolStatus};
pub use gate::{AHEAD, Admitted, Closed, Gate, GateRules, GateVerdict, Probe};
pub use id::{BadId, Id, JobId, Minter, SessionId, TaskId, WorkerId};
pub use id_part::{IdPart, NoIdPart};
pub use nesting::{MAX_NESTING, is_too_deep};
pub use outbox::{EndKind, end_kind};
pub use outcome::{Ending, ErrorClass, Failure, Outcome, class_of_status};
pub use policy::{Overrides, Policy};
pub use rank::{
    Fairness, NEW_KEY_MS, PRIORITY_MS, Placement, Priority, PriorityOrder, Rank, STEP_MS, VirtualTime, place,
};
pub use rate::{Admission, Bucket, Rate, Taken, admit};
pub use requests::{Cancelling, Replaying, arrival, cancel, in_time_until, replay, too_late};
pub use retry::{Backoff, Jitter, RetryPolicy};
pub use scaling::{MemoryPressure, PoolLoad, Scale, ScalePolicy, scale};
pub use schedule::{Due, Fire, MAX_MADE_UP, MISSED_AFTER, Missed, Overlap, due, fire};
pub use seed::Seed;
pub use state::{CancelReason, FailReason, Readiness, State, StateName, Wait};
pub use task::{Attempt, AttemptEnd, Conversation, PROMPT_SHOWN, PromptRef, RUN_KIND, Step, Task};
pub use text::{beginning, cut, nearest};
pub use time::{DURATION_UNITS, Timestamp, millis, show_duration};
pub use traceparent::{NoTraceparent, Traceparent};
pub use transition_event::{end_event, former_payload_event, replay_event, requeue_event};
pub use unique::{Conflict, HeldUntil, KeyHold, OnConflict, Regain, conflict, regain};
pub use usage::{Cost, MAX_MODELS, Usage, UsageSource, add_usage, parse_usd};
pub use visible::{visible, visible_json, visible_lines};
pub use worker::{TreeProcess, Worker, WorkerState};
