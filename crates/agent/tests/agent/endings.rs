//! Ends of an agent: silence, stays after the result, what it leaves behind, cancel, budget, crash, usage limit.

use std::time::{Duration, Instant};

use ostler_agent::Dialect;
use ostler_core::{Charging, Cost, ErrorClass, Outcome};
use ostler_exec::Work;
use serde_json::json;

use crate::bench::{Bench, Earlier, NOW, runs, until};

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_stuck_unless_a_tool_runs() {
    let mut bench = Bench::claude().await;
    bench.policy.idle_watchdog = Duration::from_secs(3);
    let silent = bench.run(&json!("[[hang]]")).await;
    assert_eq!(silent.failure().class, ErrorClass::Stuck);
    assert!(silent.failure().message.contains("silent for 3s"), "{:?}", silent.failure());

    let work = Work { timeout: Duration::from_secs(6), ..bench.work(&json!("[[tool]]")) };
    let busy = bench.start_work(work, Earlier::default()).end().await;
    assert_eq!(busy.failure().class, ErrorClass::Timeout, "{:?}", busy.failure());
    let child = bench.logged("child").await;
    until("the tool is gone", || !runs(&child)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_standard_error_is_a_sign_of_life_only_where_there_is_no_protocol() {
    let mut bench = Bench::claude().await;
    bench.policy.idle_watchdog = Duration::from_secs(3);
    let noisy = bench.run(&json!("[[noise]]")).await;
    assert_eq!(noisy.failure().class, ErrorClass::Stuck, "{:?}", noisy.failure());
    assert!(noisy.events.iter().any(|event| event.text() == Some("still here")), "its noise is in the log");

    (bench.policy.dialect, bench.policy.command) = (Dialect::Command, vec!["sh".into()]);
    let script = "for i in $(seq 45); do echo working >&2; sleep 0.1; done; echo done";
    assert_eq!(bench.run(&json!(script)).await.output(), json!("done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_counts_although_the_process_stays_and_nothing_of_it_is_left() {
    let bench = Bench::claude().await;
    for (scenario, answer) in
        [("[[stay]]", "It stays."), ("[[leave]]", "It left something."), ("[[closed]]", "It works on.")]
    {
        let ran = bench.run(&json!(scenario)).await;
        assert_eq!(ran.output(), json!(answer));
    }
    let log = bench.log();
    let left: Vec<_> = log.iter().flat_map(|line| [line.get("child"), line.get("pid")]).flatten().collect();
    assert!(left.len() >= 5, "{log:?}");
    until("all are gone", || left.iter().all(|pid| !runs(pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_agent_ends_and_one_that_lost_its_lease_is_killed_at_once() {
    let bench = Bench::claude().await;
    let running = bench.start(&json!("[[stop]]"), Earlier::default());
    bench.logged("waits").await;
    running.control.cancel.cancel();
    assert_eq!(running.end().await.ended.outcome, Outcome::Cancelled);

    let other = Bench::claude().await;
    let work = Work { grace: Duration::from_secs(50), ..other.work(&json!("[[stay]]")) };
    let lost = other.start_work(work, Earlier::default());
    let child = other.logged("child").await;
    let began = Instant::now();
    lost.control.lost.cancel();
    lost.control.cancel.cancel();
    assert_eq!(lost.end().await.ended.outcome, Outcome::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(40), "no grace is given");
    until("its child is gone", || !runs(&child)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_passes_the_budget_of_its_task_is_stopped() {
    let mut bench = Bench::claude().await;
    bench.policy.max_task_cost = Cost::from_usd(1.0);
    let ran = bench.run(&json!("[[dear]]")).await;
    let failure = ran.failure();
    assert_eq!(failure.class, ErrorClass::Permanent, "{failure:?}");
    assert!(failure.message.contains("budget") && failure.hint.is_some(), "{failure:?}");
    let spent: Cost = ran.events.iter().filter_map(usage).sum();
    assert!(spent > Cost::from_usd(1.0).expect("an amount"), "what was seen is counted: {spent}");

    let unpriced = bench.run(&json!({"prompt": "[[text]]", "model": "unheard-of"})).await;
    assert!(
        unpriced.failure().message.contains("the price of the model \"unheard-of\" is not known"),
        "{:?}",
        unpriced.failure()
    );
    assert_eq!(bench.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn under_a_budget_of_the_queue_no_model_is_asked_whose_price_is_not_known() {
    let mut bench = Bench::codex().await;
    bench.charging = Charging::Charged;
    let plain = bench.run(&json!("[[text]]")).await;
    let failure = plain.failure();
    assert_eq!(failure.class, ErrorClass::QueueStop, "all others of the queue would fail too: {failure:?}");
    assert_eq!(failure.message, "its budget cannot be kept: codex does not say what it costs: set \"model\"");
    let own = bench.run(&json!({"prompt": "[[text]]", "model": "unheard-of"})).await;
    let failure = own.failure();
    assert_eq!(failure.class, ErrorClass::Permanent, "only this task has that model: {failure:?}");
    assert!(failure.message.contains("the price of the model \"unheard-of\" is not known"), "{failure:?}");
    assert_eq!(bench.requests().len(), 0);
    let priced = bench.run(&json!({"prompt": "[[text]]", "model": "claude-sonnet-4-5"})).await;
    assert!(priced.ended.outcome.failure().is_none(), "{:?}", priced.ended.outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_reports_its_cost_needs_no_price_for_a_budget_of_the_queue() {
    let mut bench = Bench::claude().await;
    bench.charging = Charging::Charged;
    let ran = bench.run(&json!({"prompt": "[[text]]", "model": "unheard-of"})).await;
    assert_eq!(ran.output(), json!("Hello."));
}

fn usage(event: &ostler_core::EventBody) -> Option<Cost> {
    if let ostler_core::EventBody::Usage(usage) = event { usage.cost } else { None }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_alone_says_nothing_and_the_stream_says_why() {
    let bench = Bench::claude().await;
    let nothing = bench.run(&json!("[[nothing]]")).await;
    assert_eq!(nothing.failure().class, ErrorClass::Transient);
    assert!(nothing.failure().message.contains("exited with 0 without a result"), "{:?}", nothing.failure());
    let crash = bench.run(&json!("[[crash]]")).await;
    assert_eq!(crash.failure().class, ErrorClass::Crash, "{:?}", crash.failure());

    let resets = NOW / 1_000 + 3_600;
    let limit = bench.run(&json!(format!("[[limit {resets}]]"))).await;
    assert_eq!(limit.failure().class, ErrorClass::UsageLimit, "{:?}", limit.failure());
    assert_eq!(limit.failure().retry_after, Some(Duration::from_secs(3_660)), "the reset, and a margin");
    assert!(
        limit
            .events
            .iter()
            .any(|event| event.text() == Some("the usage limit five_hour is reached (100 % used)"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_usage_limit_that_comes_near_is_one_warning_and_a_reading_of_the_account() {
    let bench = Bench::claude().await;
    let ran = bench.run(&json!("[[near]]")).await;
    assert_eq!(ran.output(), json!("It goes on."));
    assert_eq!(ran.warnings(), ["the usage limit five_hour is near (91 % used)"], "one warning");
    let reading = ran.ended.reading.expect("the account learns of it");
    assert_eq!((reading.window.as_str(), reading.utilization_permille), ("five_hour", 920));
}
