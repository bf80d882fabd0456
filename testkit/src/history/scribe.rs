//! Store client that logs every call and every answer.

use ostler_core::{EventBody, Outcome, SessionId, StateName, TaskId, Worker};
use ostler_store::calls::{
    Appended, CancelAnswer, Claim, ClaimAnswer, Claimed, Enqueued, Expired, Fenced, Finished, NewSession,
    NewStep, NewTask, Prune, QueueChange, Replay, ReplayAnswer, Report, Retention, Saved, Start,
};
use ostler_store::schedules::{Fired, Firing};
use ostler_store::{Lease, LeaseRef, Store};

use super::log::{Answer, Call, Log};
use crate::ids::Ids;

/// Calls a store and logs it. A store error is a panic: the workload has failed.
#[derive(Clone, Copy)]
pub struct Scribe<'a> {
    pub store: &'a dyn Store,
    pub log: &'a Log,
    /// The source of worker ids.
    pub ids: &'a Ids,
}

#[allow(clippy::missing_panics_doc, reason = "every method panics when the store answers with an error")]
impl Scribe<'_> {
    /// Joins a node; its session must be new.
    pub async fn join(&self, node: NewSession) -> SessionId {
        let session = node.id;
        let asked = self.log.ask(&Call::Join(session));
        assert_eq!(self.store.join(node).await.expect("join answers"), Fenced::Recorded);
        asked.answered(Answer::Joined);
        session
    }

    /// Ends a session, which must exist.
    pub async fn leave(&self, session: SessionId) {
        let asked = self.log.ask(&Call::Leave(session));
        assert_eq!(self.store.leave(session).await.expect("leave answers"), Fenced::Recorded);
        asked.answered(Answer::Left);
    }

    /// Reports the workers of a session, which must exist.
    pub async fn report(&self, session: SessionId, workers: Vec<Worker>) {
        let asked = self.log.ask(&Call::Report(session, workers.len()));
        assert_eq!(
            self.store.report(session, workers, Vec::new()).await.expect("report answers"),
            Fenced::Recorded
        );
        asked.answered(Answer::Reported);
    }

    /// Sets the maximum number of waiting tasks in a queue.
    pub async fn limit(&self, queue: &str, limit: u64) {
        let asked = self.log.ask(&Call::Configure(queue.to_owned(), limit));
        let changes = vec![QueueChange::Limit(Some(limit))];
        let settings = self.store.configure(queue, changes).await.expect("configure answers");
        assert_eq!(settings.limit, Some(limit));
        asked.answered(Answer::Configured);
    }

    /// Expires dead nodes.
    pub async fn expire(&self, batch: usize) -> Expired {
        let asked = self.log.ask(&Call::Expire);
        let expired = self.store.expire(batch).await.expect("expire answers");
        asked.answered(Answer::Expired(expired.sessions.clone()));
        expired
    }

    /// Enqueues; all tasks must be new.
    pub async fn enqueue(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        let asked = self.log.ask(&Call::Enqueue(ids.clone()));
        let answers = self.store.enqueue(tasks).await.expect("enqueue answers");
        let created: Vec<Enqueued> = ids.iter().map(|id| Enqueued::Created(*id)).collect();
        assert_eq!(answers, created);
        asked.answered(Answer::Enqueued);
        ids
    }

    /// Fires a schedule: it must be due, and its run must be new.
    pub async fn fire(&self, firing: Firing) -> TaskId {
        let run = firing.task.as_ref().expect("a firing with a run").id;
        let asked = self.log.ask(&Call::Enqueue(vec![run]));
        assert_eq!(self.store.fire(firing).await.expect("fire answers"), Fired::Enqueued(run));
        asked.answered(Answer::Enqueued);
        run
    }

    /// Claims; the session must be alive.
    pub async fn claim(&self, claim: Claim) -> Vec<Claimed> {
        let asked = self.log.ask(&Call::Claim);
        match self.store.claim(claim).await.expect("claim answers") {
            ClaimAnswer::Tasks { tasks, .. } => {
                let leases = tasks.iter().map(|claimed| claimed.lease.as_ref());
                asked.answered(Answer::Claimed(leases.map(|lease| (lease.task, lease.token)).collect()));
                tasks
            }
            ClaimAnswer::SessionEnded => panic!("the session is over, and should not be"),
        }
    }

    /// Starts an attempt.
    pub async fn start(&self, lease: LeaseRef) -> Fenced {
        let asked = self.log.ask(&Call::Start(lease.task, lease.token));
        let start = Start { lease, worker: self.ids.worker() };
        let answer = self.store.start(vec![start]).await.expect("start answers")[0];
        asked.answered(match answer {
            Fenced::Recorded => Answer::Started,
            Fenced::Lost => Answer::Nothing,
        });
        answer
    }

    /// Finishes an attempt.
    pub async fn finish(&self, lease: Lease, outcome: Outcome) -> Finished {
        let name = lease.as_ref();
        let asked = self.log.ask(&Call::Finish(name.task, name.token));
        let report = Report { lease, ran: None, outcome, output: None, reading: None };
        let answer = self.store.finish(vec![report]).await.expect("finish answers")[0];
        asked.answered(match answer {
            Finished::Recorded(state) => Answer::Finished(state),
            Finished::LeaseLost => Answer::Nothing,
        });
        answer
    }

    pub async fn save_step(&self, lease: LeaseRef, name: &str) -> Saved {
        let asked = self.log.ask(&Call::SaveStep(lease.task, name.to_owned()));
        let step = NewStep { name: name.to_owned(), value: "1".to_owned() };
        let answer = self.store.save_step(lease, step).await.expect("save_step answers");
        asked.answered(match answer {
            Saved::Recorded | Saved::AlreadySaved => Answer::StepSaved,
            Saved::TooMany | Saved::LeaseLost => Answer::Nothing,
        });
        answer
    }

    /// Appends `count` events.
    pub async fn append(&self, lease: LeaseRef, count: usize) -> Appended {
        let asked = self.log.ask(&Call::Append(lease.task));
        let event = EventBody::line("a line");
        let answer = self.store.append(lease, vec![event; count]).await.expect("append answers");
        asked.answered(match answer {
            Appended::Recorded { last } => Answer::Appended(last),
            Appended::LeaseLost => Answer::Nothing,
        });
        answer
    }

    pub async fn cancel(&self, task: TaskId) -> CancelAnswer {
        let asked = self.log.ask(&Call::Cancel(task));
        let answer = self.store.cancel(vec![task]).await.expect("cancel answers")[0];
        asked.answered(match answer {
            CancelAnswer::Cancelled => Answer::Cancelled,
            CancelAnswer::Requested => Answer::CancelRequested,
            CancelAnswer::Ended(_) | CancelAnswer::NotFound => Answer::Nothing,
        });
        answer
    }

    /// Replays, keeping the steps.
    pub async fn replay(&self, task: TaskId) -> ReplayAnswer {
        let asked = self.log.ask(&Call::Replay(task));
        let answer = self.store.replay(vec![task], Replay::default()).await.expect("replay answers")[0];
        asked.answered(match answer {
            ReplayAnswer::Requeued | ReplayAnswer::Hastened => Answer::Replayed,
            ReplayAnswer::Refused(_) | ReplayAnswer::KeyTaken { .. } | ReplayAnswer::NotFound => {
                Answer::Nothing
            }
        });
        answer
    }

    /// Removes these tasks.
    pub async fn prune(&self, tasks: Vec<TaskId>) -> usize {
        let asked = self.log.ask(&Call::Prune(tasks.clone()));
        let pruned = self.store.prune(Prune::Tasks(tasks)).await.expect("prune answers").tasks;
        asked.answered(Answer::Pruned(pruned));
        pruned
    }

    /// Removes old tasks.
    pub async fn prune_old(&self, keep: Retention) -> usize {
        let asked = self.log.ask(&Call::PruneOld);
        let pruned = self.store.prune(Prune::Retention(keep)).await.expect("prune answers").tasks;
        asked.answered(Answer::Pruned(pruned));
        pruned
    }

    /// Starts a task and completes it.
    pub async fn complete(&self, lease: Lease) {
        assert_eq!(self.start(lease.as_ref()).await, Fenced::Recorded);
        assert_eq!(self.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
    }
}
