//! One operation of a sequence, as data. It refers to tasks, sessions and leases by number, so that it stays valid
//! when earlier operations are removed.

use std::time::Duration;

use ostler_core::{
    BreakerPolicy, CallAdmission, CallResult, CallVerdict, ErrorClass, Id, JobId, KeyHold, Missed,
    OnConflict, OnFailed, Overlap, Overrides, SessionId, TaskId, Trip, WorkerId,
};

use ostler_store::call_breakers::BreakerUse;
use ostler_store::calls::{QueueChange, Replay, Retention};
use ostler_store::costs::CostBy;
use ostler_store::jobs::{JobChange, JobFilter};
use ostler_store::node_commands::NodeCommand;

use ostler_store::schedules::Activity;
use ostler_store::views::Filter;

/// The last one is the queue of a job.
pub(super) const QUEUES: [&str; 3] = ["amber", "birch", "job 00000000000000000000000001"];
pub(super) const JOBS: [JobId; 2] = [JobId(Id::from_bits(1)), JobId(Id::from_bits(2))];
pub(super) const KINDS: [&str; 2] = ["knock", "lift"];
pub(super) const LIMIT_KEYS: [&str; 3] = ["x", "y", "z"];
pub(super) const SUBSCRIBERS: [&str; 2] = ["callbacks", "hooks"];
pub(super) const UNIQUE_KEYS: [&str; 4] = ["u0", "u1", "u2", "u3"];
/// Accounts that queues may share.
pub(super) const ACCOUNTS: [&str; 2] = ["claude", "codex"];
/// Names of call breakers, and what is done with them. They open after two failures.
pub(super) const CALL_BREAKERS: [&str; 2] = ["search", "payments"];
pub(super) const BREAKER_USES: [BreakerUse; 7] = [
    BreakerUse::Ask,
    report(CallAdmission::Usual, CallVerdict::Failure),
    report(CallAdmission::Usual, CallVerdict::Failure),
    report(CallAdmission::Usual, CallVerdict::Success),
    report(CallAdmission::Probe, CallVerdict::Success),
    report(CallAdmission::Probe, CallVerdict::Failure),
    report(CallAdmission::Probe, CallVerdict::None),
];
pub(super) const CALL_POLICY: BreakerPolicy =
    BreakerPolicy { trip: Trip::Consecutive(2), reset: Duration::from_millis(2_000) };

const fn report(admission: CallAdmission, verdict: CallVerdict) -> BreakerUse {
    BreakerUse::Report(CallResult { admission, verdict })
}

pub(super) const SCHEDULES: [&str; 2] = ["daily", "hourly"];
pub(super) const SPECS: [&str; 2] = ["0 3 * * *", "every 1h"];
pub(super) const STEPS: [&str; 3] = ["fetch", "fold", "send"];

/// The connection to the store under test that an operation uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Via {
    First,
    Second,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) via: Via,
    pub(super) act: Act,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    /// An operation on the stores.
    Say(Box<Op>),
    /// Time passes.
    Pass { ms: u64 },
    /// A node dies, and its death is detected.
    Kill { session: usize },
}

