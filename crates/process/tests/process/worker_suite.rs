//! Conformance of long-lived workers: they pass the suite of all executors.

use std::sync::Arc;

use ostler_core::ErrorClass;
use ostler_exec::conformance::{Behaviour, Fixture, run};
use ostler_exec::{Executor, Work};
use ostler_process::supervisor::Supervisor;
use ostler_process::{Process, ProcessPolicy};

use crate::bench::supervisor;
use crate::desk::{policy, task};

struct Told(Arc<dyn Executor>);

/// Workers that behave as their payload says.
pub(crate) fn told(supervisor: &Supervisor, policy: ProcessPolicy) -> Arc<dyn Fixture> {
    Arc::new(Told(Arc::new(Process::new(supervisor.clone(), policy).expect("the policy is right"))))
}

impl Fixture for Told {
    fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.0)
    }

    fn work(&self, behaviour: &Behaviour) -> Option<Work> {
        Some(match behaviour {
            Behaviour::Echo(text) if text.is_empty() => task("echo", "null"),
            Behaviour::Echo(text) => task("echo", text),
            Behaviour::Fail(class) => task("fail", &error(*class)),
            Behaviour::FailUnclassed => task("fail", "{\"message\":\"unclassed\"}"),
            Behaviour::Panic => task("raise", "null"),
            // A process can be killed, whatever blocks it.
            Behaviour::Block(_) => return None,
            Behaviour::Hang => task("hang", "null"),
            Behaviour::StopWhenTold => task("stop", "null"),
            Behaviour::FinishWhenTold => task("finish", "null"),
            Behaviour::FinishAfter(time) => task("finish-after", &time.as_secs().to_string()),
            Behaviour::BigOutput(bytes) => task("big", &bytes.to_string()),
            Behaviour::Flood(lines) => task("flood", &lines.to_string()),
        })
    }
}

fn error(class: ErrorClass) -> String {
    let more = match class {
        ErrorClass::Partial => ",\"step\":\"move\",\"hint\":\"look at the folder\"",
        ErrorClass::RateLimited | ErrorClass::UsageLimit => ",\"retry_after_ms\":7000",
        ErrorClass::Transient
        | ErrorClass::Permanent
        | ErrorClass::QueueStop
        | ErrorClass::Timeout
        | ErrorClass::Stuck
        | ErrorClass::Crash
        | ErrorClass::Budget => "",
    };
    format!("{{\"class\":\"{}\",\"message\":\"as requested\"{more}}}", class.name())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn process_passes() {
    let supervisor = supervisor().await;
    let report = run(|| told(&supervisor, policy("well"))).await;
    println!("process: {} cases", report.held.len());
    assert_eq!(
        report.left_out,
        [
            // A worker that announces no kinds serves any; `a_worker_gets_only_the_kinds_that_it_has_named` covers the other case.
            "a_kind_without_a_handler_is_a_permanent_failure",
            "what_blocks_its_thread_is_given_up_and_the_next_attempt_runs",
        ]
    );
}
