//! Draws a random sequence of operations from a seed. Every verb, and every argument that matters, has a row in one table.

mod budgets;

use std::time::Duration;

use ostler_core::{
    ErrorClass, KeyHold, Missed, OnConflict, OnFailed, Overlap, PriorityOrder, Seed, StateName,
};

mod settings;

use super::op::{
    ACCOUNTS, Act, BREAKER_USES, CALL_BREAKERS, Draft, End, How, JOBS, KINDS, LIMIT_KEYS, Moment, Op, Pick,
    Plan, QUEUES, SCHEDULES, SPECS, STEPS, SUBSCRIBERS, Span, Step, UNIQUE_KEYS, Via,
};
use ostler_store::calls::{QueueChange, Replay, Retention, StepsOnReplay};
use ostler_store::gates::SetBy;
use ostler_store::jobs::{JobChange, JobFilter};
use ostler_store::node_commands::{NodeCommand, WorkerChoice};
use ostler_store::outbox::OutboxFilter;
use ostler_store::paths::PayloadPath;
use ostler_store::schedules::Activity;
use ostler_store::views::{Field, Filter, ItemFilter, LeaseFilter, ListOrder};

const DAY_MS: u64 = 86_400_000;
/// A task number that is never enqueued.
const NO_TASK: usize = 9_999;

