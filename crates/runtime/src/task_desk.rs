//! The task desk of an attempt: submits and looks up tasks for its handler, while its lease holds.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ostler_core::{Id, State, Task, TaskId};
use ostler_exec::{ChildTask, TaskCallError, TaskDesk, TaskInfo};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;
use ostler_store::{Error, LeaseRef, Store};
use sha2::{Digest as _, Sha256};

/// The bits of an id that do not say when it was made.
const CHANCE_BITS: u128 = (1 << 80) - 1;

/// The calls of one attempt.
pub(crate) struct AttemptTasks {
    store: Arc<dyn Store>,
    lease: LeaseRef,
    queue: Arc<str>,
    /// How often this attempt has submitted the same.
    submitted: Mutex<HashMap<[u8; 32], u64>>,
}

impl AttemptTasks {
    pub(crate) fn new(store: Arc<dyn Store>, lease: LeaseRef, queue: Arc<str>) -> Self {
        Self { store, lease, queue, submitted: Mutex::default() }
    }

    /// The id of a submission without one: the same for the same submission by a later attempt of the task.
    fn id(&self, queue: &str, task: &ChildTask) -> TaskId {
        let ChildTask { kind, payload, key, .. } = task;
        let mut digest = Sha256::new();
        digest.update(self.lease.task.0.to_bytes());
        for part in [queue, kind, payload, key.as_deref().unwrap_or_default()] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let content: [u8; 32] = digest.clone().finalize().into();
        let mut submitted = self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = submitted.entry(content).or_default();
        digest.update(before.to_be_bytes());
        *before += 1;
        let mut low = [0; 16];
        low.copy_from_slice(&digest.finalize()[..16]);
        TaskId(Id::from_bits(
            self.lease.task.0.bits() & !CHANCE_BITS | u128::from_be_bytes(low) & CHANCE_BITS,
        ))
    }

    /// The id of a task that exists, if it is the same work.
    async fn repeated(&self, task: &NewTask) -> Result<TaskId, TaskCallError> {
        let found = self.store.show(TaskRef::Id(task.id)).await.map_err(|error| unanswered(&error))?;
        match found {
            Some(detail) if !task.is_repeated_by(&detail.task) => {
                Err(TaskCallError::Refused(format!("the id {} belongs to other work", task.id)))
            }
            Some(_) | None => Ok(task.id),
        }
    }

    /// The task of the attempt, if it still speaks for it.
    async fn leased_task(&self) -> Result<Task, TaskCallError> {
        let found =
            self.store.show(TaskRef::Id(self.lease.task)).await.map_err(|error| unanswered(&error))?;
        match found.map(|detail| detail.task) {
            Some(task)
                if task.token == self.lease.token
                    && matches!(task.state, State::Claimed { .. } | State::Running { .. }) =>
            {
                Ok(task)
            }
            Some(_) | None => Err(TaskCallError::Lost),
        }
    }
}

fn unanswered(error: &Error) -> TaskCallError {
    if error.is_transient() {
        TaskCallError::Away(error.to_string())
    } else {
        TaskCallError::Refused(error.to_string())
    }
}

impl fmt::Debug for AttemptTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptTasks").field("lease", &self.lease).finish_non_exhaustive()
    }
}

#[async_trait]
impl TaskDesk for AttemptTasks {
    async fn submit(&self, task: ChildTask) -> Result<TaskId, TaskCallError> {
        // What a task submits belongs to its trace.
        let traceparent = self.leased_task().await?.traceparent;
        let queue = task.queue.clone().unwrap_or_else(|| self.queue.to_string());
        let id = task.id.unwrap_or_else(|| self.id(&queue, &task));
        let run_at = match task.delay {
            Some(delay) => Some(self.store.now().await.map_err(|error| unanswered(&error))?.after(delay)),
            None => None,
        };
        let unique = task.key.map(Unique::new);
        let folder = task.folder;
        let new = NewTask {
            run_at,
            unique,
            folder,
            traceparent,
            ..NewTask::new(id, queue.as_str(), task.kind, task.payload)
        };
        let answers = self.store.enqueue(vec![new.clone()]).await.map_err(|error| unanswered(&error))?;
        match answers.first() {
            Some(Enqueued::Existing(id)) if *id == new.id => self.repeated(&new).await,
            Some(Enqueued::Created(id) | Enqueued::Existing(id) | Enqueued::Replaced(id)) => Ok(*id),
            Some(Enqueued::Rejected { holder }) => Ok(*holder),
            Some(Enqueued::QueueFull { limit }) => {
                Err(TaskCallError::Away(format!("the queue \"{queue}\" is full: it holds {limit} tasks")))
            }
            Some(Enqueued::NoSuchTask(_)) | None => {
                Err(TaskCallError::Refused("the store did not take the task".to_owned()))
            }
        }
    }

