//! Conformance of the command executor: it passes the suite of all executors.

use std::sync::Arc;

use ostler_core::ErrorClass;
use ostler_exec::conformance::{Behaviour, Fixture, run};
use ostler_exec::{Executor, Work};
use ostler_process::supervisor::Supervisor;
use ostler_process::{Codes, Command, CommandPolicy};

use crate::bench::{supervisor, work};

struct Shell(Arc<dyn Executor>);

fn shell(supervisor: &Supervisor) -> Arc<dyn Fixture> {
    let mut policy = CommandPolicy::new(["sh", "-c", "{{ payload.script }}", "sh", "{{ payload.text }}"]);
    policy.codes = Codes { permanent: vec![2], transient: vec![1], queue_stop: vec![3] };
    Arc::new(Shell(Arc::new(Command::new(supervisor.clone(), policy).expect("the policy is right"))))
}

impl Fixture for Shell {
    fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.0)
    }

    fn work(&self, behaviour: &Behaviour) -> Option<Work> {
        let (script, text) = match behaviour {
            Behaviour::Echo(text) => ("printf '%s\\n' \"$1\"", text.clone()),
            Behaviour::Fail(class) => ("echo as requested >&2; exit $1", code(*class)?.to_string()),
            Behaviour::FailUnclassed => ("exit 9", String::new()),
            // A command cannot panic, and has no thread to block.
            Behaviour::Panic | Behaviour::Block(_) => return None,
            Behaviour::Hang => ("trap '' TERM; echo waiting >&2; while :; do sleep 60; done", String::new()),
            Behaviour::StopWhenTold => {
                ("trap 'exit 5' TERM; echo waiting >&2; while :; do sleep 60 & wait; done", String::new())
            }
            Behaviour::FinishWhenTold => (
                "trap 'echo finished; exit 0' TERM; echo waiting >&2; while :; do sleep 60 & wait; done",
                String::new(),
            ),
            Behaviour::FinishAfter(time) => (
                "trap 'echo stopping >&2; sleep $1; exit 0' TERM; echo waiting >&2; while :; do sleep 60 & wait; done",
                time.as_secs().to_string(),
            ),
            // This many bytes of JSON: a string with its quotes.
            Behaviour::BigOutput(bytes) => {
                ("printf '\"'; head -c $1 /dev/zero | tr '\\0' x; printf '\"'", (bytes - 2).to_string())
            }
            Behaviour::Flood(lines) => ("seq $1 >&2", lines.to_string()),
        };
        let quoted = |text: &str| format!("{text:?}").replace("\\'", "'");
        Some(work(format!("{{\"script\":{},\"text\":{}}}", quoted(script), quoted(&text))))
    }
}

/// The exit code of a class. It cannot carry a step, a hint or a delay.
fn code(class: ErrorClass) -> Option<i32> {
    match class {
        ErrorClass::Transient => Some(1),
        ErrorClass::Permanent => Some(2),
        ErrorClass::QueueStop => Some(3),
        ErrorClass::Partial
        | ErrorClass::RateLimited
        | ErrorClass::UsageLimit
        | ErrorClass::Timeout
        | ErrorClass::Stuck
        | ErrorClass::Crash
        | ErrorClass::Budget => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn command_passes() {
    let supervisor = supervisor().await;
    let report = run(|| shell(&supervisor)).await;
    println!("command: {} cases", report.held.len());
    assert_eq!(
        report.left_out,
        [
            // Exit codes have three classes; `codes_are_classed_by_the_policy` covers them.
            "each_class_of_error_arrives_as_it_was_given",
            // A command serves any kind.
            "a_kind_without_a_handler_is_a_permanent_failure",
            "a_panic_is_a_failure_and_the_next_attempt_runs",
            "what_blocks_its_thread_is_given_up_and_the_next_attempt_runs",
        ]
    );
}
