//! Workers that misbehave. Each ends as `docs/guide/worker-protocol.md` specifies, and its neighbours are not affected.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, Outcome};
use ostler_exec::{AttemptResult, Control, Executor, Work, WorkerFate, event_channel};
use tokio::task::JoinSet;

use crate::bench::{SOON, children_of, failure, until};
use crate::desk::{Desk, GRACE, lines, output, policy, task};

/// Asserts that an attempt is a crash with this message, that its worker is gone, and that a neighbour still works.
async fn crashes(what: &str, how: &str, says: &str) {
    let desk = Desk::well().await;
    let (neighbour, worker) = (desk.open().await, desk.open().await);
    let (ended, _) = desk.run(worker, task(what, how)).await;
    assert_eq!(ended.slot, WorkerFate::Dead, "{what}");
    let failure = failure(ended);
    assert_eq!(failure.class, ErrorClass::Crash, "{what}: {failure:?}");
    assert!(failure.message.contains(says), "{what}: {}", failure.message);
    desk.still_works(neighbour).await;
    until("nothing of it is left", || children_of(desk.supervisor.pid()) == 1).await;
    let again = desk.run(worker, task("echo", "1")).await.0;
    assert_eq!(
        (again.outcome, again.slot),
        (Outcome::HandedBack, WorkerFate::Dead),
        "it takes no other task"
    );
}

#[tokio::test]
async fn a_worker_that_is_killed_is_a_crash_of_the_task_it_ran() {
    crashes("die", "9", "SIGKILL").await;
    crashes("die", "11", "SIGSEGV").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_dies_of_its_task_at_once_has_crashed_every_time() {
    let desk = Arc::new(Desk::well().await);
    let mut all = JoinSet::new();
    for _ in 0..4 {
        let desk = Arc::clone(&desk);
        all.spawn(async move {
            for _ in 0..10 {
                let worker = desk.open().await;
                let ended = desk.run(worker, task("die", "9")).await.0;
                // Were it handed back, it would never count, and would take down one worker after the other.
                assert_eq!(failure(ended).class, ErrorClass::Crash);
            }
        });
    }
    while let Some(done) = all.join_next().await {
        done.expect("each of them crashed");
    }
}

#[tokio::test]
async fn a_worker_that_exits_in_a_task_is_a_crash_with_the_end_of_its_stderr() {
    crashes("exit", "0", "exited with code 0 before it gave a result: going down").await;
    crashes("raise", "null", "exited with code 1 before it gave a result: RuntimeError: as requested").await;
}

#[tokio::test]
async fn garbage_on_the_socket_ends_the_worker() {
    crashes("garbage", "null", "cannot be read").await;
}

#[tokio::test]
async fn a_frame_of_a_known_type_that_lacks_something_ends_the_worker() {
    crashes("raw", "\"{\\\"type\\\":\\\"result\\\",\\\"id\\\":\\\"ID\\\"}\\n\"", "missing field").await;
}

#[tokio::test]
async fn a_wrong_token_ends_the_worker_and_the_result_does_not_count() {
    crashes("wrong-token", "null", "spoke for the task").await;
    crashes("wrong-task", "null", "spoke for the task another").await;
}

#[tokio::test]
async fn half_a_frame_and_death_is_a_crash() {
    crashes("half", "null", "in the middle of a frame").await;
}

#[tokio::test]
async fn a_frame_that_never_ends_ends_the_worker() {
    crashes("long", "null", "longer than 16 MiB").await;
}

#[tokio::test]
async fn a_worker_that_closes_its_socket_and_goes_on_is_ended() {
    crashes("close", "null", "closed its socket").await;
}

#[tokio::test]
async fn a_result_that_is_too_large_is_a_permanent_failure() {
    let desk = Desk::well().await;
    let failure_of = async |what: &str, how: &str| failure(desk.once(what, how).await);
    let failure = failure_of("long-result", "null").await;
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("too large"), "{}", failure.message);
    let small = Desk::of(ostler_process::ProcessPolicy { max_output_bytes: 100, ..policy("well") }).await;
    let worker = small.open().await;
    let ended = small.run(worker, task("big", "101")).await.0;
    assert_eq!(ended.slot, WorkerFate::Reusable, "nothing is wrong with the worker");
    assert_eq!(crate::bench::failure(ended).class, ErrorClass::Permanent);
    assert_eq!(output(small.run(worker, task("big", "100")).await.0).len(), 100, "what just fits");
}

