//! Functions on threads: a script that cannot be interrupted keeps its thread, and nothing else.

use std::time::Duration;

use ostler_core::ErrorClass;
use ostler_exec::WorkerFate;
use ostler_isolate::Isolation;

use crate::bench::{Bench, failure, output, work};

/// A builtin that cannot be interrupted, and ends by itself after some seconds.
const DEAF_FOR_A_WHILE: &str = "return (1n << 600000n).toString().length";

#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_script_is_given_up_and_its_thread_is_replaced() {
    let bench = Bench::new(Isolation::Thread, |policy| policy.limits.cpu = Duration::from_millis(50)).await;
    bench.body("deaf", DEAF_FOR_A_WHILE);
    bench.body("well", "return 'on'");
    let worker = bench.open().await;
    let (ended, _) = bench.run(worker, work("deaf", "null")).await;
    assert_eq!(
        (failure(&ended).class, ended.slot),
        (ErrorClass::Timeout, WorkerFate::Unresponsive),
        "{ended:?}"
    );
    assert_eq!(failure(&ended).message, "the function used more CPU time than its limit");
    let next = bench.open().await;
    assert_eq!(output(bench.run(next, work("well", "null")).await.0), "\"on\"", "another thread goes on");
    bench.executor.close(next).await;
    // It returns when the script has ended.
    bench.executor.close(worker).await;
}
