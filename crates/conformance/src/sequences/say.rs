//! Runs one operation on one store, and normalizes its answer for comparison.

use super::super::sample_events::one_of_each;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    AccountChange, AccountReading, Cost, EventBody, Failure, Outcome, Overrides, Priority, TaskId, Timestamp,
    Usage, Worker, WorkerState,
};
use ostler_store::events::EventQuery;

use super::super::picture::{list_all, survey};
use super::op::{
    ACCOUNTS, AccountDraft, CALL_BREAKERS, CALL_POLICY, Draft, End, How, JOBS, KINDS, LIMIT_KEYS, Moment,
    Names, Op, Pick, Plan, QUEUES, SCHEDULES, SPECS, STEPS, SUBSCRIBERS, UNIQUE_KEYS,
};
use ostler_store::Error;
use ostler_store::Store;
use ostler_store::calls::{
    Claim, ClaimAnswer, Enqueued, Fenced, Finished, Kinds, NewSession, NewStep, NewTask, Prune, Ran, Renewed,
    Report, Start, Unwritten,
};
use ostler_store::costs::CostQuery;
use ostler_store::jobs::NewJob;
use ostler_store::node_commands::{NodeAnswer, RecycleAnswer, Reply, ResumeAnswer};
use ostler_store::outbox::Ack;
use ostler_store::schedules::{Fired, Firing, Schedule, ScheduleChange, TaskTemplate};
use ostler_store::unique::Unique;
use ostler_store::views::{Filter, TaskRef};
use ostler_store::{Lease, LeaseRef, MAX_PAGE};

/// A lease granted by a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedLease(LeaseRef);

impl GrantedLease {
    /// Whether both are the same lease; the row is internal to the store.
    pub(super) fn same(&self, lease: &LeaseRef) -> bool {
        (self.0.task, self.0.token) == (lease.task, lease.token)
    }
}

/// The normalized answer of a store.
#[derive(Default)]
pub(super) struct Said {
    pub(super) answer: String,
    pub(super) granted: Vec<GrantedLease>,
    /// Leases that were given up or lost.
    pub(super) spent: Vec<LeaseRef>,
    /// Tasks that were created.
    pub(super) created: u64,
}

/// One store, and the leases it has granted so far.
pub(super) struct Speaker {
    pub(super) store: Arc<dyn Store>,
    pub(super) names: Names,
    pub(super) now: Timestamp,
    pub(super) open: Vec<GrantedLease>,
    pub(super) closed: Vec<GrantedLease>,
}

