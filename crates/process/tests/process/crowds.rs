//! Many tasks at once in one worker process, by the SDKs: what they share, what they do not, and what a death means for each.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{
    Cost, ErrorClass, EventBody, Id, Level, LogStream, Outcome, Overrides, Role, StateName, TaskId,
    ToolStatus, Usage, WorkerId,
};
use ostler_exec::{
    AttemptResult, ChildTask, Control, EventReceiver, Executor, StepStore, Steps, TaskCallError, TaskCalls,
    TaskDesk, TaskInfo, Work, WorkerFate, event_channel,
};
use ostler_process::ProcessPolicy;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

use crate::bench::{SOON, failure};
use crate::conversations::store_all;
use crate::desk::{Desk, GRACE, heard, output, task};
use crate::sdk::{TESTS, sdk_policy};
use crate::workers::Book;

const FIFTY: usize = 50;

fn python() -> ProcessPolicy {
    ProcessPolicy { per_worker: FIFTY, ..sdk_policy("python3", format!("{TESTS}/crowd_worker.py")) }
}

fn javascript() -> ProcessPolicy {
    ProcessPolicy { per_worker: FIFTY, ..sdk_policy("node", format!("{TESTS}/crowd_worker.mjs")) }
}

/// A desk with one worker, which tasks share.
async fn crowd(policy: ProcessPolicy) -> (Arc<Desk>, WorkerId) {
    let desk = Arc::new(Desk::of(policy).await);
    let worker = desk.open().await;
    assert_eq!(desk.process.slots(worker), FIFTY);
    (desk, worker)
}

/// An attempt that runs, and what it says.
struct Running {
    ended: JoinHandle<AttemptResult>,
    heard: EventReceiver,
    control: Control,
}

impl Running {
    fn new(desk: &Arc<Desk>, worker: WorkerId, work: Work) -> Self {
        let (sender, heard) = event_channel();
        let control = Control::new(sender);
        let (desk, given) = (Arc::clone(desk), control.clone());
        let ended = tokio::spawn(async move { desk.run_with(worker, work, given).await });
        Self { ended, heard, control }
    }

    /// Starts one, and waits until it says something.
    async fn begun(desk: &Arc<Desk>, worker: WorkerId, work: Work) -> Self {
        let running = Self::new(desk, worker, work);
        let said = tokio::time::timeout(SOON, running.heard.recv()).await.expect("it begins");
        assert!(said.is_some(), "it says something");
        running
    }

