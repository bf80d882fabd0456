//! Control signals between processes: a node is woken at once when it has to renew, and for nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_core::SessionId;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{CancelAnswer, Claim, ClaimAnswer, Fenced, Kinds, Renewed};
use ostler_store::node_commands::{CommandAnswer, NodeCommand, NumberedCommand};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, TempStore, Twin, Voice};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const QUEUE: &str = "mail";
const TTL: Duration = Duration::from_secs(60);
/// Rounds of the test: in the first one the writer does not know the listener yet.
const ROUNDS: usize = 5;

fn open(folder: &Path) -> Sqlite {
    let path = folder.join("ostler.db");
    Sqlite::open(path, Arc::new(SystemClock), Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_and_an_order_reach_a_node_in_another_process_at_once() {
    let here = TempStore::real();
    let store = here.store();
    let tasks = Ids::new(1).new_tasks(ROUNDS, QUEUE, "send");
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    store.enqueue(tasks).await.expect("enqueue answers");
    let mut node = Twin::start("control::listening_node", &[(FOLDER, here.folder().as_os_str())]);
    let session: SessionId = node.hear().parse().expect("it says its session");
    for (round, id) in ids.iter().enumerate() {
        node.expect("armed");
        assert_eq!(store.cancel(vec![*id]).await, Ok(vec![CancelAnswer::Requested]));
        node.expect(&format!("{} cancelled, {round} commands", round + 1));
        node.tell("again");
        node.expect("armed");
        assert!(matches!(store.command(session, NodeCommand::Drain).await, Ok(CommandAnswer::Given { .. })));
        node.expect(&format!("{} cancelled, {} commands", round + 1, round + 1));
        node.tell("again");
    }
    node.kill();
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn listening_node() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store = open(&folder);
    let node = Ids::new(2).new_session("node", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: ROUNDS };
    let claimed = store.claim(claim).await.expect("claim answers");
    assert!(matches!(&claimed, ClaimAnswer::Tasks { tasks, .. } if tasks.len() == ROUNDS), "{claimed:?}");
    Voice::say(&session.to_string());
    let mut news = store.control();
    loop {
        news.arm();
        Voice::say("armed");
        // No timeout here: it receives the signal, or waits forever.
        news.wait().await;
        match store.renew(session, &[]).await.expect("renew answers") {
            Renewed::Held { cancelled, commands, .. } => {
                let last = commands.last().map_or(0, |NumberedCommand { number, .. }| *number);
                Voice::say(&format!("{} cancelled, {last} commands", cancelled.len()));
            }
            Renewed::Ended => panic!("the session is over, and should not be"),
        }
        let _ = Voice::hear();
    }
}
