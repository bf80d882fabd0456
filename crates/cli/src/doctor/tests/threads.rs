//! The threads that the environment asks for: shown with their sources, and a warning if a program would refuse them.

use std::sync::Arc;

use ostler_exec::ThreadEnvironment;
use ostler_testkit::ManualClock;
use ostler_wire::system::Severity;

use super::{looked, only, says};
use crate::doctor::Subject;

async fn findings(size: Option<&str>, most: Option<&str>) -> Vec<super::Finding> {
    let read = |name: &str| match name {
        "WORKER_POOL_SIZE" => size.map(str::to_owned),
        _ => most.map(str::to_owned),
    };
    let threads = Some(ThreadEnvironment::read(4, read));
    let clock = Arc::new(ManualClock::new());
    looked(Subject { store: None, config: None, containment: None, threads, clock }).await
}

#[tokio::test]
async fn the_values_in_force_are_shown_with_where_they_come_from() {
    let found = only(findings(Some("3"), None).await, "threads");
    assert_eq!(found.severity, Severity::Info);
    says(&found, "3 threads (WORKER_POOL_SIZE), and at most 30 running and queued (10 for each thread)", "");
    let found = only(findings(None, Some("4")).await, "threads");
    says(&found, "4 threads (one for each core), and at most 4 running and queued (MAX_QUEUED_WORKERS)", "");
    assert_eq!(findings(None, None).await, [], "there is no node here, and nothing is set");
}

#[tokio::test]
async fn a_value_that_a_program_would_refuse_is_a_warning() {
    for (size, most, sentence) in [
        (Some("many"), None, "WORKER_POOL_SIZE is \"many\", but must be a whole number above zero"),
        (None, Some("0"), "MAX_QUEUED_WORKERS is \"0\""),
        (Some("8"), Some("4"), "MAX_QUEUED_WORKERS is 4, but WORKER_POOL_SIZE is 8"),
    ] {
        let found = only(findings(size, most).await, "threads-refused");
        assert_eq!(found.severity, Severity::Warning);
        says(&found, sentence, "Correct the variable");
    }
}