    async fn end(self) -> (AttemptResult, Vec<EventBody>) {
        (self.ended.await.expect("it does not panic"), heard(&self.heard))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_tasks_are_in_one_process_at_once() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy).await;
        let attempts: Vec<Running> =
            (0..FIFTY).map(|_| Running::new(&desk, worker, task("barrier", "50"))).collect();
        let pid = desk.process.vitals(worker).pid.expect("it runs").to_string();
        for attempt in attempts {
            let (ended, _) = attempt.end().await;
            assert_eq!(ended.slot, WorkerFate::Reusable);
            assert_eq!(output(ended), pid);
        }
        assert_eq!(output(desk.run(worker, task("echo", "7")).await.0), "7", "it goes on");
        desk.process.close(worker).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_with_many_tasks_fails_none_of_them_and_one_that_dies_with_one_has_crashed() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy.clone()).await;
        let mut attempts = Vec::new();
        for _ in 0..FIFTY {
            attempts.push(Running::begun(&desk, worker, task("wait", "null")).await);
        }
        let pid =
            desk.process.vitals(worker).pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("it runs"), Signal::KILL).expect("it is there");
        for attempt in attempts {
            let (ended, said) = attempt.end().await;
            assert_eq!((ended.outcome, ended.slot), (Outcome::NodeDied, WorkerFate::Dead));
            let told = |event: &EventBody| matches!(event, EventBody::Warning { text } if text.contains("50 tasks in flight"));
            assert!(said.iter().any(told), "{said:?}");
        }
        let worker = desk.open().await;
        let (ended, _) = desk.run(worker, task("die", "3")).await;
        assert_eq!(failure(ended).class, ErrorClass::Crash, "it was alone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violation_of_the_protocol_fails_none_of_many_tasks() {
    let (desk, worker) = crowd(python()).await;
    let waiting = Running::begun(&desk, worker, task("wait", "null")).await;
    let (ended, _) = desk.run(worker, task("garbage", "null")).await;
    assert_eq!((ended.outcome, ended.slot), (Outcome::NodeDied, WorkerFate::Dead));
    assert_eq!(waiting.end().await.0.outcome, Outcome::NodeDied);
    let worker = desk.open().await;
    let alone = failure(desk.run(worker, task("garbage", "null")).await.0);
    assert!(alone.message.contains("cannot be read"), "{alone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_is_cancelled_or_times_out_and_its_neighbours_go_on() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy).await;
        let neighbour = Running::begun(&desk, worker, task("wait", "null")).await;
        let stopped = Running::begun(&desk, worker, Work { grace: SOON, ..task("wait", "null") }).await;
        stopped.control.cancel.cancel();
        assert_eq!(stopped.end().await.0, AttemptResult::cancelled());
        let late = Work { timeout: Duration::from_millis(100), grace: SOON, ..task("wait", "null") };
        let (ended, _) = desk.run(worker, late).await;
        assert_eq!(ended.slot, WorkerFate::Reusable);
        assert_eq!(failure(ended).class, ErrorClass::Timeout);
        assert_eq!(output(desk.run(worker, task("echo", "1")).await.0), "1");
        assert!(!neighbour.ended.is_finished());
        neighbour.control.cancel.cancel();
        assert_eq!(neighbour.end().await.0.outcome, Outcome::Cancelled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_does_not_stop_ends_its_worker_and_the_others_are_handed_back() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy).await;
        let neighbour = Running::begun(&desk, worker, task("wait", "null")).await;
        let late = Work { timeout: Duration::from_millis(100), grace: GRACE, ..task("deaf", "null") };
        let (ended, _) = desk.run(worker, late).await;
        assert_eq!(ended.slot, WorkerFate::Dead);
        assert_eq!(failure(ended).class, ErrorClass::Timeout);
        let (ended, said) = neighbour.end().await;
        assert_eq!(ended, AttemptResult::handed_back().dead());
        let told =
            |event: &EventBody| matches!(event, EventBody::Warning { text } if text.contains("did not stop"));
        assert!(said.iter().any(told), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversations_and_steps_of_tasks_in_one_process_do_not_mix() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy).await;
        let mut attempts = Vec::new();
        for number in 0..FIFTY {
            let (sender, events) = event_channel();
            let storing = tokio::spawn(store_all(events));
            let book = Arc::new(Book::default());
            let steps = Steps::kept(Arc::clone(&book) as Arc<dyn StepStore>);
            let (desk, control) = (Arc::clone(&desk), Control { steps, ..Control::new(sender) });
            let running = tokio::spawn(async move {
                desk.run_with(worker, task("converse", &number.to_string()), control).await
            });
            attempts.push((number, book, storing, running));
        }
        for (number, book, storing, running) in attempts {
            assert_eq!(output(running.await.expect("it does not panic")), number.to_string());
            let saved = book.saved.lock().expect("no test panicked").clone();
            assert_eq!(saved, [("one".to_owned(), number.to_string())]);
            let message = |role, text: &str| EventBody::Message { role, text: format!("{text} {number}") };
            let usage = Usage {
                model: Some("m".into()),
                input_tokens: 3,
                output_tokens: 4,
                cost: Cost::from_usd(0.25),
                ..Usage::default()
            };
            assert_eq!(
                storing.await.expect("it stores"),
                [
                    EventBody::Session { id: format!("s-{number}") },
                    EventBody::Prompt { text: format!("prompt {number}") },
                    message(Role::User, "question"),
                    EventBody::Thinking { text: format!("thought {number}") },
                    EventBody::ToolCall {
                        call: format!("c-{number}"),
                        tool: "Read".into(),
                        input: format!("{{\"path\":{number}}}"),
                    },
                    EventBody::ToolResult {
                        call: format!("c-{number}"),
                        tool: None,
                        status: ToolStatus::Error,
                        output: format!("[{number}]"),
                    },
                    message(Role::Assistant, "answer"),
                    EventBody::Usage(usage),
                ]
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_prints_is_in_the_log_of_its_own_task() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy).await;
        let attempts: Vec<(usize, Running)> = (0..FIFTY)
            .map(|number| (number, Running::new(&desk, worker, task("print", &number.to_string()))))
            .collect();
        for (number, attempt) in attempts {
            let (ended, said) = attempt.end().await;
            assert_eq!(ended, AttemptResult::success(None));
            let line = |text: &str| EventBody::Log {
                level: Level::Info,
                stream: LogStream::Log,
                text: format!("{text} {number}"),
            };
            assert_eq!(said, ["one", "two", "no end of line"].map(line));
        }
    }
}

#[tokio::test]
async fn a_worker_with_a_plain_handler_gets_one_task_at_a_time_and_the_first_one_says_so() {
    let policy =
        ProcessPolicy { per_worker: FIFTY, ..sdk_policy("python3", format!("{TESTS}/sdk_worker.py")) };
    let desk = Desk::of(policy).await;
    let worker = desk.open().await;
    assert_eq!((desk.process.slots(worker), desk.process.per_worker()), (1, FIFTY));
    let (ended, said) = desk.run(worker, task("echo", "1")).await;
    assert_eq!(output(ended), "1");
    let warning = "the pool has per_worker = 50, but its worker takes 1 at once: are all its handlers async?";
    assert_eq!(heard(&said), [EventBody::warning(warning)]);
    assert_eq!(heard(&desk.run(worker, task("echo", "1")).await.1), []);
}

#[tokio::test]
async fn options_come_with_the_handler_and_wrong_ones_end_the_start() {
    for policy in [python(), javascript()] {
        let (desk, _worker) = crowd(policy).await;
        let given =
            Overrides { attempts: Some(5), timeout: Some(Duration::from_secs(30)), ..Overrides::NONE };
        assert_eq!(desk.process.kind_options(), [("k".to_owned(), given)].into());
    }
    let refused = Desk::of(crate::desk::policy("bad-options")).await.refused().await;
    assert!(
        refused
            .message
            .contains("has a wrong option for the kind \"k\": attempts is 0, but must be from 1 to 1000000"),
        "{refused:?}"
    );
}

/// Takes submissions, and knows the first one.
#[derive(Debug, Default)]
struct Clerk {
    taken: Mutex<Vec<ChildTask>>,
    loses: bool,
}

const FIRST: TaskId = TaskId(Id::from_bits(77));

#[async_trait]
impl TaskDesk for Clerk {
    async fn submit(&self, task: ChildTask) -> Result<TaskId, TaskCallError> {
        if self.loses {
            return Err(TaskCallError::Lost);
        }
        if task.kind == "full" {
            return Err(TaskCallError::Away("the queue is full".into()));
        }
        let id = task.id.unwrap_or(FIRST);
        self.taken.lock().expect("no test panicked").push(task);
        Ok(id)
    }

    async fn look_up(&self, task: TaskId) -> Result<Option<TaskInfo>, TaskCallError> {
        Ok((task == FIRST).then(|| TaskInfo {
            id: task,
            state: StateName::Failed,
            output: None,
            error: Some("no".to_owned()),
            queue: "q".to_owned(),
            kind: "k".to_owned(),
            payload: "1".to_owned(),
            key: None,
            folder: None,
            runs: 1,
            failures: 1,
            created_at: ostler_core::Timestamp::from_millis(1),
        }))
    }
}

async fn with_clerk(desk: &Desk, worker: WorkerId, clerk: &Arc<Clerk>) -> AttemptResult {
    let (sender, _heard) = event_channel();
    let tasks = TaskCalls::to(Arc::clone(clerk) as Arc<dyn TaskDesk>);
    desk.run_with(worker, task("submit", "{\"n\":1}"), Control { tasks, ..Control::new(sender) }).await
}

#[tokio::test]
async fn a_handler_submits_and_looks_up_tasks_and_hears_what_is_refused() {
    for policy in [python(), javascript()] {
        let (desk, worker) = crowd(policy).await;
        let clerk = Arc::new(Clerk::default());
        let given = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";
        let expected =
            format!("[\"{FIRST}\",\"{given}\",\"failed\",null,\"no\",null,\"Transient: the queue is full\"]");
        assert_eq!(output(with_clerk(&desk, worker, &clerk).await), expected);
        let child = || ChildTask::new("child", "{\"n\":1}");
        let second = ChildTask {
            queue: Some("other".into()),
            key: Some("one".into()),
            delay: Some(Duration::from_millis(1500)),
            id: Some(TaskId(given.parse().expect("an id"))),
            ..child()
        };
        assert_eq!(*clerk.taken.lock().expect("no test panicked"), [child(), second]);
        let lost = Arc::new(Clerk { loses: true, ..Clerk::default() });
        assert_eq!(with_clerk(&desk, worker, &lost).await.outcome, Outcome::Cancelled, "it stops");
        assert_eq!(output(desk.run(worker, task("echo", "1")).await.0), "1", "its worker goes on");
    }
}