type Row<T> = (u64, &'static str, fn(&mut Drawer) -> T);

/// Operations on the stores, with their weights. Each row must be drawn in at least one of two hundred operations.
const SAID: &[Row<Op>] = &[
    (40, "enqueue", |d| d.enqueue(|_, _| {})),
    (20, "enqueue for later", |d| d.enqueue(|d, task| task.run_in_ms = Some(d.span(30_000)))),
    (26, "enqueue with a unique key", |d| d.enqueue(Drawer::give_a_key)),
    (45, "enqueue with a limit key", |d| {
        d.enqueue(|d, task| task.limit_key = Some(d.below(LIMIT_KEYS.len())))
    }),
    (20, "enqueue with an end", |d| d.enqueue(Drawer::give_an_end)),
    (50, "enqueue after others", |d| d.enqueue(Drawer::wait_for_others)),
    (20, "enqueue again", |d| d.enqueue(|d, task| task.task = d.task())),
    (20, "enqueue what is wrong", |d| {
        d.tasks += 1;
        Op::EnqueueWrong(d.draft())
    }),
    (80, "claim", |d| d.claim(None)),
    (25, "claim some kinds", |d| {
        let kinds = (0..=d.below(2)).map(|_| d.below(KINDS.len())).collect();
        d.claim(Some(kinds))
    }),
    (20, "claim for a session that is over", |d| Op::Claim {
        session: d.any_session(),
        queue: d.queue(),
        kinds: None,
        limit: 3,
    }),
    (20, "count a backlog", |d| {
        let kinds = d.maybe(40, |d| vec![d.below(KINDS.len())]);
        Op::Backlog { queue: d.queue(), kinds, limit: d.below(6) }
    }),
    (55, "start", |d| Op::Start(d.open(3))),
    (20, "start with a wrong lease", |d| Op::Start(vec![d.wrong(), Pick::Open(0)])),
    (40, "finish: success", |d| d.finish(How::Success)),
    (25, "finish: a start that was not written", |d| {
        let how =
            [How::Success, How::Failed(ErrorClass::Transient), How::Failed(ErrorClass::Crash)][d.below(3)];
        let end = End { ran_ms: Some(d.span(5_000)), ..d.end(how) };
        Op::Finish(vec![(d.one(), end)])
    }),
    (20, "finish: transient", |d| d.finish(How::Failed(ErrorClass::Transient))),
    (20, "finish: partial", |d| d.finish(How::Failed(ErrorClass::Partial))),
    (20, "finish: timeout", |d| d.finish(How::Failed(ErrorClass::Timeout))),
    (20, "finish: stuck", |d| d.finish(How::Failed(ErrorClass::Stuck))),
    (20, "finish: permanent", |d| d.finish(How::Failed(ErrorClass::Permanent))),
    (20, "finish: rate limited", |d| d.finish(How::Failed(ErrorClass::RateLimited))),
    (20, "finish: usage limit", Drawer::reach_a_usage_limit),
    (20, "finish: queue stop", |d| d.finish(How::Failed(ErrorClass::QueueStop))),
    (20, "finish: crash", |d| d.finish(How::Failed(ErrorClass::Crash))),
    (20, "finish: budget", |d| d.finish(How::Failed(ErrorClass::Budget))),
    (20, "finish: cancelled", |d| d.finish(How::Cancelled)),
    (20, "finish: node died", |d| d.finish(How::NodeDied)),
    (20, "finish with a wrong lease", |d| {
        let how = [How::Success, How::HandedBack, How::Cancelled][d.below(3)];
        Op::Finish(vec![(d.wrong(), d.end(how)), (d.wrong(), d.end(How::Success))])
    }),
    (22, "release", |d| Op::Release(d.open(3))),
    (20, "release with a wrong lease", |d| Op::Release(vec![d.wrong()])),
    (20, "append", |d| Op::Append { lease: d.one(), events: d.below(4) }),
    (20, "append with a wrong lease", |d| Op::Append { lease: d.wrong(), events: 1 }),
    (70, "spend", |d| Op::Spend { lease: d.one(), nanos: d.span(40) }),
    (20, "spend with a wrong lease", |d| Op::Spend { lease: d.wrong(), nanos: 7 }),
    (40, "set a budget", |d| d.configure(Drawer::budget)),
    (26, "serve a queue by a pool", |d| d.configure(Drawer::served_by)),
    (20, "ask for costs", Drawer::costs),
    (20, "save a step", |d| Op::SaveStep { lease: d.one(), name: d.below(STEPS.len()) }),
    (20, "save a step with a wrong lease", |d| Op::SaveStep { lease: d.wrong(), name: 0 }),
    (20, "cancel", |d| Op::Cancel(d.some_tasks())),
    (22, "replay", |d| Op::Replay { tasks: d.some_tasks(), how: Replay::default() }),
    (20, "replay from scratch", |d| {
        let payload = Some(format!("{{\"again\":{}}}", d.below(9)));
        Op::Replay { tasks: d.some_tasks(), how: Replay { steps: StepsOnReplay::Drop, payload } }
    }),
    (20, "amend", |d| Op::Amend { task: d.task(), overrides: d.overrides() }),
    (20, "look at a queue", |d| Op::Configure { queue: d.queue(), changes: Vec::new() }),
    (20, "pause", |d| d.configure(|_| QueueChange::Pause("lunch".to_owned()))),
    (40, "resume", |d| d.configure(|_| QueueChange::Resume)),
    (20, "limit a queue", |d| d.configure(|d| QueueChange::Limit(d.maybe(60, |d| d.below(8) as u64)))),
    (20, "limit how many at once", |d| {
        d.configure(|d| QueueChange::Concurrency(d.maybe(50, |d| d.below(6) as u32)))
    }),
    (24, "look into payloads", |d| {
        d.configure(|d| {
            let path = |d: &mut Drawer, text| d.maybe(80, |_| PayloadPath::parse(text).expect("a path"));
            if d.chance.chance(70) {
                QueueChange::KeyPath(path(d, "payload.tenant"))
            } else {
                QueueChange::CostPath(path(d, "payload.much.tokens"))
            }
        })
    }),
    (20, "order a queue", |d| {
        d.configure(|d| match d.below(2) {
            0 => QueueChange::Priority(PriorityOrder::ALL[d.below(PriorityOrder::ALL.len())]),
            _ => QueueChange::KeyHold(KeyHold::NAMED[d.below(KeyHold::NAMED.len())]),
        })
    }),
    (20, "limit a key", |d| d.configure(|d| QueueChange::KeyConcurrency(d.maybe(80, |d| d.below(4) as u32)))),
    (20, "rules for a queue", |d| {
        d.configure(|d| match d.below(2) {
            0 => QueueChange::Overrides(d.overrides()),
            _ => QueueChange::KindOverrides(KINDS[d.below(KINDS.len())].to_owned(), d.overrides()),
        })
    }),
    (20, "limit a rate", |d| d.configure(Drawer::rate)),
    (20, "say who sets limits", |d| {
        d.configure(|d| QueueChange::SetBy(SetBy::ALL[d.below(SetBy::ALL.len())]))
    }),
    (20, "set a breaker", |d| d.configure(|d| QueueChange::Breaker(d.maybe(90, Drawer::breaker)))),
    (70, "ask for a probe", Drawer::ask_for_a_probe),
    (20, "move a gate by hand", |d| d.configure(Drawer::by_hand)),
    (40, "use a call breaker", |d| Op::CallBreaker {
        name: d.below(CALL_BREAKERS.len()),
        what: BREAKER_USES[d.below(BREAKER_USES.len())],
    }),
    (30, "give a queue an account", |d| {
        d.configure(|d| QueueChange::Account(d.maybe(85, |d| ACCOUNTS[d.below(ACCOUNTS.len())].to_owned())))
    }),
    (40, "change an account", Drawer::change_an_account),
    (26, "tell of ends", |d| {
        d.configure(|d| {
            let wants = if d.chance.chance(70) { OutboxFilter::ALL } else { d.tell() };
            QueueChange::Subscribe(d.subscription(wants))
        })
    }),
    (20, "tell of more ends", |d| {
        d.configure(|d| {
            let wants = d.tell();
            QueueChange::AlsoSubscribe(d.subscription(wants))
        })
    }),
    (20, "unsubscribe", |d| {
        d.configure(|d| QueueChange::Unsubscribe(d.subscription(OutboxFilter::NONE).name))
    }),
    (26, "hear", |d| Op::Hear {
        session: d.session(),
        queue: d.queue(),
        subscriber: d.below(SUBSCRIBERS.len()),
        limit: d.below(4),
    }),
    (20, "hear for a session that may be over", |d| Op::Hear {
        session: d.any_session(),
        queue: d.queue(),
        subscriber: d.below(SUBSCRIBERS.len()),
        limit: 3,
    }),
    (26, "told", |d| Op::Told {
        session: d.session(),
        numbers: (0..=d.below(3)).map(|_| d.below(6) as u64 + 1).collect(),
    }),
    (24, "change a schedule", Drawer::change_a_schedule),
    (36, "fire", Drawer::fire),
    (24, "change a job", Drawer::change_a_job),
    (20, "look at jobs", |d| Op::Jobs { filter: d.job_filter(), limit: d.below(3) }),
    (20, "join", Drawer::join),
    (20, "join again", |d| Op::Join { session: d.any_session(), ttl_ms: 60_000 }),
    (20, "renew", |d| Op::Renew { session: d.session(), held: [d.open(3), vec![d.wrong()]].concat() }),
    (20, "leave", |d| {
        let session = d.session();
        d.alive.retain(|alive| *alive != session);
        Op::Leave { session }
    }),
    (20, "depart", |d| Op::Depart { session: d.any_session() }),
    (20, "report workers", |d| Op::Report { session: d.session(), workers: d.below(4) }),
    (20, "order", |d| Op::Order { session: d.any_session(), order: d.order() }),
    (20, "answer", |d| Op::Answer { session: d.any_session(), number: d.below(4) as u64 }),
    (20, "expire", |_| Op::Expire { batch: 100 }),
    (20, "expire in batches", |d| Op::Expire { batch: d.below(3) }),
    (20, "make ready", |_| Op::MakeReady { batch: 100 }),
    (20, "make ready in batches", |d| Op::MakeReady { batch: d.below(3) }),
    (20, "prune what is old", |d| {
        let hours = |d: &mut Drawer| Duration::from_secs(3_600 * d.below(60) as u64);
        let (completed, failed) = (hours(d), hours(d));
        Op::PruneOld(Retention { completed, failed, most: d.below(9) as u64, batch: d.below(6) })
    }),
    (20, "prune by name", |d| Op::PruneTasks(d.some_tasks())),
    (20, "list", |d| Op::List {
        filter: Filter::default(),
        failed: Span::default(),
        ended: Span::default(),
        page: d.below(6) + 1,
    }),
    (20, "list what matches", Drawer::list),
    (20, "show", |d| Op::ShowId(d.task())),
    (20, "show by key", |d| Op::ShowKey { queue: d.queue(), key: d.below(UNIQUE_KEYS.len()) }),
    (20, "ask which tasks exist", |d| Op::Existing(d.some_tasks())),
    (20, "find ids", |d| Op::FindIds { task: d.task(), len: 4 + d.below(6), limit: 1 + d.below(3) }),
    (20, "read events", |d| Op::ReadEvents { task: d.task(), after: d.below(4) as u64, limit: d.below(4) }),
    (20, "survey", |_| Op::Survey),
    (20, "ask for the time", |_| Op::Now),
    (20, "wakeups", |_| Op::Wakeups),
    (20, "news", |_| Op::News),
];

/// Events around the stores, with their weights.
const WORLD: &[Row<Act>] = &[
    (30, "some time passes", |d| Act::Pass { ms: d.span(20_000) }),
    (20, "a TTL passes", |d| {
        d.alive.clear();
        Act::Pass { ms: 60_001 }
    }),
    (20, "days pass", |d| {
        d.alive.clear();
        Act::Pass { ms: DAY_MS * (d.below(3) as u64 + 1) }
    }),
    (20, "a node is killed", |d| {
        let session = d.session();
        d.alive.retain(|alive| *alive != session);
        Act::Kill { session }
    }),
];

/// The number of rows in both tables.
pub(super) const ROWS: usize = SAID.len() + WORLD.len();

pub(super) const fn row_name(row: usize) -> &'static str {
    if row < SAID.len() { SAID[row].1 } else { WORLD[row - SAID.len()].1 }
}

