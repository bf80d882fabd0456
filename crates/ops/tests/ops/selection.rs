//! Selections: by name and by filter, page by page.

use ostler_core::{StateName, TaskId};
use ostler_ops::act::{Act, act_on};
use ostler_ops::selection::{SelectedBy, SelectionCursor, Selector, select, select_page};
use ostler_ops::task_name::NamedTask;
use ostler_ops::{Missing, OpsError, Refusal};
use ostler_store::calls::NewTask;
use ostler_store::unique::Unique;
use ostler_store::views::Filter;
use ostler_store::{ErrorKind, MAX_PAGE};

use crate::world::{QUEUE, World};

const OPEN: &[StateName] = &[StateName::Queued, StateName::Running];

fn key(key: &str) -> NamedTask {
    NamedTask::Key { queue: QUEUE.to_owned(), key: key.to_owned() }
}

#[tokio::test]
async fn tasks_are_selected_by_id_and_by_key() {
    let world = World::new();
    let unnamed = world.enqueue(1).await[0];
    let keyed = NewTask { unique: Some(Unique::new("k".to_owned())), ..world.ids.new_task(QUEUE, "send") };
    let keyed = world.put(keyed).await;
    let named = Selector::Named(vec![NamedTask::Id(unnamed), key("k")]);
    let found = select(world.store(), &named, OPEN).await.expect("both are there");
    assert_eq!((found.ids, found.by), (vec![unnamed, keyed], SelectedBy::Name));
    let missing = select(world.store(), &Selector::Named(vec![key("other")]), OPEN).await;
    assert!(matches!(missing, Err(OpsError::Missing(Missing::Key { .. }))), "{missing:?}");
}

#[tokio::test]
async fn a_part_of_an_id_selects_the_one_task_that_has_it() {
    let world = World::new();
    let part = |text: &str| NamedTask::Part(text.parse().expect("a part of an id"));
    let id = |text: &str| text.parse::<TaskId>().expect("an id");
    let (one, other) = (id("01JC8Z0Q4M9T7N3V5X1B2D6F8H"), id("01JC8Z0Q4M9T7N3V5X1B2D6FAA"));
    for id in [one, other] {
        world.put(NewTask::new(id, QUEUE, "send", "null")).await;
    }
    let named = Selector::Named(vec![part("6FAA"), part("01JC8Z0Q4M9T7N3V5X1B2D6F8")]);
    assert_eq!(select(world.store(), &named, OPEN).await.expect("both are there").ids, [other, one]);
    let several = select(world.store(), &Selector::Named(vec![part("01JC")]), OPEN).await;
    let Err(OpsError::Refused(Refusal::SeveralTasks { tasks, .. })) = several else { panic!("{several:?}") };
    assert_eq!(tasks, [other, one]);
    let missing = select(world.store(), &Selector::Named(vec![part("ZZZZ")]), OPEN).await;
    assert!(matches!(missing, Err(OpsError::Missing(Missing::Part { .. }))), "{missing:?}");
}

#[tokio::test]
async fn a_filter_without_a_state_selects_the_states_of_the_action() {
    let world = World::new();
    let failed = world.enqueue(1).await[0];
    world.fail(1).await;
    let waiting = world.enqueue(2).await;
    let all = Selector::Matching(Filter::default());
    let mut found = select(world.store(), &all, OPEN).await.expect("it is read").ids;
    found.sort();
    assert_eq!(found, waiting);
    let of_state = Selector::Matching(Filter { state: Some(StateName::Failed), ..Filter::default() });
    assert_eq!(select(world.store(), &of_state, OPEN).await.expect("it is read").ids, [failed]);
}

#[tokio::test]
async fn a_selection_goes_on_at_its_cursor_while_its_tasks_are_acted_on() {
    let world = World::new();
    let mut all = world.enqueue(MAX_PAGE + 5).await;
    let filter = Filter { queue: Some(QUEUE.to_owned()), ..Filter::default() };
    let mut cursor: Option<SelectionCursor> = None;
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let page = select_page(world.store(), &filter, OPEN, cursor).await.expect("a page");
        assert!(page.ids.len() <= MAX_PAGE);
        act_on(world.store(), &page.ids, &Act::Cancel).await.expect("they are cancelled");
        seen.extend(page.ids);
        pages += 1;
        let Some(next) = page.next else { break };
        // As a client of an API keeps it between two requests.
        cursor = Some(next.to_string().parse().expect("a cursor"));
        assert_eq!(cursor, Some(next));
    }
    assert!(pages > 2, "the states come one after the other");
    seen.sort();
    all.sort();
    assert_eq!(seen, all, "each task once");
}

#[tokio::test]
async fn a_cursor_of_another_selection_is_refused() {
    let world = World::new();
    let cursor = "failed:17-4".parse().expect("a cursor");
    let page = select_page(world.store(), &Filter::default(), OPEN, Some(cursor)).await;
    assert!(matches!(page, Err(OpsError::Store(error)) if error.kind() == ErrorKind::Invalid));
    for text in ["", "lost", "failed:x", "17"] {
        assert!(text.parse::<SelectionCursor>().is_err(), "{text}");
    }
}
