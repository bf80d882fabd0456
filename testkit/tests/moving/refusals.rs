//! Refused moves and calls: their messages, and that a refusal changes nothing.

use std::time::Duration;

use ostler_conformance::Picture;
use ostler_store::transfer::{self, MoveStage, MoveStep};
use ostler_store::{ErrorKind, Store};
use ostler_testkit::{Ids, scratch};

use crate::fill::{LONG, QUEUE, claim, enqueue, fill};
use crate::place::Place;

/// The kind and the message of a refusal.
fn refused<T>(answer: Result<T, ostler_store::Error>) -> (ErrorKind, String) {
    let error = answer.err().expect("it is refused");
    (error.kind(), error.to_string())
}

/// Aborts a move after this step. Work begun after that step may still happen: a test that must not see it needs a move
/// that waits there.
async fn stopped_at(place: &Place, patience: Duration, last: fn(MoveStep) -> bool) {
    let (leaving, arrival, plan) = (place.leaving(), place.arrival().await, place.plan(patience));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let tell = move |step: MoveStep| {
        if last(step) {
            stop.send_replace(true);
        }
    };
    let mut stopped = stopped;
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => {}
        moved = transfer::run(&leaving, &arrival, &plan, &tell) => panic!("it has ended: {moved:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_moves_both_sides_say_so_and_a_claim_finds_nothing() {
    let folder = scratch();
    let place = Place::new(folder.path());
    let (ids, old) = (Ids::new(1), place.old().expect("the store opens"));
    let early = place.new_store().await.expect("an empty store opens");
    let node = ids.new_session("here", LONG);
    let session = node.id;
    old.join(node).await.expect("join answers");
    enqueue(&old, ids.new_tasks(3, QUEUE, "send")).await;
    // The move waits for this task, so nothing is frozen yet.
    assert_eq!(claim(&old, session, QUEUE, 1).await.len(), 1);
    stopped_at(&place, LONG, |step| matches!(step, MoveStep::Draining { leased: 1 })).await;

    let moving = format!("is moving to postgres://there/{}", place.schema);
    for answer in [
        refused(old.enqueue(ids.new_tasks(1, QUEUE, "send")).await),
        refused(old.join(ids.new_session("late", LONG)).await),
        refused(
            old.make_ready(0)
                .await
                .and(old.configure(QUEUE, vec![ostler_store::calls::QueueChange::Resume]).await),
        ),
    ] {
        assert_eq!(answer.0, ErrorKind::Moving);
        assert!(answer.1.contains(&moving) && answer.1.contains("ostler.db"), "{}", answer.1);
    }
    assert_eq!(claim(&old, session, QUEUE, 10).await.len(), 0, "a claim finds nothing");
    assert!(place.old().is_ok(), "it can still be looked at");

    // Neither new clients nor those already connected get into the new store.
    let (kind, sentence) = refused(place.new_store().await);
    assert_eq!(kind, ErrorKind::Moving);
    assert!(sentence.contains("is being moved here") && sentence.contains("ostler db move"), "{sentence}");
    let (kind, sentence) = refused(early.enqueue(ids.new_tasks(1, QUEUE, "send")).await);
    assert_eq!(
        (kind, sentence.contains("a store is being moved here")),
        (ErrorKind::Moving, true),
        "{sentence}"
    );
    assert_eq!(refused(early.join(ids.new_session("early", LONG)).await).0, ErrorKind::Moving);

    // After the move, the old store names its new address, and the new one works, even for clients that were connected before.
    place.carry().await.expect("the move ends");
    let (kind, sentence) = refused(place.old());
    assert_eq!(kind, ErrorKind::Moved);
    assert!(sentence.contains(&format!("has moved to postgres://there/{}", place.schema)), "{sentence}");
    assert_eq!(refused(old.enqueue(ids.new_tasks(1, QUEUE, "send")).await).0, ErrorKind::Moved);
    enqueue(&early, ids.new_tasks(1, QUEUE, "send")).await;
    let new = place.new_store().await.expect("the new store opens");
    assert_eq!(new.survey().await.expect("survey answers").lanes[0].counts.queued, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_something_in_it_is_refused_and_nothing_changes() {
    let folder = scratch();
    let place = Place::new(folder.path());
    let (ids, old) = (Ids::new(2), place.old().expect("the store opens"));
    enqueue(&old, ids.new_tasks(3, QUEUE, "send")).await;
    let new = place.new_store().await.expect("the store opens");
    enqueue(&new, ids.new_tasks(1, "other", "send")).await;
    let before = (Picture::take(&old).await, Picture::take(&new).await);
    let (kind, sentence) = refused(place.carry().await);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(sentence.contains("the database is not empty") && sentence.contains(&place.schema), "{sentence}");
    assert_eq!((Picture::take(&old).await, Picture::take(&new).await), before);
    enqueue(&old, ids.new_tasks(1, QUEUE, "send")).await;
    enqueue(&new, ids.new_tasks(1, QUEUE, "send")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_finished_move_of_another_store_is_refused() {
    let (folder, other) = (scratch(), scratch());
    let place = Place::new(folder.path());
    let elsewhere = Place::with(other.path(), &place.schema, place.clock.clone());
    for place in [&place, &elsewhere] {
        enqueue(&place.old().expect("the store opens"), Ids::new(3).new_tasks(3, QUEUE, "send")).await;
    }
    stopped_at(&place, Duration::ZERO, |step| matches!(step, MoveStep::Copied { .. })).await;
    let (kind, sentence) = refused(elsewhere.carry().await);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        sentence.contains("part of another store") && sentence.contains(&*place.file.to_string_lossy()),
        "{sentence}"
    );
    enqueue(&elsewhere.old().expect("the store opens"), Ids::new(4).new_tasks(1, QUEUE, "send")).await;
    // A store that is being moved cannot move elsewhere.
    let lost = Place { schema: "lost".to_owned(), ..place };
    let (kind, sentence) = refused(lost.carry().await);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(sentence.contains("is on its way to") && sentence.contains("--abandon"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_given_up_puts_the_old_store_back_to_work() {
    let folder = scratch();
    let place = Place::new(folder.path());
    let ids = Ids::new(5);
    let old = place.old().expect("the store opens");
    assert_eq!(refused(place.abandon().await).0, ErrorKind::Invalid, "there is nothing to give up");
    fill(&old, &place.clock).await;
    stopped_at(&place, Duration::ZERO, |step| matches!(step, MoveStep::Verified { .. })).await;
    let departure = place.abandon().await.expect("it is given up");
    assert_eq!(departure.stage, MoveStage::Frozen);
    enqueue(&old, ids.new_tasks(1, QUEUE, "send")).await;
    let node = ids.new_session("here", LONG);
    let session = node.id;
    old.join(node).await.expect("join answers");
    assert!(!claim(&old, session, "many", 1).await.is_empty(), "the old store works again");
    let new = place.new_store().await.expect("the database is as it was");
    assert!(new.survey().await.expect("survey answers").queues.is_empty(), "nothing is left there");
    drop(new);

    // Abandoned without the database: the data there is not used, and the next attempt discards it.
    old.leave(session).await.expect("leave answers");
    stopped_at(&place, Duration::ZERO, |step| matches!(step, MoveStep::Verified { .. })).await;
    transfer::abandon(&place.leaving(), None).await.expect("it is given up");
    assert_eq!(refused(place.new_store().await).0, ErrorKind::Moving);
    enqueue(&old, ids.new_tasks(1, QUEUE, "send")).await;
    place.carry().await.expect("the store moves");
    let new = place.new_store().await.expect("the new store opens");
    assert_eq!(Picture::take(&new).await, Picture::take(&old).await);
    let (kind, sentence) = refused(place.abandon().await);
    assert_eq!(kind, ErrorKind::Moved);
    assert!(sentence.contains("cannot be given up any more"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_on_the_way_is_found_and_nothing_is_marked() {
    let folder = scratch();
    let place = Place::new(folder.path());
    let old = place.old().expect("the store opens");
    enqueue(&old, Ids::new(6).new_tasks(3, QUEUE, "send")).await;
    stopped_at(&place, Duration::ZERO, |step| matches!(step, MoveStep::Verified { .. })).await;
    let (client, connection) =
        ostler_postgres::tokio_postgres::connect(&place.url(), ostler_postgres::tokio_postgres::NoTls)
            .await
            .expect("a connection");
    tokio::spawn(connection);
    let refused_by_trigger =
        client.batch_execute(&format!("UPDATE {}.task SET payload = '[]'", place.schema)).await;
    assert!(refused_by_trigger.is_err(), "only the move writes there");
    let change = format!(
        "SET ostler_move.arriving = 'yes'; UPDATE {}.task SET payload = '[]' WHERE id = 2",
        place.schema
    );
    client.batch_execute(&change).await.expect("the setting lets it through");
    let (kind, sentence) = refused(place.carry().await);
    assert_eq!(kind, ErrorKind::Damaged);
    assert!(sentence.contains("the table \"task\" differs at 2"), "{sentence}");
    assert!(place.old().is_ok(), "the old store is not marked");
    place.abandon().await.expect("it is given up");
    place.carry().await.expect("begun anew, it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_character_that_postgresql_cannot_keep_is_named_with_its_place() {
    let folder = scratch();
    let place = Place::new(folder.path());
    let old = place.old().expect("the store opens");
    enqueue(&old, Ids::new(7).new_tasks(1, QUEUE, "send")).await;
    // The store itself refuses this character; a user edited the file by hand.
    let conn = rusqlite::Connection::open(&place.file).expect("the file opens");
    conn.execute("UPDATE task SET payload = 'a' || char(0)", []).expect("it is written");
    drop(conn);
    let (kind, sentence) = refused(place.carry().await);
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(
        sentence.contains("U+0000") && sentence.contains("\"payload\" of the table \"task\" at 1"),
        "{sentence}"
    );
    place.abandon().await.expect("it is given up");
    enqueue(&old, Ids::new(8).new_tasks(1, QUEUE, "send")).await;
}
