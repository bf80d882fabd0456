//! The private extension of the worker protocol, with a worker that comes with the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ostler_core::{ErrorClass, EventBody, Failure, Id, Outcome, WorkerId};
use ostler_exec::{
    AttemptResult, Control, EventReceiver, Executor, Served, Work, WorkerFate, WorkerOpening, event_channel,
};
use ostler_process::{
    AttemptExtension, CallFuture, FrameField, MAX_OPEN_CALLS, Process, TaskFolder, WorkerExtension,
    WorkerSocket,
};
use tokio::sync::Notify;

use crate::bench::{SOON, failure, supervisor};
use crate::desk::{output, policy, task};

/// Does as its payload says, and returns what it was sent.
const WORKER: &str = r#"
import json, os, socket
link = socket.socket(fileno=int(os.environ["OSTLER_FD"]))
lines = link.makefile("r")
def say(**frame):
    link.sendall((json.dumps(frame) + "\n").encode())
setup = json.loads(lines.readline())["setup"]
say(type="ready", protocol=1)
for line in lines:
    frame = json.loads(line)
    if frame["type"] == "stop":
        break
    if frame["type"] != "task":
        continue
    about = {"id": frame["id"], "token": frame["token"]}
    what, count = frame["payload"]["do"], frame["payload"]["how"]
    output = {"setup": setup, "modules": frame.get("modules"), "function": frame["function"]}
    if what == "leave":
        say(type="leaving")
    else:
        for number in range(count):
            say(type="call", request=number, call={"n": number}, **about)
        say(type="progress", done=1, **about)
    if what == "ask":
        answers = [json.loads(lines.readline()) for _ in range(count)]
        output["answers"] = sorted(answer.get("answer", -1) for answer in answers)
        output["refused"] = [answer["refused"] for answer in answers if "refused" in answer]
    say(type="result", ok=True, output=output, **about)
"#;

/// Counts calls, and answers them when the gate is open.
#[derive(Default)]
struct Desk {
    begun: AtomicUsize,
    dropped: AtomicUsize,
    gate: Notify,
}

struct Extension(Arc<Desk>);

#[async_trait]
impl WorkerExtension for Extension {
    fn served(&self) -> Option<Served> {
        Some(Served::Only(vec!["k".to_owned()]))
    }

    fn socket(&self) -> WorkerSocket {
        WorkerSocket::StandardInput
    }

    fn hello(&self) -> Vec<FrameField> {
        vec![("setup", "{\"a\":\n1}".to_owned())]
    }

    async fn prepare(
        &self,
        work: &Work,
        _folder: Option<&TaskFolder>,
        _control: &Control,
    ) -> Result<Arc<dyn AttemptExtension>, Failure> {
        if work.payload.contains("refuse") {
            return Err(Failure::new(ErrorClass::Permanent, "there is no such function"));
        }
        Ok(Arc::new(Attempt(Arc::clone(&self.0))))
    }
}

struct Attempt(Arc<Desk>);

/// Notes that a call is over, however it ends.
struct Ended(Arc<Desk>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl AttemptExtension for Attempt {
    fn fields(&self) -> Vec<FrameField> {
        vec![("function", "\"f\"".to_owned())]
    }

    fn content_key(&self) -> &str {
        "f"
    }

    fn content(&self) -> Vec<FrameField> {
        vec![("modules", "\"m\"".to_owned())]
    }

    fn call(self: Arc<Self>, call: String) -> CallFuture {
        Box::pin(async move {
            let _ended = Ended(Arc::clone(&self.0));
            self.0.begun.fetch_add(1, Ordering::SeqCst);
            self.0.gate.notified().await;
            // The next one may go, too.
            self.0.gate.notify_one();
            let call: serde_json::Value = serde_json::from_str(&call).expect("JSON");
            call["n"].to_string()
        })
    }
}

struct Running {
    process: Process,
    desk: Arc<Desk>,
    worker: WorkerId,
}

async fn running() -> Running {
    let desk = Arc::new(Desk::default());
    let mut policy = policy("well");
    policy.argv = ["python3", "-c", WORKER].map(str::to_owned).into();
    let extension = Arc::new(Extension(Arc::clone(&desk)));
    let process = Process::with_extension(supervisor().await, policy, extension).expect("it is right");
    let worker = WorkerId(Id::from_bits(7));
    assert_eq!(process.open(worker).await, WorkerOpening::Ready);
    Running { process, desk, worker }
}

impl Running {
    async fn run(&self, work: Work) -> (AttemptResult, EventReceiver) {
        let (sender, events) = event_channel();
        (self.run_with(work, Control::new(sender)).await, events)
    }

    async fn run_with(&self, work: Work, control: Control) -> AttemptResult {
        let running = self.process.run(Work { worker: self.worker, ..work }, control);
        tokio::time::timeout(SOON, running).await.expect("an answer comes")
    }
}

fn value(ended: AttemptResult) -> serde_json::Value {
    serde_json::from_str(&output(ended)).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_its_setup_and_content_once() {
    let run = running().await;
    assert_eq!(run.process.served(), Served::Only(vec!["k".to_owned()]));
    for modules in [serde_json::json!("m"), serde_json::Value::Null] {
        let expected = serde_json::json!({"setup": {"a": 1}, "function": "f", "modules": modules});
        assert_eq!(value(run.run(task("nothing", "0")).await.0), expected);
    }
    let (ended, _) = run.run(task("refuse", "0")).await;
    assert_eq!(failure(ended).message, "there is no such function");
    run.process.close(run.worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_at_once_beside_other_frames_and_are_bounded() {
    let run = running().await;
    let most = MAX_OPEN_CALLS + 2;
    let (sender, events) = event_channel();
    let running = run.run_with(task("ask", &most.to_string()), Control::new(sender));
    let open = async {
        // The progress frame comes after all calls, and none of them is answered yet.
        assert!(matches!(events.recv().await, Some(EventBody::Progress { .. })));
        run.desk.gate.notify_one();
    };
    let (ended, ()) = tokio::join!(running, open);
    let output = value(ended);
    let refused = output["refused"].as_array().expect("a list");
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!(refused[0], format!("more than {MAX_OPEN_CALLS} calls wait for an answer"));
    assert_eq!(run.desk.begun.load(Ordering::SeqCst), MAX_OPEN_CALLS);
    run.process.close(run.worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_dropped_with_their_attempt() {
    let run = running().await;
    let (ended, _) = run.run(task("forget", "5")).await;
    assert_eq!(ended.outcome, Outcome::Success, "a result does not wait for calls");
    crate::bench::until("the calls are dropped", || {
        let desk = &run.desk;
        desk.begun.load(Ordering::SeqCst) == desk.dropped.load(Ordering::SeqCst)
    })
    .await;
    run.process.close(run.worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_with_its_result_gets_no_other_task() {
    let run = running().await;
    let (ended, _) = run.run(task("leave", "0")).await;
    assert_eq!((ended.outcome, ended.slot), (Outcome::Success, WorkerFate::Spent));
    run.process.close(run.worker).await;
}