impl Speaker {
    pub(super) async fn say(&self, op: &Op) -> Said {
        let store = &self.store;
        let tasks =
            |numbers: &[usize]| numbers.iter().map(|number| self.names.task(*number)).collect::<Vec<_>>();
        match op {
            Op::Join { session, ttl_ms } => plain(store.join(self.node(*session, *ttl_ms)).await),
            Op::Renew { session, held } => {
                let held = self.leases(held);
                plain(store.renew(self.names.session(*session), &held).await.map(sorted))
            }
            Op::Leave { session } => plain(store.leave(self.names.session(*session)).await),
            Op::Depart { session } => plain(store.depart(self.names.session(*session)).await),
            Op::Report { session, workers } => {
                let closed = (0..*workers).map(|number| self.worker(*session, 50 + number)).collect();
                let workers = (0..*workers).map(|number| self.worker(*session, number)).collect();
                plain(store.report(self.names.session(*session), workers, closed).await)
            }
            Op::Order { session, order } => {
                plain(store.command(self.names.session(*session), order.clone()).await)
            }
            Op::Answer { session, number } => {
                let busy = vec![self.worker(*session, 0).id];
                let answer = match number % 2 {
                    0 => NodeAnswer::Resume(ResumeAnswer::Stopping),
                    _ => NodeAnswer::Recycle(RecycleAnswer { recycled: Vec::new(), busy }),
                };
                let reply = Reply { number: *number, answer };
                plain(store.reply(self.names.session(*session), reply).await)
            }
            Op::Enqueue(drafts) => {
                let answers = store.enqueue(drafts.iter().map(|draft| self.task(draft)).collect()).await;
                let is_new = |answer: &&Enqueued| matches!(answer, Enqueued::Created(_));
                let created = answers.iter().flatten().filter(is_new).count() as u64;
                Said { created, ..plain(answers) }
            }
            Op::EnqueueWrong(draft) => {
                let wrong = NewTask { kind: String::new(), ..self.task(draft) };
                plain(store.enqueue(vec![self.task(draft), wrong]).await)
            }
            Op::Claim { session, queue, kinds, limit } => {
                self.claim(*session, *queue, kinds.as_deref(), *limit).await
            }
            Op::Start(picks) => self.start(picks).await,
            Op::Finish(ends) => {
                let reports = ends.iter().map(|(pick, end)| self.report(*pick, end)).collect();
                self.finish(ends.iter().map(|(pick, _)| *pick), store.finish(reports).await)
            }
            Op::Release(picks) => {
                let leases = self.leases(picks).into_iter().map(Lease::granted).collect();
                self.finish(picks.iter().copied(), store.finish(Report::hand_backs(leases)).await)
            }
            Op::Append { lease, events } => {
                // Which kinds come is left to the time, so that all do.
                let mut all = one_of_each(&format!("event {}", self.now.millis()));
                let kinds = all.len();
                all.rotate_left(usize::try_from(self.now.millis()).unwrap_or(0) % kinds);
                all.truncate(*events);
                plain(store.append(self.lease(*lease), all).await)
            }
            Op::Spend { lease, nanos } => {
                let (model, cost) = (Some(format!("model-{}", nanos % 3)), Some(Cost::from_nanos(*nanos)));
                let usage = Usage { model, input_tokens: 2, cost, ..Usage::default() };
                plain(store.append(self.lease(*lease), vec![EventBody::Usage(usage)]).await)
            }
            Op::Costs { by, queue, since_ms, until_ms } => {
                let ago = |ms: &Option<u64>| ms.map(|ms| self.now.before(Duration::from_millis(ms)));
                let queue = queue.map(|queue| QUEUES[queue].to_owned());
                let (since, until) = (ago(since_ms), ago(until_ms));
                plain(store.costs(CostQuery { by: *by, since, until, queue, limit: 5 }).await)
            }
            Op::SaveStep { lease, name } => {
                let step = NewStep { name: STEPS[*name].to_owned(), value: self.now.millis().to_string() };
                plain(store.save_step(self.lease(*lease), step).await)
            }
            Op::Hear { session, queue, subscriber, limit } => {
                let (session, subscriber) = (self.names.session(*session), SUBSCRIBERS[*subscriber]);
                plain(store.take_outbox(session, QUEUES[*queue], subscriber, *limit).await)
            }
            Op::Told { session, numbers } => {
                let warning =
                    |number: u64| number.is_multiple_of(2).then(|| format!("no listener for {number}"));
                let delivery = |number: &u64| Ack { number: *number, warning: warning(*number) };
                let deliveries = numbers.iter().map(delivery).collect();
                plain(store.ack_outbox(self.names.session(*session), deliveries).await)
            }
            Op::Cancel(numbers) => plain(store.cancel(tasks(numbers)).await),
            Op::Replay { tasks: numbers, how } => plain(store.replay(tasks(numbers), how.clone()).await),
            Op::Amend { task, overrides } => plain(store.amend(self.names.task(*task), *overrides).await),
            Op::Configure { queue, changes } => plain(store.configure(QUEUES[*queue], changes.clone()).await),
            Op::CallBreaker { name, what } => {
                plain(store.call_breaker(CALL_BREAKERS[*name], CALL_POLICY, *what).await)
            }
            Op::ChangeAccount { name, change } => {
                plain(store.change_account(ACCOUNTS[*name], self.account_change(*change)).await)
            }
            Op::PutSchedule { name, plan } => plain(store.put_schedule(self.schedule(*name, plan)).await),
            Op::DropSchedule { name } => {
                plain(store.change_schedule(SCHEDULES[*name], ScheduleChange::Remove).await)
            }
            Op::PauseSchedule { name, activity } => {
                plain(store.change_schedule(SCHEDULES[*name], ScheduleChange::Set(*activity)).await)
            }
            Op::Fire { name, moment, next_in_ms, run } => {
                self.fire(SCHEDULES[*name], *moment, *next_in_ms, run.as_ref()).await
            }
            Op::PutJob { job, items } => plain(store.put_job(job_of(*job, *items)).await),
            Op::ChangeJob { job, change } => plain(store.change_job(JOBS[*job], *change).await),
            Op::Backlog { queue, kinds, limit } => {
                plain(store.backlog(QUEUES[*queue], &named(kinds.as_deref()), *limit).await)
            }
            Op::Jobs { filter, limit } => plain(store.jobs(filter.clone(), *limit).await),
            Op::Expire { batch } => plain(store.expire(*batch).await.map(|mut expired| {
                expired.sessions.sort_unstable();
                expired
            })),
            Op::MakeReady { batch } => plain(store.make_ready(*batch).await),
            Op::PruneOld(keep) => plain(store.prune(Prune::Retention(*keep)).await),
            Op::PruneTasks(numbers) => plain(store.prune(Prune::Tasks(tasks(numbers))).await),
            Op::List { filter, failed, ended, page } => {
                let before = |ms: u64| self.now.before(Duration::from_millis(ms));
                let (failed_since, failed_until) = (failed.since_ms.map(before), failed.until_ms.map(before));
                let (ended_since, ended_until) = (ended.since_ms.map(before), ended.until_ms.map(before));
                let filter =
                    Filter { failed_since, failed_until, ended_since, ended_until, ..filter.clone() };
                plain(Ok(list_all(store.as_ref(), &filter, *page).await))
            }
            Op::ShowId(number) => plain(store.show(TaskRef::Id(self.names.task(*number))).await),
            Op::ShowKey { queue, key } => {
                let (queue, key) = (QUEUES[*queue].to_owned(), UNIQUE_KEYS[*key].to_owned());
                plain(store.show(TaskRef::Key { queue, key }).await)
            }
            Op::FindIds { task, len, limit } => {
                let text = self.names.task(*task).to_string();
                // Now its beginning, now its end.
                let part = if len % 2 == 0 { &text[..*len] } else { &text[text.len() - len..] };
                plain(store.find_ids(part.parse().expect("a part of an id"), *limit).await)
            }
            Op::Existing(numbers) => plain(store.existing(tasks(numbers)).await),
            Op::ReadEvents { task, after, limit } => {
                let query = EventQuery { after: *after, limit: *limit, ..EventQuery::default() };
                plain(store.read_events(self.names.task(*task), query).await)
            }
            Op::Now => plain(store.now().await),
            Op::Survey => {
                let mut gone = store.gone_workers(MAX_PAGE).await.expect("gone_workers answers");
                // Sessions that end in one call may end in any order.
                gone.sort_by_key(|gone| (gone.gone_at, gone.session, gone.worker.id));
                plain(Ok((survey(store.as_ref()).await, gone)))
            }
            Op::Wakeups => {
                store.wakeups().arm();
                Said::default()
            }
            Op::News => {
                store.control().arm();
                Said::default()
            }
        }
    }