#[tokio::test]
async fn a_result_that_is_nested_too_deep_is_a_permanent_failure() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    for levels in [ostler_core::MAX_NESTING + 1, 100_000] {
        let ended = desk.run(worker, task("deep", &levels.to_string())).await.0;
        assert_eq!(ended.slot, WorkerFate::Reusable, "nothing is wrong with the worker");
        let failure = failure(ended);
        assert_eq!(failure.class, ErrorClass::Permanent);
        assert!(failure.message.contains("nested more than 120 levels"), "{}", failure.message);
    }
    let most = ostler_core::MAX_NESTING;
    assert_eq!(output(desk.run(worker, task("deep", &most.to_string())).await.0).len(), 2 * most);
}

#[tokio::test]
async fn of_two_results_the_first_counts() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    assert_eq!(output(desk.run(worker, task("twice", "null")).await.0), "\"first\"");
    assert_eq!(output(desk.run(worker, task("late", "null")).await.0), "\"first\"");
    // A late frame about a finished attempt belongs to no attempt, and is no protocol violation.
    let (ended, notes) = desk.run(worker, task("echo", "2")).await;
    assert_eq!(output(ended), "2");
    assert_eq!(lines(&notes), Vec::<String>::new());
}

#[tokio::test]
async fn a_result_that_arrived_counts_though_its_worker_died_after_it() {
    let desk = Desk::well().await;
    for _ in 0..20 {
        let ended = desk.once("result-and-die", "null").await;
        assert_eq!(output(ended), "\"it arrived\"");
    }
}

#[tokio::test]
async fn noise_on_stdout_before_the_first_frame_is_not_taken_for_one() {
    let desk = Desk::of(policy("noise")).await;
    let worker = desk.open().await;
    desk.still_works(worker).await;
}

#[tokio::test]
async fn unknown_types_and_fields_are_ignored() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (ended, notes) = desk.run(worker, task("unknown", "null")).await;
    assert_eq!(ended, AttemptResult::success(None));
    assert_eq!(lines(&notes), ["heard"]);
}

#[tokio::test]
async fn a_worker_that_hangs_ends_at_its_deadline_by_sigterm() {
    let desk = Desk::well().await;
    let (neighbour, worker) = (desk.open().await, desk.open().await);
    let began = Instant::now();
    let hung = Work { timeout: Duration::from_millis(200), grace: SOON, ..task("hang-politely", "null") };
    let ended = desk.run(worker, hung).await.0;
    assert_eq!(ended.slot, WorkerFate::Dead);
    assert_eq!(failure(ended).class, ErrorClass::Timeout);
    assert!(began.elapsed() < SOON, "it did not wait for the grace: {:?}", began.elapsed());
    desk.still_works(neighbour).await;
}

#[tokio::test]
async fn twenty_hung_workers_end_in_parallel_in_about_one_grace() {
    const HUNG: usize = 20;
    let desk = Arc::new(Desk::well().await);
    let timeout = Duration::from_secs(1);
    let mut workers = Vec::new();
    for _ in 0..HUNG {
        workers.push(desk.open().await);
    }
    let began = Instant::now();
    let mut attempts = JoinSet::new();
    for worker in workers {
        let desk = Arc::clone(&desk);
        attempts.spawn(async move { desk.run(worker, Work { timeout, ..task("hang", "null") }).await.0 });
    }
    for ended in attempts.join_all().await {
        assert_eq!(failure(ended).class, ErrorClass::Timeout);
    }
    let took = began.elapsed();
    assert!(took >= timeout + GRACE && took < (timeout + GRACE) * 5, "{took:?}");
    until("no process is left", || children_of(desk.supervisor.pid()) == 0).await;
}