const fn weight(row: usize) -> u64 {
    if row < SAID.len() { SAID[row].0 } else { WORLD[row - SAID.len()].0 }
}

/// The sequence of a seed, each step with the row it was drawn from.
pub(super) fn draw(seed: u64, ops: usize) -> Vec<(usize, Step)> {
    let mut drawer = Drawer { chance: Seed::new(seed), tasks: 0, sessions: 0, alive: Vec::new() };
    let row_of = |name| (0..ROWS).find(|row| row_name(*row) == name).expect("a row of the table");
    let (joining, telling, breaking) = (row_of("join"), row_of("tell of ends"), row_of("set a breaker"));
    (0..ops)
        .map(|at| {
            // Two nodes join first; when all are gone, others join. Most queues with an outbox or a breaker get it
            // near the start.
            let lonely = drawer.alive.is_empty() && drawer.chance.chance(60);
            let tells = at == 2 && drawer.chance.chance(60);
            let breaks = at == 3 && drawer.chance.chance(60);
            let row = match at {
                0 | 1 => joining,
                _ if lonely => joining,
                _ if tells => telling,
                _ if breaks => breaking,
                _ => drawer.row(),
            };
            let act = if row < SAID.len() {
                Act::Say(Box::new((SAID[row].2)(&mut drawer)))
            } else {
                (WORLD[row - SAID.len()].2)(&mut drawer)
            };
            let via = if drawer.chance.chance(50) { Via::First } else { Via::Second };
            (row, Step { via, act })
        })
        .collect()
}