/// Times are in milliseconds, relative to the time of the operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Join { session: usize, ttl_ms: u64 },
    Renew { session: usize, held: Vec<Pick> },
    Leave { session: usize },
    Depart { session: usize },
    Report { session: usize, workers: usize },
    Order { session: usize, order: NodeCommand },
    Answer { session: usize, number: u64 },
    Enqueue(Vec<Draft>),
    EnqueueWrong(Draft),
    Claim { session: usize, queue: usize, kinds: Option<Vec<usize>>, limit: usize },
    Backlog { queue: usize, kinds: Option<Vec<usize>>, limit: usize },
    Start(Vec<Pick>),
    Finish(Vec<(Pick, End)>),
    Release(Vec<Pick>),
    Append { lease: Pick, events: usize },
    Spend { lease: Pick, nanos: u64 },
    Costs { by: CostBy, queue: Option<usize>, since_ms: Option<u64>, until_ms: Option<u64> },
    SaveStep { lease: Pick, name: usize },
    Hear { session: usize, queue: usize, subscriber: usize, limit: usize },
    Told { session: usize, numbers: Vec<u64> },
    Cancel(Vec<usize>),
    Replay { tasks: Vec<usize>, how: Replay },
    Amend { task: usize, overrides: Overrides },
    Configure { queue: usize, changes: Vec<QueueChange> },
    CallBreaker { name: usize, what: BreakerUse },
    ChangeAccount { name: usize, change: AccountDraft },
    PutSchedule { name: usize, plan: Plan },
    DropSchedule { name: usize },
    PauseSchedule { name: usize, activity: Activity },
    Fire { name: usize, moment: Moment, next_in_ms: Option<u64>, run: Option<Draft> },
    PutJob { job: usize, items: u64 },
    ChangeJob { job: usize, change: JobChange },
    Jobs { filter: JobFilter, limit: usize },
    Expire { batch: usize },
    MakeReady { batch: usize },
    PruneOld(Retention),
    PruneTasks(Vec<usize>),
    List { filter: Filter, failed: Span, ended: Span, page: usize },
    ShowId(usize),
    ShowKey { queue: usize, key: usize },
    FindIds { task: usize, len: usize, limit: usize },
    Existing(Vec<usize>),
    ReadEvents { task: usize, after: u64, limit: usize },
    Survey,
    Now,
    Wakeups,
    News,
}

/// A change of an account, with a hold that begins with the operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum AccountDraft {
    Hold { for_ms: Option<u64> },
    Release,
    Cap(Option<u32>),
    Allowance(u32),
}

/// The settings of a schedule.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) spec: usize,
    pub(super) overlap: Overlap,
    pub(super) missed: Missed,
    pub(super) queue: usize,
    pub(super) next_in_ms: Option<u64>,
}

/// The time that a schedule is fired for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// The schedule's next run time.
    Next,
    /// Any other time.
    Other,
}

/// A span of time of a list, in milliseconds before the time of the operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) since_ms: Option<u64>,
    pub(super) until_ms: Option<u64>,
}

/// The lease that an operation uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick {
    /// The n-th most recent open lease.
    Open(usize),
    /// A lease that was given up or lost.
    Closed(usize),
    /// An open lease with the previous token.
    Older(usize),
    /// An open lease with a token that was not granted yet.
    Future(usize),
    /// A lease of an unknown task.
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) task: usize,
    pub(super) queue: usize,
    pub(super) kind: usize,
    pub(super) priority: i64,
    pub(super) run_in_ms: Option<u64>,
    pub(super) unique_key: Option<usize>,
    /// How long the task holds the key; `None`: as its queue says.
    pub(super) hold: Option<KeyHold>,
    pub(super) on_conflict: OnConflict,
    pub(super) limit_key: Option<usize>,
    pub(super) after: Vec<usize>,
    pub(super) on_failed: OnFailed,
    pub(super) attempts: Option<u32>,
    pub(super) not_after_ms: Option<u64>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) cost: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) how: How,
    /// The run time of an attempt whose start was not recorded.
    pub(super) ran_ms: Option<u64>,
    pub(super) retry_after_ms: Option<u64>,
    /// How much of the allowance of its account is used.
    pub(super) used_permille: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Success,
    Failed(ErrorClass),
    NodeDied,
    HandedBack,
    Cancelled,
}

/// Ids for both stores. They are not in order of creation, so that no store can rely on their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) seed: u64,
}

impl Names {
    fn id(self, sort: u64, number: usize) -> Id {
        let mut chance = ostler_core::Seed::new(self.seed ^ (sort << 56) ^ ((number as u64) << 20));
        Id::from_bits(u128::from(chance.next()) << 64 | u128::from(chance.next()))
    }

    pub(super) fn task(self, number: usize) -> TaskId {
        TaskId(self.id(1, number))
    }

    pub(super) fn session(self, number: usize) -> SessionId {
        SessionId(self.id(2, number))
    }

    pub(super) fn worker(self, number: usize) -> WorkerId {
        WorkerId(self.id(3, number))
    }
}
