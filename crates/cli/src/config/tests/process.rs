//! Pools of persistent workers.

use std::time::Duration;

use ostler_process::ProcessPolicy;

use super::{fault, good, policy};

/// A pool of workers, with these lines.
fn workers(lines: &str) -> String {
    format!("[pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"worker.py\"]\n{lines}\n")
}

#[test]
fn a_pool_of_workers_is_read() {
    let config = good(&workers(
        "ready_timeout = \"1m\"\nrecycle = { after_tasks = 10, above_memory = \"1GiB\" }\ngrace = \"2s\"\nmax_output = \"1KiB\"
         stuck_after = \"90s\"\nper_worker = 50\nkeep_env = [\"PATH\"]\nenv = { A = \"1\" }",
    ));
    let [pool] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    let policy: &ProcessPolicy = policy(pool);
    assert_eq!(
        (policy.pool.as_str(), policy.argv.as_slice()),
        ("docs", &["python3", "worker.py"].map(str::to_owned)[..])
    );
    assert_eq!((policy.ready_timeout, policy.grace), (Duration::from_secs(60), Duration::from_secs(2)));
    assert_eq!((policy.recycle.after_tasks, policy.recycle.above_memory), (Some(10), Some(1 << 30)));
    assert_eq!((policy.max_output_bytes, policy.environment.set.len()), (1_024, 1));
    assert_eq!((policy.stuck_after, policy.per_worker), (Some(Duration::from_secs(90)), 50));
    assert_eq!(pool.scale.min, 2);
}

#[test]
fn a_pool_of_workers_has_two_unless_it_may_have_only_one() {
    let scale = |lines: &str| good(&workers(lines)).pools[0].scale;
    assert_eq!((scale("max_workers = 1").min, scale("max_workers = 8").min), (1, 2));
    assert_eq!(scale("min_workers = 5\nmax_workers = 8").min, 5);
    assert_eq!(scale("").max, 10, "however many cores there are");
}

#[test]
fn what_a_pool_of_workers_cannot_be_is_refused_with_a_sentence() {
    for (lines, sentence) in [
        ("ready_timeout = \"1h\"", "pool.docs.ready_timeout is 1h, but must be at most 10m"),
        (
            "recycle = { after_tasks = 0 }",
            "pool.docs.recycle.after_tasks is 0, but must be a whole number from 1",
        ),
        ("recycle = { above_memory = 5 }", "pool.docs.recycle.above_memory is 5: missing unit"),
        ("per_worker = 0", "pool.docs.per_worker is 0, but must be a whole number from 1 to 1000"),
        ("recycle = { after = 5 }", "pool.docs.recycle.after: unknown key"),
        ("stdin = \"payload\"", "pool.docs.stdin: unknown key"),
        ("exit_codes = { permanent = [1] }", "pool.docs.exit_codes: unknown key"),
    ] {
        let told = fault(&workers(lines));
        assert!(told.contains(sentence), "{told}");
    }
    let templated = workers("").replace("worker.py", "{{ payload.x }}");
    assert!(fault(&templated).contains("before there is a task"), "{}", fault(&templated));
    let none = "[pool.docs]\nexecutor = \"process\"\n";
    assert!(fault(none).contains("such as [\"python3\", \"worker.py\"]"));
}