    async fn look_up(&self, task: TaskId) -> Result<Option<TaskInfo>, TaskCallError> {
        let found = self.store.show(TaskRef::Id(task)).await.map_err(|error| unanswered(&error))?;
        Ok(found.map(|detail| TaskInfo {
            id: detail.task.id,
            state: detail.task.state.name(),
            output: detail.task.output,
            error: detail.task.last_failure.map(|failure| failure.message),
            queue: detail.task.queue,
            kind: detail.task.kind,
            payload: detail.task.payload,
            key: detail.task.unique_key,
            folder: detail.task.folder,
            runs: detail.task.runs,
            failures: detail.task.failures,
            created_at: detail.task.created_at,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_core::{Outcome, StateName, Traceparent};
    use ostler_store::Lease;
    use ostler_store::calls::{Claim, ClaimAnswer, Kinds, QueueChange, Report};
    use ostler_testkit::{Ids, TempStore};

    use super::*;

    const QUEUE: &str = "mail";

    struct Scene {
        store: Arc<dyn Store>,
        lease: Lease,
        _here: TempStore,
    }

    impl Scene {
        async fn new() -> Self {
            Self::of(None).await
        }

        /// A claimed task that was submitted with this trace.
        async fn of(traceparent: Option<Traceparent>) -> Self {
            let (here, ids) = (TempStore::real(), Ids::new(5));
            let store: Arc<dyn Store> = here.store();
            let node = ids.new_session("node", Duration::from_secs(60));
            let session = node.id;
            store.join(node).await.expect("it joins");
            let parent = NewTask { traceparent, ..ids.new_task(QUEUE, "parent") };
            store.enqueue(vec![parent]).await.expect("it is enqueued");
            let claim = Claim { session, queue: QUEUE.into(), kinds: Kinds::Any, limit: 1 };
            let ClaimAnswer::Tasks { mut tasks, .. } = store.claim(claim).await.expect("it answers") else {
                panic!("the session lives")
            };
            Self { store, lease: tasks.remove(0).lease, _here: here }
        }

        /// The desk of an attempt.
        fn desk(&self) -> AttemptTasks {
            AttemptTasks::new(Arc::clone(&self.store), self.lease.as_ref(), QUEUE.into())
        }
    }

    #[tokio::test]
    async fn what_a_later_attempt_submits_again_is_the_same_task() {
        let scene = Scene::new().await;
        let child = || ChildTask::new("child", "{\"n\":1}");
        let other = || ChildTask { queue: Some("other".into()), ..child() };
        let mut seen = Vec::new();
        for _attempt in 0..2 {
            let desk = scene.desk();
            let mut ids = Vec::new();
            for submission in [child(), child(), other(), ChildTask { payload: "2".into(), ..child() }] {
                ids.push(desk.submit(submission).await.expect("it is submitted"));
            }
            seen.push(ids);
        }
        assert_eq!(seen[0], seen[1]);
        let distinct: std::collections::BTreeSet<TaskId> = seen[0].iter().copied().collect();
        assert_eq!(distinct.len(), 4, "in one attempt, each is a task of its own");
        let found = scene.desk().look_up(seen[0][2]).await.expect("it answers").expect("it is there");
        assert_eq!((found.id, found.state, found.output), (seen[0][2], StateName::Queued, None));
        let none = scene.desk().look_up(TaskId(Id::from_bits(1))).await;
        assert_eq!(none, Ok(None));
    }

    #[tokio::test]
    async fn what_a_task_submits_belongs_to_its_trace() {
        let trace: Traceparent =
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().expect("a trace");
        for given in [None, Some(trace)] {
            let scene = Scene::of(given.clone()).await;
            let child = scene.desk().submit(ChildTask::new("child", "1")).await.expect("it is submitted");
            let found = scene.store.show(TaskRef::Id(child)).await.expect("it answers").expect("it is there");
            assert_eq!(found.task.traceparent, given);
        }
    }

    #[tokio::test]
    async fn a_key_or_an_id_names_one_task_and_a_full_queue_may_have_room_later() {
        let scene = Scene::new().await;
        let keyed = |payload: &str| ChildTask { key: Some("one".into()), ..ChildTask::new("child", payload) };
        let desk = scene.desk();
        let first = desk.submit(keyed("1")).await;
        assert_eq!(desk.submit(keyed("2")).await, first);
        let id = Some(TaskId(Id::from_bits(99)));
        let named = |payload: &str| ChildTask { id, ..ChildTask::new("child", payload) };
        assert_eq!(desk.submit(named("1")).await.ok(), id);
        assert_eq!(desk.submit(named("1")).await.ok(), id);
        let refused = desk.submit(named("2")).await;
        assert!(
            matches!(refused, Err(TaskCallError::Refused(_))),
            "other work under the same id: {refused:?}"
        );
        scene.store.configure(QUEUE, vec![QueueChange::Limit(Some(1))]).await.expect("it is set");
        let full = desk.submit(ChildTask::new("child", "3")).await;
        assert!(matches!(&full, Err(TaskCallError::Away(why)) if why.contains("full")), "{full:?}");
    }

    #[tokio::test]
    async fn a_stale_attempt_submits_nothing() {
        let scene = Scene::new().await;
        let desk = scene.desk();
        let report = Report {
            lease: scene.lease,
            ran: None,
            outcome: Outcome::HandedBack,
            output: None,
            reading: None,
        };
        scene.store.finish(vec![report]).await.expect("it is recorded");
        assert_eq!(desk.submit(ChildTask::new("child", "1")).await, Err(TaskCallError::Lost));
        let survey = scene.store.survey().await.expect("it answers");
        assert_eq!(survey.lanes.iter().map(|lane| lane.counts.queued).sum::<u64>(), 1, "only its own task");
    }
}
