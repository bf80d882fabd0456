//! Queues: pause, limits, holds and breakers by hand.

use std::time::Duration;

use ostler_core::{
    BreakerPolicy, CallAdmission, CallResult, CallVerdict, EndKind, ErrorClass, Failure, Outcome, Trip,
};
use ostler_ops::overview::{Overview, breakers};
use ostler_ops::queues::{
    BreakerPosition, BreakerRequest, Lift, pause, release, resume, set_breaker, set_limits, unsubscribe,
};
use ostler_ops::{Missing, OpsError};
use ostler_store::call_breakers::BreakerUse;
use ostler_store::calls::QueueChange;
use ostler_store::gates::SetBy;
use ostler_store::outbox::{OutboxAnswer, OutboxFilter, Subscription};
use ostler_store::{Clock as _, Store as _};
use ostler_wire::limits::{BroughtLimits, SubscriberView};
use ostler_wire::time::TimeView;

use crate::world::{QUEUE, World};

fn no_queue<T>() -> Result<T, OpsError> {
    Err(Missing::Queue("other".to_owned()).into())
}

#[tokio::test]
async fn a_queue_is_resumed_only_if_it_was_paused() {
    let world = World::new();
    let paused = pause(world.store(), QUEUE, "noon".to_owned()).await.expect("it is paused");
    assert_eq!(paused.paused.as_deref(), Some("noon"));
    for lift in [Lift::Lifted, Lift::NotNeeded] {
        let (view, did) = resume(world.store(), QUEUE).await.expect("it is resumed");
        assert_eq!((view.paused, did), (None, lift));
    }
}

#[tokio::test]
async fn limits_are_marked_as_set_by_hand_and_a_node_that_brings_its_own_is_named() {
    let world = World::new();
    let set = async || {
        let changes = vec![QueueChange::Concurrency(Some(3))];
        set_limits(world.store(), QUEUE, changes).await.expect("they are set")
    };
    let alone = set().await;
    assert_eq!((alone.view.concurrency, alone.brought), (Some(3), None));
    assert_eq!(world.store.queue_settings(QUEUE).await.expect("read").set_by, SetBy::Hand);
    world.node("plain", r#"{"mail":{}}"#).await;
    let limits = vec!["concurrency.total".to_owned()];
    world.node("anna", r#"{"mail":{"concurrency.total":"5","timeout":"9s"}}"#).await;
    assert_eq!(set().await.brought, Some(BroughtLimits { node: "anna".to_owned(), limits }));
}

#[tokio::test]
async fn a_hold_is_lifted_and_the_answer_says_whether_there_was_one() {
    let world = World::new();
    world.enqueue(1).await;
    let failure = Failure {
        retry_after: Some(Duration::from_secs(60)),
        ..Failure::new(ErrorClass::RateLimited, "too many requests")
    };
    world.run(QUEUE, 1, &Outcome::Failed(failure), &[]).await;
    for lift in [Lift::Lifted, Lift::NotNeeded] {
        let (view, did) = release(world.store(), QUEUE, None).await.expect("it is lifted");
        assert_eq!((view.held, did), (None, lift));
    }
    assert_eq!(release(world.store(), "other", None).await.map(|(_, did)| did), no_queue());
}

#[tokio::test]
async fn a_breaker_is_opened_by_the_clock_of_the_store_and_reset() {
    let world = World::new();
    world.enqueue(1).await;
    let request = |position| BreakerRequest { queue: QUEUE.to_owned(), key: None, position };
    let hour = Duration::from_secs(3_600);
    let open = set_breaker(world.store(), &request(BreakerPosition::Open(Some(hour)))).await.expect("opened");
    let until = TimeView::from(world.clock.now().after(hour));
    assert_eq!((open.state, open.until), (Some("open"), Some(until)));
    let once = BreakerPolicy { trip: Trip::Consecutive(1), reset: hour };
    let result = CallResult { admission: CallAdmission::Usual, verdict: CallVerdict::Failure };
    let failed = BreakerUse::Report(result);
    world.store.call_breaker("payments", once, failed).await.expect("it is counted");
    let listed = breakers(world.store()).await.expect("all breakers");
    let listed: Vec<_> =
        listed.iter().map(|view| (view.queue.as_deref(), view.call.as_deref(), view.state)).collect();
    assert_eq!(listed, [(Some(QUEUE), None, Some("open")), (None, Some("payments"), Some("open"))]);
    let reset = set_breaker(world.store(), &request(BreakerPosition::Reset)).await.expect("reset");
    assert_eq!((reset.state, reset.until), (Some("closed"), None));
    let other = BreakerRequest { queue: "other".to_owned(), ..request(BreakerPosition::Reset) };
    assert_eq!(set_breaker(world.store(), &other).await.map(|view| view.state), no_queue());
}

#[tokio::test]
async fn an_overview_has_the_views_of_one_moment() {
    let world = World::new();
    world.enqueue(3).await;
    world.fail(1).await;
    let overview = Overview::take(world.store()).await.expect("an overview");
    world.enqueue(1).await;
    let (stats, queue) = (overview.stats(Some(QUEUE)), overview.queue(QUEUE).expect("it is there"));
    assert_eq!((stats.tasks.queued, stats.tasks.failed, stats.submitted), (2, 1, 3));
    assert_eq!(queue.tasks, stats.tasks);
    assert_eq!(overview.stats(Some("other")).submitted, 0);
    assert_eq!(overview.queue("other").map(|view| view.queue), no_queue());
}

#[tokio::test]
async fn a_subscriber_is_listed_and_removed_with_what_waits_for_it() {
    let world = World::new();
    let wants = OutboxFilter::NONE.with(EndKind::Failed).with(EndKind::Completed);
    let gone = Subscription { name: "gone".to_owned(), wants };
    world.store.configure(QUEUE, vec![QueueChange::Subscribe(gone)]).await.expect("it is configured");
    let view = Overview::take(world.store()).await.expect("read").queue(QUEUE).expect("it is there");
    assert_eq!(view.subscribers, [SubscriberView::from(("gone", wants))]);
    assert_eq!(view.subscribers[0].wants, ["completed", "failed"]);
    world.enqueue(1).await;
    world.fail(1).await;
    let after = unsubscribe(world.store(), QUEUE, "gone").await.expect("it is removed");
    assert_eq!(after.subscribers, []);
    let node = world.node("n", "").await;
    let left = world.store.take_outbox(node, QUEUE, "gone", 10).await;
    assert_eq!(left, Ok(OutboxAnswer::Entries(Vec::new())));
    let unknown = Missing::Subscriber { queue: QUEUE.to_owned(), name: "gone".to_owned() };
    assert_eq!(unsubscribe(world.store(), QUEUE, "gone").await.err(), Some(unknown.into()));
}