    async fn claim(&self, session: usize, queue: usize, kinds: Option<&[usize]>, limit: usize) -> Said {
        let (session, kinds) = (self.names.session(session), named(kinds));
        let claim = Claim { session, queue: QUEUES[queue].to_owned(), kinds, limit };
        let mut granted = Vec::new();
        let answer = self.store.claim(claim).await.map(|answer| match answer {
            ClaimAnswer::Tasks { mut tasks, next } => {
                for claimed in &mut tasks {
                    let lease = claimed.lease.as_ref();
                    granted.push(GrantedLease(lease));
                    claimed.lease = Lease::granted(LeaseRef { row: 0, ..lease });
                }
                ClaimAnswer::Tasks { tasks, next }
            }
            ClaimAnswer::SessionEnded => ClaimAnswer::SessionEnded,
        });
        Said { granted, ..plain(answer) }
    }

    async fn fire(&self, name: &str, moment: Moment, next_in_ms: Option<u64>, run: Option<&Draft>) -> Said {
        let all = self.store.schedules().await.expect("schedules answers");
        let next_at =
            all.iter().find(|kept| kept.schedule.name == name).and_then(|kept| kept.schedule.next_at);
        let expected = match moment {
            Moment::Next => next_at.unwrap_or(self.now),
            Moment::Other => self.now.before(Duration::from_millis(1)),
        };
        let next = next_in_ms.map(|ms| expected.max(self.now).after(Duration::from_millis(ms)));
        let task = run.map(|draft| NewTask { unique: None, ..self.task(draft) });
        let fired = self.store.fire(Firing { schedule: name.to_owned(), expected, next, task }).await;
        let created = u64::from(matches!(fired, Ok(Fired::Enqueued(_) | Fired::Replaced { .. })));
        Said { created, ..plain(fired) }
    }