/// State of the drawer, so that most operations refer to something that exists.
struct Drawer {
    chance: Seed,
    tasks: usize,
    sessions: usize,
    /// Sessions that may be alive.
    alive: Vec<usize>,
}

impl Drawer {
    fn row(&mut self) -> usize {
        let mut left = self.chance.below((0..ROWS).map(weight).sum());
        for row in 0..ROWS {
            if left < weight(row) {
                return row;
            }
            left -= weight(row);
        }
        unreachable!("the weights add up to their sum")
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.chance.below(bound as u64)).expect("below a usize")
    }

    /// A duration in milliseconds: often short, sometimes long.
    fn span(&mut self, most: u64) -> u64 {
        let most = if self.chance.chance(50) { 20 } else { most };
        self.chance.below(most) + 1
    }

    fn maybe<T>(&mut self, percent: u64, then: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance.chance(percent).then(|| then(self))
    }

    /// Mostly the first queue, so that tasks interact.
    fn queue(&mut self) -> usize {
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 2][self.below(10)].min(QUEUES.len() - 1)
    }

    fn task(&mut self) -> usize {
        if self.chance.chance(8) { NO_TASK } else { self.below(self.tasks.max(1)) }
    }

    fn some_tasks(&mut self) -> Vec<usize> {
        (0..=self.below(3)).map(|_| self.task()).collect()
    }

    fn session(&mut self) -> usize {
        if self.alive.is_empty() {
            return self.any_session();
        }
        let at = self.below(self.alive.len());
        self.alive[at]
    }

    /// A session that may never have joined.
    fn any_session(&mut self) -> usize {
        self.below(self.sessions + 1)
    }

    fn join(&mut self) -> Op {
        let session = self.sessions;
        self.sessions += 1;
        self.alive.push(session);
        Op::Join { session, ttl_ms: if self.chance.chance(80) { 60_000 } else { 10_000 } }
    }

    fn order(&mut self) -> NodeCommand {
        let [min, max] = [0; 2].map(|_| self.below(4) as u32);
        if self.chance.chance(30) {
            if min > max { NodeCommand::Resume } else { NodeCommand::Drain }
        } else if self.chance.chance(40) {
            NodeCommand::Recycle {
                pool: "pool".to_owned(),
                who: if min == 0 { WorkerChoice::Any } else { WorkerChoice::All },
            }
        } else {
            NodeCommand::Resize { pool: "pool".to_owned(), min, max }
        }
    }

    // ---- tasks ----

    fn draft(&mut self) -> Draft {
        let task = self.tasks;
        Draft {
            task,
            queue: self.queue(),
            kind: self.below(KINDS.len()),
            priority: if self.chance.chance(30) { self.chance.below(7) as i64 - 3 } else { 0 },
            run_in_ms: self.maybe(5, |d| d.span(5_000)),
            unique_key: self.maybe(5, |d| d.below(UNIQUE_KEYS.len())),
            hold: None,
            on_conflict: OnConflict::Keep,
            limit_key: self.maybe(25, |d| d.below(LIMIT_KEYS.len())),
            after: Vec::new(),
            on_failed: OnFailed::Cancel,
            attempts: self.maybe(30, |d| d.below(3) as u32 + 1),
            not_after_ms: None,
            deadline_ms: None,
            cost: self.maybe(20, |d| d.below(7) as u32 + 1),
        }
    }

    fn enqueue(&mut self, special: fn(&mut Self, &mut Draft)) -> Op {
        let many = if self.chance.chance(30) { 3 } else { 1 };
        let drafts = (0..many).map(|_| {
            let mut draft = self.draft();
            self.tasks += 1;
            special(self, &mut draft);
            draft
        });
        Op::Enqueue(drafts.collect())
    }

    fn give_a_key(&mut self, task: &mut Draft) {
        task.unique_key = Some(self.below(UNIQUE_KEYS.len()));
        task.hold = match self.below(4) {
            0 => None,
            1 => Some(KeyHold::Removed),
            2 => Some(KeyHold::End),
            _ => Some(KeyHold::For(Duration::from_millis(self.span(40_000)))),
        };
        task.on_conflict = OnConflict::ALL[self.below(OnConflict::ALL.len())];
    }

    fn wait_for_others(&mut self, task: &mut Draft) {
        let before = task.task.max(1);
        let recent = |d: &mut Self| before.saturating_sub(1 + d.below(4));
        task.after = (0..=self.below(2))
            .map(|_| match self.below(12) {
                0 => NO_TASK,
                1..=4 => self.below(before),
                _ => recent(self),
            })
            .collect();
        task.on_failed = OnFailed::ALL[self.below(OnFailed::ALL.len())];
    }

    fn give_an_end(&mut self, task: &mut Draft) {
        let which = self.below(3);
        task.not_after_ms = (which != 0).then(|| self.span(40_000));
        task.deadline_ms = (which != 1).then(|| self.span(40_000));
    }

    fn claim(&mut self, kinds: Option<Vec<usize>>) -> Op {
        Op::Claim { session: self.session(), queue: self.queue(), kinds, limit: self.below(5) }
    }

    fn change_a_job(&mut self) -> Op {
        let job = self.below(JOBS.len());
        match self.below(6) {
            0 => Op::ChangeJob { job, change: JobChange::Cancel },
            1 => Op::ChangeJob { job, change: JobChange::Reopen },
            2 => Op::ChangeJob { job, change: JobChange::Remove },
            3 => Op::ChangeJob { job, change: JobChange::Grow(self.span(100)) },
            _ => Op::PutJob { job, items: self.span(100) },
        }
    }

    fn job_filter(&mut self) -> JobFilter {
        JobFilter {
            id: self.maybe(20, |d| JOBS[d.below(JOBS.len())]),
            fingerprint: self.maybe(30, |d| format!("made from {}", d.below(3))),
            before: self.maybe(30, |d| JOBS[d.below(JOBS.len())]),
        }
    }

    fn change_a_schedule(&mut self) -> Op {
        let name = self.below(SCHEDULES.len());
        match self.below(8) {
            0 => Op::DropSchedule { name },
            1 => Op::PauseSchedule { name, activity: Activity::Paused },
            2 => Op::PauseSchedule { name, activity: Activity::Active },
            _ => {
                let plan = Plan {
                    spec: self.below(SPECS.len()),
                    overlap: Overlap::ALL[self.below(Overlap::ALL.len())],
                    missed: Missed::ALL[self.below(Missed::ALL.len())],
                    queue: self.queue(),
                    next_in_ms: self.maybe(90, |d| d.span(5_000)),
                };
                Op::PutSchedule { name, plan }
            }
        }
    }

    fn fire(&mut self) -> Op {
        let run = self.maybe(90, |d| {
            let draft = d.draft();
            d.tasks += 1;
            draft
        });
        let moment = if self.chance.chance(80) { Moment::Next } else { Moment::Other };
        let next_in_ms = self.maybe(90, |d| d.span(5_000));
        Op::Fire { name: self.below(SCHEDULES.len()), moment, next_in_ms, run }
    }

    // ---- leases ----

    fn one(&mut self) -> Pick {
        Pick::Open(self.below(4))
    }

    fn open(&mut self, most: usize) -> Vec<Pick> {
        (0..=self.below(most)).map(|_| self.one()).collect()
    }

    fn wrong(&mut self) -> Pick {
        let at = self.below(6);
        [Pick::Closed(at), Pick::Closed(at), Pick::Older(at), Pick::Future(at), Pick::Unknown][self.below(5)]
    }

    fn end(&mut self, how: How) -> End {
        let used_permille = self.maybe(20, |d| d.below(1_001) as u32);
        End { how, ran_ms: None, retry_after_ms: self.maybe(30, |d| d.span(20_000)), used_permille }
    }

    fn finish(&mut self, how: How) -> Op {
        let mut ends = vec![(self.one(), self.end(how))];
        if self.chance.chance(25) {
            ends.push((self.one(), self.end(how)));
        }
        Op::Finish(ends)
    }

    // ---- queues and queries ----

    fn configure(&mut self, change: fn(&mut Self) -> QueueChange) -> Op {
        let queue = self.queue();
        let changes = vec![change(self)];
        Op::Configure { queue, changes }
    }

    fn list(&mut self) -> Op {
        let states = StateName::ALL;
        let filter = Filter {
            state: self.maybe(40, |d| states[d.below(states.len())]),
            queue: self.maybe(30, |d| QUEUES[d.queue()].to_owned()),
            kind: self.maybe(30, |d| KINDS[d.below(KINDS.len())].to_owned()),
            text: self.maybe(20, |d| ["NUMBER", "u1", "again", "broke"][d.below(4)].to_owned()),
            field: self.maybe(20, |d| Field {
                path: vec!["number".to_owned()],
                value: serde_json::Value::from(d.below(8)),
            }),
            class: self.maybe(20, |d| ErrorClass::ALL[d.below(ErrorClass::ALL.len())]),
            failed_since: None,
            failed_until: None,
            ended_since: None,
            ended_until: None,
            items: ItemFilter::Listed,
            order: if self.chance.chance(50) { ListOrder::OldestFirst } else { ListOrder::NewestFirst },
            lease: if self.chance.chance(20) { LeaseFilter::Stale } else { LeaseFilter::Any },
        };
        let (failed, ended) = (self.span_of_list(), self.span_of_list());
        Op::List { filter, failed, ended, page: self.below(4) + 1 }
    }

    fn span_of_list(&mut self) -> Span {
        Span { since_ms: self.maybe(20, |d| d.span(20_000)), until_ms: self.maybe(20, |d| d.span(20_000)) }
    }
}
