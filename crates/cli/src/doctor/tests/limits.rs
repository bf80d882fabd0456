//! Throttled queues and keys.

use ostler_core::{BreakerPolicy, ErrorClass, Failure, Outcome, Trip};
use ostler_store::calls::{NewTask, QueueChange, Report};
use ostler_store::gates::{BreakerScope, BreakerSetting};

use ostler_wire::system::Severity;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// A task of this key fails like this.
async fn ends(world: &World, node: SessionId, key: Option<&str>, failure: Failure) {
    let task = NewTask { limit_key: key.map(str::to_owned), ..world.ids.new_task("mail", "send") };
    world.files.store().enqueue(vec![task]).await.expect("it is taken");
    let claimed = world.claim(node, "mail", 1).await;
    let report = |claimed: Claimed| Report {
        lease: claimed.lease,
        ran: None,
        outcome: Outcome::Failed(failure.clone()),
        output: None,
        reading: None,
    };
    let reports = claimed.into_iter().map(report).collect();
    world.files.store().finish(reports).await.expect("it is reported");
}

fn later() -> Failure {
    Failure { retry_after: Some(HOUR), ..Failure::new(ErrorClass::RateLimited, "too many requests") }
}

async fn breaker(world: &World, scope: BreakerScope) {
    let policy = BreakerPolicy { trip: Trip::Consecutive(1), reset: HOUR };
    let change = QueueChange::Breaker(Some(BreakerSetting { policy, scope }));
    world.files.store().configure("mail", vec![change]).await.expect("it is configured");
}

#[tokio::test]
async fn a_queue_that_was_told_to_come_back_later_is_worth_knowing() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    ends(&world, node, None, later()).await;
    world.pass(HOUR / 2, &[node]).await;
    let finding = only(world.findings().await, "queue-held");
    assert_eq!(finding.severity, Severity::Info);
    says(&finding, "Queue \"mail\" is on hold for another 30m", "ostler queue release mail");
}

#[tokio::test]
async fn a_key_that_was_told_to_come_back_later_is_worth_knowing() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    ends(&world, node, Some("old acme"), later()).await;
    let finding = only(world.findings().await, "keys-held");
    says(&finding, "limit keys of queue \"mail\" are on hold", "ostler queue release mail --key 'old acme'");
}

#[tokio::test]
async fn an_open_breaker_is_a_warning() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    breaker(&world, BreakerScope::Queue).await;
    ends(&world, node, None, Failure::new(ErrorClass::Transient, "no route")).await;
    world.pass(HOUR / 2, &[node]).await;
    let finding = only(world.findings().await, "breaker-open");
    assert_eq!(finding.severity, Severity::Warning);
    says(&finding, "The breaker of queue \"mail\" is open for another 30m", "ostler breaker reset mail");
}

#[tokio::test]
async fn a_breaker_that_was_opened_by_hand_stays_open_until_a_command_closes_it() {
    let world = World::new();
    world.node("anna", &["mail"]).await;
    let open = QueueChange::OpenBreaker(None);
    world.files.store().configure("mail", vec![open]).await.expect("it is configured");
    let finding = only(world.findings().await, "breaker-open");
    says(&finding, "is open until it is reset", "ostler breaker reset mail");
}

#[tokio::test]
async fn an_open_breaker_of_a_key_is_a_warning() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    breaker(&world, BreakerScope::Key).await;
    ends(&world, node, Some("acme"), Failure::new(ErrorClass::Transient, "no route")).await;
    let finding = only(world.findings().await, "key-breaker-open");
    says(&finding, "\"acme\"", "ostler breaker reset mail --key acme");
}
