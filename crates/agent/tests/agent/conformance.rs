//! Conformance of the agent executor: with a shell that reads a script as its prompt, it passes the suite of all executors.

use std::sync::Arc;
use std::time::Duration;

use ostler_agent::Dialect;
use ostler_agent::executor::{AgentExecutor, AgentPolicy, SchemaSource};
use ostler_core::Timestamp;
use ostler_exec::conformance::{Behaviour, Fixture, run};
use ostler_exec::{Executor, Work};
use ostler_process::supervisor::Supervisor;
use serde_json::json;

use crate::bench::{NOW, supervisor, work};

struct Shell(Arc<dyn Executor>);

fn shell(supervisor: &Supervisor) -> Arc<dyn Fixture> {
    let policy = AgentPolicy {
        command: vec!["sh".into()],
        // Any value: the output is JSON then.
        schema: Some(SchemaSource::Inline(json!(true))),
        stagger: Duration::ZERO,
        ..AgentPolicy::new("shell", Dialect::Command)
    };
    let agents = AgentExecutor::new(supervisor.clone(), policy, || Timestamp::from_millis(NOW));
    Arc::new(Shell(Arc::new(agents.expect("the policy is right"))))
}

impl Fixture for Shell {
    fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.0)
    }

    fn work(&self, behaviour: &Behaviour) -> Option<Work> {
        let script = match behaviour {
            Behaviour::Echo(text) => format!("printf '%s\\n' '{text}'"),
            Behaviour::FailUnclassed => "exit 9".to_owned(),
            Behaviour::Hang => "trap '' TERM; echo waiting >&2; while :; do sleep 60; done".to_owned(),
            Behaviour::StopWhenTold => {
                "trap 'exit 5' TERM; echo waiting >&2; while :; do sleep 60 & wait; done".to_owned()
            }
            Behaviour::FinishAfter(time) => format!(
                "trap 'echo stopping >&2; sleep {}; exit 0' TERM; echo waiting >&2; while :; do sleep 60 & wait; done",
                time.as_secs()
            ),
            // A command cannot panic, and has no thread to block. It has no classes. What it says is a conversation, whose sender waits
            // for the store; and an exit on a stop signal is no answer.
            Behaviour::Panic
            | Behaviour::Block(_)
            | Behaviour::Fail(_)
            | Behaviour::BigOutput(_)
            | Behaviour::Flood(_)
            | Behaviour::FinishWhenTold => return None,
        };
        Some(work(json!(script).to_string(), 1))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_is_a_command_passes() {
    let supervisor = supervisor().await;
    let report = run(|| shell(&supervisor)).await;
    assert_eq!(
        report.left_out,
        [
            "each_class_of_error_arrives_as_it_was_given",
            "a_kind_without_a_handler_is_a_permanent_failure",
            "a_panic_is_a_failure_and_the_next_attempt_runs",
            "what_blocks_its_thread_is_given_up_and_the_next_attempt_runs",
            "what_is_told_to_stop_and_finishes_in_time_has_succeeded",
            "a_big_output_arrives_whole",
            "a_flood_of_notes_is_bounded_and_the_gap_is_marked",
        ]
    );
}
