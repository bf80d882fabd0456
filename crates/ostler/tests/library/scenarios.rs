//! The examples of whole scenarios: each is run, and its result compared.

use ostler::{Cost, StateName};
use ostler_testkit::scratch;

#[cfg(feature = "agent")]
#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/agent_pool.rs"]
mod agent_pool;
#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/document_pool.rs"]
mod document_pool;
#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/leased_runs.rs"]
mod leased_runs;
#[cfg(feature = "process")]
#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/process_pool.rs"]
mod process_pool;
#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/thread_pool.rs"]
mod thread_pool;
#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/work_units.rs"]
mod work_units;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_units_keep_their_conversations_whether_they_complete_or_fail() {
    let folder = scratch();
    let report = work_units::run(&folder.path().join("jobs.db")).await.unwrap();
    // Eleven units ask and are answered, one asks only; an answer costs 0.0012 dollars.
    let (messages, cost) = (11 * 2 + 1, Cost::from_nanos(11 * 1_200_000));
    assert_eq!(report, work_units::Report { completed: 11, failed: 1, messages, cost });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_fail_with_their_service_complete_when_it_is_back() {
    let folder = scratch();
    let report = document_pool::run(&folder.path().join("jobs.db")).await.unwrap();
    assert_eq!(report, document_pool::Report { refused: 3, dead: 100, completed: 99 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_submitted_from_elsewhere_and_can_be_cancelled() {
    let folder = scratch();
    assert_eq!(leased_runs::run(folder.path()).await.unwrap(), (12, StateName::Cancelled));
    let notes = std::fs::read_dir(folder.path()).unwrap().flatten();
    let notes = notes.filter(|entry| entry.path().extension().is_some_and(|number| number == "2"));
    assert_eq!(notes.count(), 12, "each run was at its last iteration, in its folder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_thread_runs_one_task_at_a_time_and_all_threads_take_part() {
    let folder = scratch();
    let threads = thread_pool::run(&folder.path().join("jobs.db")).await.unwrap();
    assert_eq!(threads.len(), 4, "{threads:?}");
}

#[cfg(feature = "process")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_pool_outlives_crashes_and_timeouts_of_its_workers() {
    use ostler::ErrorClass;
    let folder = scratch();
    let ends = process_pool::run(folder.path(), Some(crate::children::supervisor())).await.unwrap();
    let failed: Vec<ErrorClass> = ends.iter().filter_map(|end| end.err()).collect();
    assert_eq!((ends.len(), failed.len()), (11, 2), "{ends:?}");
    assert!(failed.contains(&ErrorClass::Crash) && failed.contains(&ErrorClass::Timeout), "{failed:?}");
}

#[cfg(feature = "agent")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_agents_keeps_the_record_of_each_unit_whether_it_completes_fails_or_crashes() {
    let folder = scratch();
    let report = agent_pool::run(folder.path(), None, Some(crate::children::supervisor())).await.unwrap();
    let price = Cost::from_usd(0.0012);
    let mut sessions = std::collections::BTreeSet::new();
    for (subject, unit) in &report.units {
        assert_eq!(unit.prompt, format!("Describe {subject} in one sentence. Write it to answer.md."));
        sessions.extend(unit.session.clone());
        assert_eq!(unit.conversation[..2], ["prompt", "session"], "{unit:?}");
        match subject.as_str() {
            "a cat" => {
                assert_eq!(
                    (unit.state, unit.answer.as_str()),
                    (StateName::Failed, "the model knows no cats")
                );
                assert_eq!((unit.cost, unit.files.len()), (price, 0));
                assert_eq!(unit.conversation[2..], ["message"]);
            }
            "a volcano" => {
                assert_eq!((unit.state, unit.cost, unit.files.len()), (StateName::Failed, None, 0));
                assert!(unit.answer == "it was killed by signal 9", "{unit:?}");
            }
            _ => {
                let answer = format!("A{} is a thing.", &subject[1..]);
                assert_eq!((unit.state, &unit.answer), (StateName::Completed, &answer));
                assert_eq!((unit.cost, unit.files.as_slice()), (price, &["answer.md".to_owned()][..]));
                assert_eq!(unit.conversation[2..], ["tool_call", "tool_result", "message", "result"]);
                assert!(!unit.took.is_zero());
            }
        }
    }
    assert_eq!((report.units.len(), sessions.len()), (8, 8));
    assert_eq!(report.cost, Cost::from_nanos(7 * 1_200_000), "the crashed one did not come to report");
}
