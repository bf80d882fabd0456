//! The store as seen by the parts of a node: forwards each call to the real store and reports its result to
//! `store_health.rs`, in one place for all of them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{
    Account, AccountChange, BreakerPolicy, EventBody, IdPart, JobId, Overrides, Pass, SessionId, TaskId,
    Timestamp, Worker,
};
use ostler_store::accounts::AccountRecord;
use ostler_store::call_breakers::{BreakerUse, CallBreakerRecord};
use ostler_store::calls::Amended;
use ostler_store::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Enqueued, Expired, Fenced, Finished, Kinds, MadeReady,
    NewSession, NewStep, NewTask, Prune, Pruned, QueueChange, Renewed, Replay, ReplayAnswer, Report, Saved,
    Start, Unwritten,
};
use ostler_store::costs::{CostQuery, CostRecord};
use ostler_store::events::{Event, EventQuery, TextPart, TextRef};
use ostler_store::jobs::{JobAnswer, JobChange, JobFilter, JobPut, JobRecord, NewJob};
use ostler_store::node_commands::{CommandAnswer, NodeCommand, Reply};
use ostler_store::outbox::{Ack, OutboxAnswer};
use ostler_store::schedules::{
    Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, ScheduleRecord,
};
use ostler_store::views::{
    Cursor, Filter, FoundIds, GoneWorker, Page, QueueSettings, Survey, TaskDetail, TaskRef,
};
use ostler_store::{Changes, Error, LeaseRef, Store, Wakeups};

use crate::store_health::{Input, Proof, SILENT_AFTER, StoreHealth, Verb};
use crate::telemetry::Telemetry;

/// A store whose calls are observed.
pub(crate) struct WatchedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) health: StoreHealth,
    pub(crate) telemetry: Telemetry,
}

/// A call by name, what its success proves at least, and the origin of its input.
const fn verb(name: &'static str, shows: Proof, input: Input) -> Verb {
    Verb { name, shows, input }
}

impl WatchedStore {
    /// Awaits a call and reports its result.
    async fn watch<T>(&self, verb: Verb, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.watch_by(verb, call, |_| verb.shows).await
    }

    /// Like `watch`, if the answer determines what was proved.
    async fn watch_by<T>(
        &self,
        verb: Verb,
        call: impl Future<Output = Result<T, Error>>,
        shown: impl FnOnce(&T) -> Proof,
    ) -> Result<T, Error> {
        let answer = self.wait(verb, call).await;
        match &answer {
            Ok(answer) => self.health.worked(verb, shown(answer)),
            Err(error) => {
                self.telemetry.store_failed();
                self.health.failed(verb, error);
            }
        }
        answer
    }

    /// Awaits an answer, and reports if that takes long.
    async fn wait<T>(&self, verb: Verb, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = tokio::time::sleep(SILENT_AFTER) => self.health.silent(verb),
        }
        call.await
    }
}

#[async_trait]
impl Store for WatchedStore {
    async fn join(&self, node: NewSession) -> Result<Fenced, Error> {
        self.watch(verb("join", Proof::Written, Input::Own), self.store.join(node)).await
    }

    async fn renew(&self, session: SessionId, held: &[LeaseRef]) -> Result<Renewed, Error> {
        let renewal = self.store.renew(session, held);
        let renewed = self.watch(verb("renew", Proof::Read, Input::Own), renewal).await?;
        match &renewed {
            Renewed::Held { .. } => self.telemetry.node_renewed(),
            Renewed::Ended => {}
        }
        Ok(renewed)
    }

    async fn leave(&self, session: SessionId) -> Result<Fenced, Error> {
        self.watch(verb("leave", Proof::Written, Input::Own), self.store.leave(session)).await
    }

    async fn depart(&self, session: SessionId) -> Result<Fenced, Error> {
        self.watch(verb("depart", Proof::Read, Input::Own), self.store.depart(session)).await
    }

    async fn reply(&self, session: SessionId, answer: Reply) -> Result<Fenced, Error> {
        self.watch(verb("reply", Proof::Written, Input::Own), self.store.reply(session, answer)).await
    }

    async fn report(
        &self,
        session: SessionId,
        workers: Vec<Worker>,
        closed: Vec<Worker>,
    ) -> Result<Fenced, Error> {
        let report = self.store.report(session, workers, closed);
        self.watch(verb("report", Proof::Written, Input::Own), report).await
    }

