//! `ostler db move`.

use ostler_core::StateName;
use ostler_postgres::tokio_postgres::{NoTls, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::Store as _;
use ostler_store::views::TaskRef;
use ostler_testkit::PrivatePostgres;

use crate::ostler::Place;
use crate::up::{appears, configured, script, up};

/// Creates an empty database, and returns its URL, with a password that the server does not check.
fn database(name: &str) -> String {
    let url = PrivatePostgres::shared().url();
    wait(async {
        let (client, connection) = connect(&url, NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    });
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    format!("{}/{name}", server.replacen("ostler@", "ostler:hush@", 1))
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

#[test]
fn a_store_moves_with_a_node_at_work_and_everybody_is_told_where_it_went() {
    let url = database("moved_at_work");
    let place = configured();
    let node = up(&place, &[]);
    let slow = script("echo yes > begun; exec sleep 600");
    let id = place.done(["submit", "shell", "run", "--payload", &slow]);
    appears(&place.folder().join("begun"));
    let later = place.done(["submit", "shell", "run", "--payload", &script("true"), "--in", "1h"]);

    let ran = place.run(["db", "move", "--to", &url, "--wait", "1s"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("2 tasks") && ran.out.contains("all compared"), "{ran:?}");
    assert!(ran.err.contains("1 running tasks were returned to the queue"), "{ran:?}");
    // The node stops its work, and prints the new address.
    let said = node.says("has moved to postgres://ostler@");
    assert_eq!(node.end().0, Some(3), "{said}");
    for args in [vec!["ls"], vec!["submit", "mail", "send"], vec!["up"]] {
        place.refused(args, 3, "/moved_at_work, and is no longer used");
    }
    let again = place.run(["db", "move", "--to", &url]);
    assert!(again.code == Some(0) && again.out.contains("has already moved to"), "{again:?}");
    for text in [&ran.out, &ran.err, &again.out, &again.err, &said] {
        assert!(!text.contains("hush"), "{text}");
    }
    wait(async {
        let store = Postgres::open(&url, Options::default()).await.expect("the new store opens");
        for id in [&id, &later] {
            let id = id.trim().parse().expect("an id");
            let shown = store.show(TaskRef::Id(id)).await.expect("show answers").expect("it is there");
            assert_eq!(shown.task.state.name(), StateName::Queued, "{id}");
        }
    });
}

#[test]
fn what_cannot_be_moved_is_refused_and_a_move_can_be_given_up() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send"]);
    place.refused(["db", "move"], 2, "--to");
    place.refused(["db", "move", "--to", "redis://anna:hush@cache"], 2, "--to: ");
    place.refused(["db", "move", "--to", "postgres://anna:hush@127.0.0.1:1/work"], 3, "cannot be reached");
    place.refused(["db", "move", "--abandon"], 2, "nothing to give up");
    place.refused(
        ["db", "move", "--from", "nowhere.db", "--to", &PrivatePostgres::shared().url()],
        3,
        "there is no store",
    );
    assert_eq!(place.json(["show", id.trim()])["state"], "queued", "the store is as it was");
    place.done(["submit", "mail", "send"]);
}
