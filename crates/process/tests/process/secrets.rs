//! Secrets of children: in their environment, and in nothing that is recorded of them.

use std::sync::Arc;

use ostler_core::{EventBody, Id, WorkerId};
use ostler_exec::{
    AttemptResult, Control, Executor, OutputRedaction, Secret, Secrets, Work, WorkerOpening, event_channel,
};
use ostler_process::{Command, CommandPolicy, Process, ProcessPolicy};

use crate::bench::{SOON, failure, supervisor, work};
use crate::desk::{GRACE, heard, task};

const VALUE: &str = "sk-Zq7/é\"end\"l4st.w0rd";
const PEM: &str = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----";

fn secrets(outputs: OutputRedaction) -> Secrets {
    let all =
        [("API_KEY", VALUE), ("PEM", PEM)].map(|(name, value)| Secret::new(name, value).expect("valid"));
    Secrets::new(all.to_vec(), outputs).expect("they are valid")
}

/// What a run has recorded: its result and its events.
struct Recorded {
    ended: AttemptResult,
    events: Vec<EventBody>,
}

impl Recorded {
    /// Everything as one text.
    fn shown(&self) -> String {
        let texts: Vec<&str> = self.events.iter().filter_map(EventBody::text).collect();
        format!("{:?}\n{:?}\n{}", self.ended, self.events, texts.join("\n"))
    }

    fn has_no_value(&self) {
        let shown = self.shown();
        for part in [VALUE, "sk-Zq7", "Zq7", "l4st.w0rd", "MIIEvQ", "kqhkiG9w0"] {
            assert!(!shown.contains(part), "{part}: {shown}");
        }
    }
}

async fn recorded(executor: &dyn Executor, work: Work) -> Recorded {
    let (sender, notes) = event_channel();
    let running = executor.run(work, Control::new(sender));
    let ended = tokio::time::timeout(SOON * 3, running).await.expect("an answer comes");
    Recorded { ended, events: heard(&notes) }
}

async fn command(script: &str, outputs: OutputRedaction) -> Recorded {
    let secrets = secrets(outputs);
    let policy = CommandPolicy { secrets: secrets.clone(), ..CommandPolicy::new(["sh", "-c", script]) };
    let command = Command::new(supervisor().await, policy).expect("the policy is right");
    recorded(&*secrets.guard(Arc::new(command)), work("1")).await
}

#[tokio::test]
async fn a_command_has_its_secrets_and_its_error_output_has_marks() {
    let script = "echo \"key $API_KEY\" >&2; printf '%s\\n' \"$PEM\" >&2; printf '%s' \"$API_KEY\"";
    let run = command(script, OutputRedaction::Off).await;
    let output: String =
        serde_json::from_str(run.ended.output.as_deref().expect("it has an output")).expect("a text");
    assert_eq!(output, VALUE, "outputs stay as they are");
    let texts: Vec<&str> = run.events.iter().filter_map(EventBody::text).collect();
    assert_eq!(texts, ["key [secret API_KEY]", "[secret PEM]"]);
    let run = command(script, OutputRedaction::On).await;
    assert_eq!(run.ended.output.as_deref(), Some("\"[secret API_KEY]\""));
    run.has_no_value();
}

#[tokio::test]
async fn a_command_that_fails_leaves_no_value_behind_also_where_texts_are_cut() {
    // Written byte by byte; then in the middle of a long line, which is cut; then at the place where the tail begins.
    let script = "printf '%s\\n' \"$API_KEY\" | fold -b -w 1 | while read -r c; do printf %s \"$c\" >&2; done; echo >&2
        head -c 8187 /dev/zero | tr '\\0' x >&2; echo \"$API_KEY\" >&2
        echo \"$API_KEY\" >&2; head -c 4090 /dev/zero | tr '\\0' y >&2
        printf 'to stdout: %s \\377\\n%s' \"$API_KEY\" \"$PEM\"; exit 3";
    let run = command(script, OutputRedaction::Off).await;
    run.has_no_value();
    let shown = run.shown();
    assert!(shown.contains("[secret API_KEY]"), "{shown}");
    assert!(
        !shown.contains("115, 107, 45") && !shown.contains("115,107,45"),
        "not as numbers either: {shown}"
    );
    assert!(failure(run.ended).details.is_some_and(|tail| tail.contains("yyyy")));
}

#[tokio::test]
async fn a_command_that_cannot_be_started_says_nothing_of_its_environment() {
    let secrets = secrets(OutputRedaction::Off);
    let policy = CommandPolicy { secrets: secrets.clone(), ..CommandPolicy::new(["no-such-program"]) };
    assert!(!format!("{policy:?}").contains("Zq7"), "{policy:?}");
    let command = Command::new(supervisor().await, policy).expect("the policy is right");
    assert!(!format!("{command:?}").contains("Zq7"), "{command:?}");
    let run = recorded(&*secrets.guard(Arc::new(command)), work("1")).await;
    run.has_no_value();
    assert!(failure(run.ended).message.contains("no-such-program"));
}

/// A worker of the tests, guarded.
async fn worker(start: &str) -> (Arc<dyn Executor>, WorkerId) {
    let secrets = secrets(OutputRedaction::Off);
    let policy = ProcessPolicy { secrets: secrets.clone(), ..crate::desk::policy(start) };
    let process = Process::new(supervisor().await, policy).expect("the policy is right");
    (secrets.guard(Arc::new(process)), WorkerId(Id::from_bits(1)))
}

async fn on_worker(what: &str, how: &str) -> Recorded {
    let (executor, id) = worker("well").await;
    assert_eq!(executor.open(id).await, WorkerOpening::Ready);
    let run = recorded(&*executor, Work { worker: id, grace: GRACE, ..task(what, how) }).await;
    executor.close(id).await;
    run
}

#[tokio::test]
async fn a_worker_has_its_secrets_and_whatever_it_says_has_marks() {
    let run = on_worker("tell-secret", "\"API_KEY\"").await;
    run.has_no_value();
    let marks = run.shown().matches("[secret API_KEY]").count();
    assert!(marks >= 10, "{marks}: {}", run.shown());
    let message: String = run
        .events
        .iter()
        .filter(|event| matches!(event, EventBody::Message { .. }))
        .filter_map(EventBody::text)
        .collect();
    assert_eq!(message, "it is [secret API_KEY], in pieces");
    let failure = failure(run.ended);
    assert_eq!(failure.message, "failed with [secret API_KEY]");
}

#[tokio::test]
async fn a_worker_that_breaks_the_protocol_or_dies_leaves_no_value_behind() {
    // The message about a bad frame has its beginning, up to the middle of the value.
    on_worker("leak-secret", "\"garbage\"").await.has_no_value();
    let run = on_worker("leak-secret", "\"die\"").await;
    run.has_no_value();
    assert!(failure(run.ended).message.ends_with("going down with [secret API_KEY]"));
}

#[tokio::test]
async fn a_worker_that_does_not_start_says_why_without_values() {
    let (executor, id) = worker("leak").await;
    let WorkerOpening::Failed(failure) = executor.open(id).await else { panic!("it came up") };
    let shown = format!("{failure:?}");
    assert!(shown.contains("[secret API_KEY]") && !shown.contains("Zq7"), "{shown}");
}
