//! Tasks: lists, amendments, and what is shown of one.

use std::time::Duration;

use ostler_core::{Overrides, StateName};
use ostler_ops::task_name::NamedTask;
use ostler_ops::tasks::{amend, check_amendment, letters, list, show, show_letter};
use ostler_ops::{Missing, OpsError, Refusal};
use ostler_store::Store as _;
use ostler_store::calls::QueueChange;
use ostler_store::views::{Filter, ListOrder};

use crate::world::{QUEUE, World};

#[tokio::test]
async fn a_page_is_filled_and_the_next_one_goes_on_after_it() {
    let world = World::new();
    let ids = world.enqueue(5).await;
    let filter = Filter { order: ListOrder::OldestFirst, ..Filter::default() };
    let first = list(world.store(), &filter, None, 3).await.expect("a page");
    assert_eq!(first.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), ids[..3]);
    let rest = list(world.store(), &filter, first.next, 3).await.expect("a page");
    assert_eq!(rest.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), ids[3..]);
    assert_eq!(rest.next, None);
}

#[tokio::test]
async fn only_a_task_that_has_not_finished_is_amended() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    let more = Overrides { attempts: Some(9), ..Overrides::NONE };
    amend(world.store(), &NamedTask::Id(id), more).await.expect("it waits");
    assert_eq!(
        show(world.store(), &NamedTask::Id(id)).await.expect("shown").view.detail.rules.attempts,
        Some(9)
    );
    world.complete(1).await;
    let late = amend(world.store(), &NamedTask::Id(id), more).await.expect_err("it has finished");
    assert_eq!(late, Refusal::Finished { id, state: StateName::Completed }.into());
    let unknown = world.ids.task();
    let missing = amend(world.store(), &NamedTask::Id(unknown), more).await.expect_err("there is none");
    assert_eq!(missing, Missing::Task(unknown).into());
}

#[test]
fn a_first_delay_above_the_longest_is_refused() {
    let delays = |base, max| Overrides {
        base: Some(Duration::from_secs(base)),
        max: Some(Duration::from_secs(max)),
        ..Overrides::NONE
    };
    assert_eq!(check_amendment(&delays(1, 1)), Ok(()));
    assert_eq!(check_amendment(&delays(2, 1)), Err(OpsError::Refused(Refusal::Delays)));
}

#[tokio::test]
async fn a_waiting_task_is_shown_with_what_throttles_it() {
    let world = World::new();
    let id = world.enqueue(1).await[0];
    let held = async || show(world.store(), &NamedTask::Id(id)).await.expect("shown").view.detail.held;
    assert_eq!(held().await, None);
    let pause = QueueChange::Pause("noon".to_owned());
    world.store.configure(QUEUE, vec![pause]).await.expect("it is paused");
    assert_eq!(held().await.map(|held| held.waits_for), Some("paused"));
}

#[tokio::test]
async fn a_dead_letter_is_shown_as_one_and_another_task_is_not() {
    let world = World::new();
    let dead = world.enqueue(1).await[0];
    world.fail(1).await;
    let letter = show_letter(world.store(), &NamedTask::Id(dead)).await.expect("it is dead").view;
    assert_eq!((letter.post_mortem.class, letter.detail.attempts.len()), (Some("permanent"), 1));
    let page = list(world.store(), &Filter::default(), None, 10).await.expect("a page");
    let letters = letters(world.store(), &page).await.expect("letters");
    assert_eq!(
        letters.iter().map(|letter| letter.summary.id.clone()).collect::<Vec<_>>(),
        [dead.to_string()]
    );
    let id = world.enqueue(1).await[0];
    let other = show_letter(world.store(), &NamedTask::Id(id)).await.expect_err("it waits");
    assert_eq!(other, Missing::DeadLetter { id, state: StateName::Queued }.into());
}
