//! Queues of JavaScript functions: in host processes, which are this program, and on threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler::isolate::{FunctionLimits, HostProgram, IsolatePolicy, Isolation};
use ostler::{OpenError, Overrides, Pool, StateName};
use ostler_testkit::{MAX_WAIT, scratch};
use serde_json::json;

use crate::children::supervisor;

/// The variable that makes this program a host.
const ROLE: &str = "OSTLER_TEST_HOST";

/// Not a test: the host process is this program, started again for this test.
#[test]
#[ignore = "it is a host's process"]
fn serve_as_a_host() {
    if std::env::var_os(ROLE).is_some() {
        let Err(fault) = ostler_isolate::host_process::run();
        panic!("{fault}");
    }
}

fn host() -> HostProgram {
    let args = ["/proc/self/exe", "--exact", "functions::serve_as_a_host", "--ignored", "--nocapture"];
    HostProgram { argv: args.map(str::to_owned).to_vec(), env: vec![(ROLE.to_owned(), "1".to_owned())] }
}

fn folder_of(folder: &Path, functions: &[(&str, &str)]) -> PathBuf {
    let scripts = folder.join("functions");
    std::fs::create_dir(&scripts).unwrap();
    for (kind, module) in functions {
        std::fs::write(scripts.join(format!("{kind}.js")), module).unwrap();
    }
    scripts
}

async fn pool(folder: &Path, policy: IsolatePolicy) -> Pool {
    ostler::open(folder.join("jobs.db"))
        .unwrap()
        .queue("functions")
        .executor(policy)
        .workers(1)
        .defaults(Overrides { attempts: Some(2), base: Some(Duration::from_millis(10)), ..Overrides::NONE })
        .supervisor(supervisor())
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_are_a_queue_and_keep_their_steps_and_their_limits() {
    for isolation in Isolation::ALL {
        let folder = scratch();
        let scripts = folder_of(
            folder.path(),
            &[
                (
                    "once",
                    "export default async (payload, ctx) => {\n\
                     const first = await ctx.step('first', () => ctx.attempt);\n\
                     if (ctx.attempt === 1) throw new Error('not yet');\n\
                     return { first, sum: payload.a + payload.b } }",
                ),
                ("bomb", "export default () => { for (;;); }"),
            ],
        );
        let limits = FunctionLimits { cpu: Duration::from_millis(200), ..FunctionLimits::default() };
        let policy =
            IsolatePolicy { isolation, limits, program: host(), ..IsolatePolicy::new("functions", scripts) };
        let pool = pool(folder.path(), policy).await;
        let id = pool.submit("once", &json!({ "a": 1, "b": 2 })).await.unwrap();
        let done = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").unwrap();
        let output = done.output.expect("an output");
        assert_eq!(output, r#"{"first":1,"sum":3}"#, "{isolation:?}: the step of the first attempt was kept");
        let id = pool.submit("bomb", &()).await.unwrap();
        let bomb = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").unwrap();
        assert_eq!(bomb.state.name(), StateName::Failed, "{isolation:?}");
        let failure = bomb.last_failure.expect("a failure");
        assert_eq!(failure.message, "the function used more CPU time than its limit", "{isolation:?}");
        pool.drain(MAX_WAIT).await;
    }
}

#[tokio::test]
async fn a_folder_that_is_missing_is_refused_with_a_sentence() {
    let folder = scratch();
    let started = ostler::open(folder.path().join("jobs.db"))
        .unwrap()
        .queue("functions")
        .executor(IsolatePolicy::new("functions", folder.path().join("none")))
        .supervisor(supervisor())
        .start()
        .await;
    let Err(error) = started else { panic!("it started") };
    assert!(error.to_string().contains("the folder of functions"), "{error}");
    assert!(!matches!(error, OpenError::NoSupervisor));
}
