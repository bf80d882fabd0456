//! The dashboard in a real Chromium. Each test is a scenario of the folder `browser`: `driver.rs` plays it, `furnish.rs` makes what there is
//! to see, and `kit.mjs` has what scenarios share.

mod driver;
mod furnish;

use std::sync::Arc;

use ostler_core::{Outcome, TaskId};
use ostler_store::calls::Claimed;
use ostler_testkit::{TempSchema, TempStore};
use serde_json::{Value, json};

use crate::outages::ServerProcess;
use crate::world::{FULL, QUEUE, READ, StorePlace, World};
use driver::play;
use furnish::{Furniture, furnish};

/// A folder for pictures of the pages, if they are wanted.
const PICTURES: &str = "OSTLER_PICTURES";
/// How much longer long forms are.
const ROUNDS: &str = "OSTLER_ROUNDS";

fn rounds() -> u64 {
    std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// What every scenario is told, with something of its own.
fn told(world: &World, own: &Value) -> Value {
    let mut all = json!({
        "base": format!("http://{}", world.address),
        "token": FULL,
        "read": READ,
        "rounds": rounds(),
        "pictures": std::env::var(PICTURES).unwrap_or_default(),
    });
    let fields = all.as_object_mut().expect("an object");
    fields.extend(own.as_object().expect("an object").clone());
    all
}

async fn on_file() -> World {
    World::for_browser(Arc::new(StorePlace::File(TempStore::real())), 0).await
}

async fn on_server() -> World {
    World::for_browser(Arc::new(StorePlace::Server(TempSchema::make())), 0).await
}

/// A scenario that orders nothing.
async fn alone(order: &str) -> String {
    panic!("{order} is not known here")
}

/// Makes two tests of each scenario: one on SQLite, one on PostgreSQL.
macro_rules! on_each_store {
    ($($scenario:ident),+ $(,)?) => {
        $(mod $scenario {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_a_file() {
                super::$scenario(super::on_file().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_a_server() {
                super::$scenario(super::on_server().await).await;
            }
        })+
    };
}

on_each_store!(
    a_browser_sees_the_pages_live_and_acts_on_them,
    every_view_answers_its_question_is_light_and_has_no_barrier,
    other_sites_read_and_change_nothing_and_hostile_texts_stay_texts,
    live_updates_leave_hands_alone_and_show_what_a_reload_shows,
);

async fn a_browser_sees_the_pages_live_and_acts_on_them(world: World) {
    let mut letter = world.ids.new_tasks(1, QUEUE, "send").remove(0);
    letter.payload = r#"{"n":9007199254740993,"x":1.10,"u":"\u0000","who":"old"}"#.to_owned();
    let dead = letter.id.to_string();
    world.store.enqueue(vec![letter]).await.expect("it is accepted");
    world.fail(1).await;
    world.enqueue(3).await;
    let furniture = furnish(&world).await;
    let session = world.node().await;
    let chat = furnish::start(&world, session, "chat").await;
    // A process that can be killed serves the pages.
    let base = match *world.place {
        StorePlace::File(_) => "",
        // One of the two runs is played under a path.
        StorePlace::Server(_) => "/ostler",
    };
    let first = ServerProcess::for_browser(&world, 0, base).await;
    let port = first.port();
    let own = json!({
        "base": format!("http://{}{base}", first.address),
        "dead": dead,
        "talk": furniture.talk,
        "chat": chat.lease.task().to_string(),
    });
    let mut serving = Some(first);
    play("scenario.mjs", &told(&world, &own), async |order| {
        match order.split_once(' ') {
            None if order == "kill" => serving.take().expect("it serves").kill().await,
            None if order == "start" => serving = Some(ServerProcess::for_browser(&world, port, base).await),
            None if order == "enqueue" => return world.enqueue(1).await.remove(0).to_string(),
            Some(("say", lines)) => furnish::say(&world, &chat, lines.parse().expect("a number")).await,
            Some(_) | None => panic!("{order} is not known here"),
        }
        "done".to_owned()
    })
    .await;
}

/// Weight, barriers, answers and keys: one browser looks at one furnished node.
async fn every_view_answers_its_question_is_light_and_has_no_barrier(world: World) {
    let Furniture { talk, letter, job, retry, ready, .. } = furnish(&world).await;
    let long = furnish::long_transcript(&world).await;
    let own =
        json!({ "talk": talk, "letter": letter, "job": job, "retry": retry, "ready": ready, "long": long });
    play("views.mjs", &told(&world, &own), alone).await;
}

/// Pages of other sites and texts of strangers.
async fn other_sites_read_and_change_nothing_and_hostile_texts_stay_texts(world: World) {
    let tasks = furnish::hostile(&world).await;
    play("strangers.mjs", &told(&world, &json!({ "tasks": tasks })), alone).await;
}

/// Claims the waiting tasks of the queue of tests, and completes them.
async fn complete(world: &World, session: ostler_core::SessionId, most: usize) -> Vec<TaskId> {
    let claimed: Vec<Claimed> = world.claim(session, most).await;
    let ids = claimed.iter().map(|one| one.lease.task()).collect();
    world.finish(claimed, &Outcome::Success).await;
    ids
}

async fn live_updates_leave_hands_alone_and_show_what_a_reload_shows(world: World) {
    let session = world.node().await;
    let waiting = world.enqueue(60).await;
    let furniture = furnish(&world).await;
    let ids: Vec<String> = waiting.iter().map(ToString::to_string).collect();
    // A running task that says what the scenario orders.
    let chat = furnish::start(&world, session, "chat").await;
    let told = told(
        &world,
        &json!({
            "waiting": ids,
            "talk": furniture.talk,
            "letter": furniture.letter,
            "chat": chat.lease.task().to_string(),
        }),
    );
    play("live.mjs", &told, async |order| match order.split_once(' ') {
        // It calls a tool, and then says this many lines.
        Some(("say", count)) => {
            furnish::say(&world, &chat, count.parse().expect("a number")).await;
            "done".to_owned()
        }
        // So many tasks are enqueued and end.
        Some(("ends", count)) => {
            let count: usize = count.parse().expect("a number");
            let (queue, tasks) = ("busy", world.ids.new_tasks(count, "busy", "tick"));
            for some in tasks.chunks(ostler_store::MAX_BATCH) {
                world.store.enqueue(some.to_vec()).await.expect("they are accepted");
                world
                    .finish(furnish::claim(&world, session, queue, some.len()).await, &Outcome::Success)
                    .await;
            }
            "done".to_owned()
        }
        Some(("complete", count)) => {
            complete(&world, session, count.parse().expect("a number")).await.len().to_string()
        }
        _ => panic!("{order} is not known here"),
    })
    .await;
}