    fn account_change(&self, draft: AccountDraft) -> AccountChange {
        match draft {
            AccountDraft::Hold { for_ms } => AccountChange::Hold {
                until: for_ms.map(|ms| self.now.after(Duration::from_millis(ms))),
                why: format!("held at {}", self.now),
            },
            AccountDraft::Release => AccountChange::Release,
            AccountDraft::Cap(cap) => AccountChange::Cap(cap),
            AccountDraft::Allowance(requests) => AccountChange::Allowance(requests),
        }
    }

    fn schedule(&self, name: usize, plan: &Plan) -> Schedule {
        Schedule {
            name: SCHEDULES[name].to_owned(),
            spec: SPECS[plan.spec].to_owned(),
            overlap: plan.overlap,
            missed: plan.missed,
            task: TaskTemplate {
                queue: QUEUES[plan.queue].to_owned(),
                kind: KINDS[0].to_owned(),
                payload: "{}".to_owned(),
                priority: Priority::NORMAL,
                overrides: Overrides::NONE,
            },
            next_at: plan.next_in_ms.map(|ms| self.now.after(Duration::from_millis(ms))),
        }
    }

    async fn start(&self, picks: &[Pick]) -> Said {
        let starts: Vec<Start> = self
            .leases(picks)
            .into_iter()
            .enumerate()
            .map(|(number, lease)| Start { lease, worker: self.names.worker(number) })
            .collect();
        let answers = self.store.start(starts.clone()).await;
        let lost = answers.iter().flatten().zip(&starts).filter(|(answer, _)| **answer == Fenced::Lost);
        let spent = lost.map(|(_, start)| start.lease).collect();
        Said { spent, ..plain(answers) }
    }

    /// A finished lease is closed whatever the answer; only a refused call returns it.
    fn finish(&self, picks: impl Iterator<Item = Pick>, answers: Result<Vec<Finished>, Unwritten>) -> Said {
        let answers = answers.map_err(|Unwritten { error, reports }| (error.kind(), reports.len()));
        let spent = if answers.is_ok() { picks.map(|pick| self.lease(pick)).collect() } else { Vec::new() };
        Said { spent, answer: format!("{answers:?}"), ..Said::default() }
    }

    fn report(&self, pick: Pick, end: &End) -> Report {
        let outcome = match end.how {
            How::Success => Outcome::Success,
            How::Failed(class) => Outcome::Failed(Failure {
                retry_after: end.retry_after_ms.map(Duration::from_millis),
                ..Failure::new(class, "it broke")
            }),
            How::NodeDied => Outcome::NodeDied,
            How::HandedBack => Outcome::HandedBack,
            How::Cancelled => Outcome::Cancelled,
        };
        let ran = end.ran_ms.map(|ms| Ran { worker: self.names.worker(0), took: Duration::from_millis(ms) });
        let output = matches!(outcome, Outcome::Success).then(|| self.now.millis().to_string());
        let reading = end.used_permille.map(|utilization_permille| AccountReading {
            window: "five_hour".to_owned(),
            utilization_permille,
            resets_at: end.retry_after_ms.map(|ms| self.now.after(Duration::from_millis(ms))),
        });
        Report { lease: Lease::granted(self.lease(pick)), ran, outcome, output, reading }
    }

    // ---- leases ----

    fn leases(&self, picks: &[Pick]) -> Vec<LeaseRef> {
        picks.iter().map(|pick| self.lease(*pick)).collect()
    }