    fn liveness_lock(&self, session: SessionId) -> Result<Option<OwnedFd>, Error> {
        self.store.liveness_lock(session)
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error> {
        let submission = self.telemetry.submitting(&tasks);
        let call = self.store.enqueue(tasks);
        let answers = self.watch(verb("enqueue", Proof::Written, Input::Work), call).await?;
        submission.stored(&answers);
        Ok(answers)
    }

    async fn claim(&self, claim: Claim) -> Result<ClaimAnswer, Error> {
        let shown = |answer: &ClaimAnswer| match answer {
            ClaimAnswer::Tasks { tasks, .. } => tasks.first().map_or(Proof::Turn, |first| {
                self.telemetry.claimed(&first.queue, tasks.len());
                Proof::Written
            }),
            ClaimAnswer::SessionEnded => Proof::Turn,
        };
        self.watch_by(verb("claim", Proof::Turn, Input::Own), self.store.claim(claim), shown).await
    }

    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Fenced>, Error> {
        self.watch(verb("start", Proof::Written, Input::Own), self.store.start(starts)).await
    }

    async fn finish(&self, reports: Vec<Report>) -> Result<Vec<Finished>, Unwritten> {
        let finish = verb("finish", Proof::Written, Input::Work);
        let answer = self.wait(finish, self.store.finish(reports)).await;
        match &answer {
            Ok(_) => self.health.worked(finish, finish.shows),
            Err(Unwritten { error, .. }) => self.health.failed(finish, error),
        }
        answer
    }

    async fn append(&self, lease: LeaseRef, events: Vec<EventBody>) -> Result<Appended, Error> {
        self.watch(verb("append", Proof::Written, Input::Work), self.store.append(lease, events)).await
    }

    async fn save_step(&self, lease: LeaseRef, step: NewStep) -> Result<Saved, Error> {
        self.watch(verb("save_step", Proof::Written, Input::Work), self.store.save_step(lease, step)).await
    }

    async fn take_outbox(
        &self,
        session: SessionId,
        queue: &str,
        subscriber: &str,
        limit: usize,
    ) -> Result<OutboxAnswer, Error> {
        self.watch(
            verb("take_outbox", Proof::Read, Input::Own),
            self.store.take_outbox(session, queue, subscriber, limit),
        )
        .await
    }

    async fn ack_outbox(&self, session: SessionId, deliveries: Vec<Ack>) -> Result<(), Error> {
        self.watch(verb("ack_outbox", Proof::Written, Input::Own), self.store.ack_outbox(session, deliveries))
            .await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<CancelAnswer>, Error> {
        self.watch(verb("cancel", Proof::Turn, Input::Own), self.store.cancel(tasks)).await
    }

    async fn replay(&self, tasks: Vec<TaskId>, how: Replay) -> Result<Vec<ReplayAnswer>, Error> {
        self.watch(verb("replay", Proof::Turn, Input::Work), self.store.replay(tasks, how)).await
    }

    async fn amend(&self, task: TaskId, overrides: Overrides) -> Result<Amended, Error> {
        self.watch(verb("amend", Proof::Turn, Input::Work), self.store.amend(task, overrides)).await
    }

    async fn command(&self, session: SessionId, command: NodeCommand) -> Result<CommandAnswer, Error> {
        self.watch(verb("command", Proof::Turn, Input::Work), self.store.command(session, command)).await
    }

    async fn queue_settings(&self, queue: &str) -> Result<QueueSettings, Error> {
        self.watch(verb("queue_settings", Proof::Read, Input::Work), self.store.queue_settings(queue)).await
    }

    async fn configure(&self, queue: &str, changes: Vec<QueueChange>) -> Result<QueueSettings, Error> {
        self.watch(verb("configure", Proof::Written, Input::Work), self.store.configure(queue, changes)).await
    }

    async fn put_schedule(&self, schedule: Schedule) -> Result<PutAnswer, Error> {
        self.watch(verb("put_schedule", Proof::Turn, Input::Work), self.store.put_schedule(schedule)).await
    }

    async fn change_schedule(&self, name: &str, change: ScheduleChange) -> Result<ScheduleAnswer, Error> {
        self.watch(
            verb("change_schedule", Proof::Turn, Input::Work),
            self.store.change_schedule(name, change),
        )
        .await
    }

    async fn fire(&self, firing: Firing) -> Result<Fired, Error> {
        let submission = self.telemetry.submitting(firing.task.as_slice());
        let fired = self.watch(verb("fire", Proof::Turn, Input::Work), self.store.fire(firing)).await?;
        if let Fired::Enqueued(run) | Fired::Replaced { run, .. } = fired {
            submission.stored(&[Enqueued::Created(run)]);
        }
        Ok(fired)
    }

    async fn put_job(&self, job: NewJob) -> Result<JobPut, Error> {
        self.watch(verb("put_job", Proof::Turn, Input::Work), self.store.put_job(job)).await
    }

    async fn change_job(&self, job: JobId, change: JobChange) -> Result<JobAnswer, Error> {
        self.watch(verb("change_job", Proof::Turn, Input::Work), self.store.change_job(job, change)).await
    }

    async fn expire(&self, batch: usize) -> Result<Expired, Error> {
        self.watch(verb("expire", Proof::Read, Input::Own), self.store.expire(batch)).await
    }

    async fn make_ready(&self, batch: usize) -> Result<MadeReady, Error> {
        self.watch(verb("make_ready", Proof::Read, Input::Own), self.store.make_ready(batch)).await
    }

    async fn prune(&self, what: Prune) -> Result<Pruned, Error> {
        let shown = |pruned: &Pruned| if pruned.tasks > 0 { Proof::Written } else { Proof::Turn };
        self.watch_by(verb("prune", Proof::Turn, Input::Own), self.store.prune(what), shown).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.watch(verb("now", Proof::Read, Input::Own), self.store.now()).await
    }

    async fn list(&self, filter: Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.watch(verb("list", Proof::Read, Input::Own), self.store.list(filter, after, limit)).await
    }

    async fn show(&self, which: TaskRef) -> Result<Option<TaskDetail>, Error> {
        self.watch(verb("show", Proof::Read, Input::Own), self.store.show(which)).await
    }

    async fn find_ids(&self, part: IdPart, limit: usize) -> Result<FoundIds, Error> {
        self.watch(verb("find_ids", Proof::Read, Input::Own), self.store.find_ids(part, limit)).await
    }

    async fn existing(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>, Error> {
        self.watch(verb("existing", Proof::Read, Input::Own), self.store.existing(tasks)).await
    }

    async fn read_events(&self, task: TaskId, query: EventQuery) -> Result<Vec<Event>, Error> {
        self.watch(verb("read_events", Proof::Read, Input::Own), self.store.read_events(task, query)).await
    }

    async fn read_text(
        &self,
        task: TaskId,
        text: TextRef,
        from: u64,
        most: usize,
    ) -> Result<Option<TextPart>, Error> {
        let reading = self.store.read_text(task, text, from, most);
        self.watch(verb("read_text", Proof::Read, Input::Own), reading).await
    }

    async fn call_breaker(&self, name: &str, policy: BreakerPolicy, what: BreakerUse) -> Result<Pass, Error> {
        let call = self.store.call_breaker(name, policy, what);
        self.watch(verb("call_breaker", Proof::Read, Input::Work), call).await
    }

    async fn change_account(&self, name: &str, change: AccountChange) -> Result<Account, Error> {
        let call = self.store.change_account(name, change);
        self.watch(verb("change_account", Proof::Turn, Input::Work), call).await
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>, Error> {
        self.watch(verb("accounts", Proof::Read, Input::Own), self.store.accounts()).await
    }

    async fn costs(&self, query: CostQuery) -> Result<Vec<CostRecord>, Error> {
        self.watch(verb("costs", Proof::Read, Input::Own), self.store.costs(query)).await
    }

    async fn call_breakers(&self) -> Result<Vec<CallBreakerRecord>, Error> {
        self.watch(verb("call_breakers", Proof::Read, Input::Own), self.store.call_breakers()).await
    }

    async fn gone_workers(&self, limit: usize) -> Result<Vec<GoneWorker>, Error> {
        self.watch(verb("gone_workers", Proof::Read, Input::Own), self.store.gone_workers(limit)).await
    }

    async fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> Result<usize, Error> {
        self.watch(verb("backlog", Proof::Read, Input::Own), self.store.backlog(queue, kinds, limit)).await
    }

    async fn survey(&self) -> Result<Survey, Error> {
        self.watch(verb("survey", Proof::Read, Input::Own), self.store.survey()).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRecord>, Error> {
        self.watch(verb("schedules", Proof::Read, Input::Own), self.store.schedules()).await
    }

    async fn jobs(&self, filter: JobFilter, limit: usize) -> Result<Vec<JobRecord>, Error> {
        self.watch(verb("jobs", Proof::Read, Input::Own), self.store.jobs(filter, limit)).await
    }

    fn wakeups(&self) -> Wakeups {
        self.store.wakeups()
    }

    fn control(&self) -> Wakeups {
        self.store.control()
    }

    fn changes(&self) -> Changes {
        self.store.changes()
    }
}

#[cfg(test)]
mod tests {
    use ostler_store::SystemClock;
    use ostler_testkit::Memory;
    use tokio::sync::mpsc;

    use super::*;
    use crate::lifecycle::NodeLifecycle;
    use crate::store_health::StoreNews;

    #[tokio::test(start_paused = true)]
    async fn a_verb_that_is_not_answered_is_said_and_so_is_its_answer() {
        let (sender, mut news) = mpsc::channel(9);
        let clock = Arc::new(SystemClock);
        let telemetry = Telemetry::here("node");
        let health = StoreHealth::new(clock.clone(), NodeLifecycle::new(), Some(sender), telemetry.clone());
        let store = WatchedStore { store: Arc::new(Memory::new(clock)), health: health.clone(), telemetry };
        let claim = verb("claim", Proof::Turn, Input::Own);
        let slow = async {
            tokio::time::sleep(SILENT_AFTER * 2).await;
            Ok(7)
        };
        assert_eq!(store.watch(claim, slow).await, Ok(7));
        assert!(matches!(news.recv().await, Some(StoreNews::Away(_))));
        assert!(matches!(news.recv().await, Some(StoreNews::Back { .. })));
        assert_eq!((health.trouble(), health.gone()), (None, None));
    }
}