#[tokio::test]
async fn a_cancel_that_is_not_heard_ends_the_worker_after_two_graces() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (sender, heard) = event_channel();
    let control = Control::new(sender);
    let cancel = control.cancel.clone();
    let grace = Duration::from_millis(300);
    let running = desk.run_with(worker, Work { grace, ..task("hang", "null") }, control);
    let told = async {
        let _ = heard.recv().await;
        cancel.cancel();
        Instant::now()
    };
    let (ended, told_at) = tokio::join!(running, told);
    assert_eq!((ended.outcome, ended.slot), (Outcome::Cancelled, WorkerFate::Dead));
    assert!(
        told_at.elapsed() >= grace * 2,
        "one to stop by itself, one to be ended: {:?}",
        told_at.elapsed()
    );
}

#[tokio::test]
async fn a_flood_on_stderr_blocks_nothing_and_is_bounded() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (ended, notes) = desk.run(worker, task("flood-bytes", &(64 << 20).to_string())).await;
    assert_eq!(ended, AttemptResult::success(None));
    let kept: usize = lines(&notes).iter().map(String::len).sum();
    assert!(kept > 0 && kept < 1 << 20, "{kept} bytes");
    desk.still_works(worker).await;
}

#[tokio::test]
async fn a_grandchild_that_holds_stdout_and_the_socket_does_not_delay_a_result_or_an_end() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let began = Instant::now();
    assert_eq!(output(desk.run(worker, task("grandchild", "null")).await.0), "\"here\"");
    desk.still_works(worker).await;
    let ended = desk.run(worker, task("die", "9")).await.0;
    assert_eq!(failure(ended).class, ErrorClass::Crash);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    until("no process is left", || children_of(desk.supervisor.pid()) == 0).await;
}

#[tokio::test]
async fn a_worker_that_is_never_ready_is_a_crash_with_its_stderr() {
    let ready_timeout = Duration::from_secs(1);
    let desk = Desk::of(ostler_process::ProcessPolicy { ready_timeout, ..policy("silent") }).await;
    let failure = desk.refused().await;
    assert_eq!(failure.class, ErrorClass::Crash);
    assert!(failure.message.contains("not ready within 1s"), "{}", failure.message);
    until("nothing of it is left", || children_of(desk.supervisor.pid()) == 0).await;
}

#[tokio::test]
async fn a_worker_that_dies_at_its_start_says_why() {
    let failure = Desk::of(policy("die")).await.refused().await;
    assert_eq!(failure.class, ErrorClass::Crash);
    assert_eq!(failure.message, "the worker exited with code 3 before it was ready: cannot find my library");
    assert_eq!(failure.details.as_deref(), Some("cannot find my library"));
}

#[tokio::test]
async fn a_worker_that_starts_with_nonsense_is_refused() {
    for (start, says) in
        [("garbage", "cannot be read"), ("talkative", "runs nothing"), ("newer", "speaks version 2")]
    {
        let desk = Desk::of(policy(start)).await;
        let failure = desk.refused().await;
        assert!(failure.message.contains(says), "{start}: {}", failure.message);
        until("nothing of it is left", || children_of(desk.supervisor.pid()) == 0).await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let desk = Desk::of(ostler_process::ProcessPolicy::new("docs", ["no-such-program"])).await;
    let failure = desk.refused().await;
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("\"no-such-program\""), "{}", failure.message);
}

#[tokio::test]
async fn a_worker_that_dies_while_it_has_nothing_to_do_is_noticed_at_once() {
    let desk = Desk::of(policy("short-lived")).await;
    let worker = desk.open().await;
    let failure = tokio::time::timeout(SOON, desk.process.ended(worker)).await.expect("the end is reported");
    assert!(failure.message.contains("exited with code 4"), "{}", failure.message);
    let ended = desk.run(worker, task("echo", "1")).await.0;
    assert_eq!(
        (ended.outcome, ended.slot),
        (Outcome::HandedBack, WorkerFate::Dead),
        "the task is not to blame"
    );
}