    fn lease(&self, pick: Pick) -> LeaseRef {
        let unknown = LeaseRef { task: self.names.task(usize::MAX >> 24), token: 1, row: 1 };
        let open =
            |back: usize| self.open.iter().rev().nth(back % self.open.len().max(1)).map(|grant| grant.0);
        let found = match pick {
            Pick::Open(back) => open(back),
            Pick::Closed(back) => {
                self.closed.iter().rev().nth(back % self.closed.len().max(1)).map(|grant| grant.0)
            }
            Pick::Older(back) => {
                open(back).map(|lease| LeaseRef { token: lease.token.saturating_sub(1), ..lease })
            }
            Pick::Future(back) => open(back).map(|lease| LeaseRef { token: lease.token + 1, ..lease }),
            // The row belongs to another task: the id decides.
            Pick::Unknown => open(0).map(|lease| LeaseRef { task: unknown.task, ..lease }),
        };
        found.unwrap_or(unknown)
    }

    // ---- arguments ----

    fn node(&self, session: usize, ttl_ms: u64) -> NewSession {
        NewSession {
            id: self.names.session(session),
            name: format!("node {session}"),
            host: "stable-1".to_owned(),
            pid: 100,
            version: "1".to_owned(),
            ttl: Duration::from_millis(ttl_ms),
            settings: "{}".to_owned(),
        }
    }

    fn worker(&self, session: usize, number: usize) -> Worker {
        Worker {
            id: self.names.worker(session * 100 + number),
            name: format!("pool-{number}"),
            pool: "pool".to_owned(),
            pid: Some(7),
            state: WorkerState::ALL[number % WorkerState::ALL.len()],
            memory_bytes: None,
            started_at: self.now,
            done: number as u64,
            failed: 0,
            task: None::<(TaskId, Timestamp)>,
        }
    }

    fn task(&self, draft: &Draft) -> NewTask {
        let later = |ms: Option<u64>| ms.map(|ms| self.now.after(Duration::from_millis(ms)));
        NewTask {
            id: self.names.task(draft.task),
            queue: QUEUES[draft.queue].to_owned(),
            kind: KINDS[draft.kind].to_owned(),
            payload: payload(draft.task),
            priority: Priority::new(draft.priority).expect("drawn in range"),
            run_at: later(draft.run_in_ms),
            unique: draft.unique_key.map(|key| Unique {
                key: UNIQUE_KEYS[key].to_owned(),
                hold: draft.hold,
                on_conflict: draft.on_conflict,
            }),
            limit_key: draft.limit_key.map(|key| LIMIT_KEYS[key].to_owned()),
            after: draft.after.iter().map(|number| self.names.task(*number)).collect(),
            on_failed: draft.on_failed,
            overrides: Overrides { attempts: draft.attempts, ..Overrides::NONE },
            not_after: later(draft.not_after_ms),
            deadline: later(draft.deadline_ms),
            folder: None,
            traceparent: None,
            cost: draft.cost,
        }
    }
}

fn job_of(number: usize, items: u64) -> NewJob {
    NewJob {
        id: JOBS[number],
        name: "sorting".to_owned(),
        fingerprint: format!("made from {number}"),
        spec: "{}".to_owned(),
        items,
    }
}

/// A payload by number, with a limit key and a cost, or with something invalid in place of the key.
fn payload(number: usize) -> String {
    let tenant = LIMIT_KEYS.get(number % 4).map_or_else(|| "[1]".to_owned(), |key| format!("\"{key}\""));
    let tokens = number % 9;
    format!("{{\"number\":{number},\"tenant\":{tenant},\"much\":{{\"tokens\":{tokens}}}}}")
}

/// Kinds by index; `None`: all.
fn named(kinds: Option<&[usize]>) -> Kinds {
    kinds.map_or(Kinds::Any, |kinds| Kinds::Only(kinds.iter().map(|kind| KINDS[*kind].to_owned()).collect()))
}

/// The answer as text. Only the kind of an error is promised.
fn plain<T: std::fmt::Debug>(answer: Result<T, Error>) -> Said {
    let answer = answer.map_err(|error| error.kind());
    Said { answer: format!("{answer:?}"), ..Said::default() }
}

/// Removes what the contract does not promise: the order of cancelled tasks, and the rows, which are internal to the store.
fn sorted(renewed: Renewed) -> Renewed {
    match renewed {
        Renewed::Held { mut cancelled, lost, mut unnamed, commands: orders } => {
            cancelled.sort_unstable();
            unnamed.iter_mut().for_each(|lease| lease.row = 0);
            Renewed::Held { cancelled, lost, unnamed, commands: orders }
        }
        Renewed::Ended => Renewed::Ended,
    }
}
