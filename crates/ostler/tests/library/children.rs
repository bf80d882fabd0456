//! Queues that are served by child processes: commands and long-lived workers.

use std::path::Path;
use std::time::Duration;

use ostler::process::{CommandPolicy, ProcessPolicy, SupervisorProgram};
use ostler::{Context, OpenError, Overrides, StateName};
use ostler_testkit::{MAX_WAIT, scratch};
use serde_json::json;

/// The variable that makes this program the supervisor.
const ROLE: &str = "OSTLER_TEST_SUPERVISOR";

/// Not a test: the supervisor process is this program, started again for this test.
#[test]
#[ignore = "it is the supervisor's process"]
fn serve_as_the_supervisor() {
    if std::env::var_os(ROLE).is_some() {
        ostler_process::supervisor::serve().expect("the supervisor serves");
    }
}

pub(crate) fn supervisor() -> SupervisorProgram {
    let args = ["--exact", "children::serve_as_the_supervisor", "--ignored", "--nocapture"];
    let mut program = SupervisorProgram::this(args);
    program.env.push((ROLE.into(), "1".into()));
    program
}

/// A worker in Python, with the SDK of this repository.
fn python_worker(folder: &Path) -> ProcessPolicy {
    let script = folder.join("worker.py");
    let text = "from ostler import worker\n\
                @worker.task(\"double\")\n\
                def double(payload, ctx):\n\
                \x20   return payload * 2\n\
                worker.run()\n";
    std::fs::write(&script, text).unwrap();
    let mut policy = ProcessPolicy::new("python", ["python3".to_owned(), script.display().to_string()]);
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
    policy.environment.set.push(("PYTHONPATH".to_owned(), sdk.to_owned()));
    policy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_and_worker_processes_and_handlers_are_queues_of_one_pool() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .handle("add", |(a, b): (i64, i64), _: Context| async move { Ok(a + b) })
        .and_queue("shell")
        .executor(CommandPolicy::new([
            "sh",
            "-c",
            "test \"$1\" -gt 0 && echo \"$1\"",
            "sh",
            "{{ payload.number }}",
        ]))
        .defaults(Overrides { attempts: Some(1), ..Overrides::NONE })
        .workers(2)
        .and_queue("python")
        .executor(python_worker(folder.path()))
        .workers(1)
        .supervisor(supervisor())
        .start()
        .await
        .unwrap();
    let sum = pool.submit("add", &(1, 2)).await.unwrap();
    let shell = pool.on("shell");
    let echoed = shell.submit("any", &json!({ "number": 7 })).await.unwrap();
    let failed = shell.submit("any", &json!({ "number": 0 })).await.unwrap();
    let doubled = pool.on("python").submit("double", &21).await.unwrap();
    assert_eq!(pool.wait_as::<i64>(sum).await.unwrap(), 3);
    assert_eq!(pool.wait_as::<i64>(echoed).await.unwrap(), 7);
    assert_eq!(pool.wait(failed).await.unwrap().state.name(), StateName::Failed);
    assert_eq!(pool.wait_as::<i64>(doubled).await.unwrap(), 42);
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_run_by_workers_in_python_with_its_pilot_first() {
    let folder = scratch();
    let pool = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .executor(python_worker(folder.path()))
        .workers(1)
        .supervisor(supervisor())
        .start()
        .await
        .unwrap();
    let job = pool.job("doubles").items("double", &[1, 2, 3]).pilot(1).workers(2).start().await.unwrap();
    let pilot = tokio::time::timeout(MAX_WAIT, job.wait_for_pilot()).await.unwrap().unwrap();
    assert_eq!((pilot.items, pilot.failed, pilot.rest), (1, 0, 2));
    job.approve().await.unwrap();
    let ended = tokio::time::timeout(MAX_WAIT, job.wait()).await.unwrap().unwrap();
    assert_eq!((ended.counts.completed, ended.job.items), (3, 3));
    pool.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_supervise_is_told_so_and_starts_nothing() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let command = || CommandPolicy::new(["true"]);
    let refused = ostler::open(&path).unwrap().executor(command()).start().await;
    let refused = refused.err().expect("this program's main is that of the tests");
    assert!(
        matches!(refused, OpenError::NoSupervisor) && refused.to_string().contains("init()"),
        "{refused}"
    );
    let both =
        ostler::open(&path).unwrap().executor(command()).handle("a", |(): (), _: Context| async { Ok(()) });
    let refused = both.supervisor(supervisor()).start().await.err().expect("one of the two");
    assert!(matches!(&refused, OpenError::TwoSorts(queue) if queue == "default"), "{refused}");
    let nothing = ostler::open(&path).unwrap().executor(CommandPolicy::new([""; 0]));
    let refused = nothing.supervisor(supervisor()).grace(Duration::from_secs(1)).start().await;
    assert!(matches!(refused, Err(OpenError::Executor { .. })), "a command needs a program");
}
