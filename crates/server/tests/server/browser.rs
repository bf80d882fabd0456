//! The dashboard in Chromium, driven by `browser/scenario.mjs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{EventBody, Outcome, Role, ToolStatus};
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, QueueChange};
use ostler_testkit::{TempStore, npm_modules};

use crate::world::{FULL, QUEUE, StorePlace, World};

/// What drives the browser.
const PACKAGE: &str = "playwright-core@1";
/// How long the whole scenario may take.
const MAX_SCENARIO: Duration = Duration::from_secs(300);
/// Lines of the scenario that wait to be read.
const MAX_LINES: usize = 16;
/// A folder for pictures of the pages, if they are wanted.
const PICTURES: &str = "OSTLER_PICTURES";

/// The folder with the package, installed once; `None` if that is not possible here.
fn modules() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    npm_modules(&folder, &[PACKAGE], &["playwright-core"])
}

/// Queues and a conversation, so that there is something to see.
async fn furnish(world: &World) {
    let node = world.node().await;
    for (queue, kind, count) in
        [("reports", "render", 2), ("review", "agent", 1), ("thumbnails", "resize", 40)]
    {
        world.store.enqueue(world.ids.new_tasks(count, queue, kind)).await.expect("they are accepted");
    }
    let why = "the database is moved tonight".to_owned();
    world.store.configure("reports", vec![QueueChange::Pause(why)]).await.expect("it is set");
    let claim =
        |queue: &str, limit| Claim { session: node, queue: queue.to_owned(), kinds: Kinds::Any, limit };
    for (queue, limit) in [("thumbnails", 30), ("review", 1)] {
        let ClaimAnswer::Tasks { tasks, .. } =
            world.store.claim(claim(queue, limit)).await.expect("it is answered")
        else {
            panic!("the session is over")
        };
        if queue == "thumbnails" {
            world.finish(tasks, &Outcome::Success).await;
            continue;
        }
        let call = "c1".to_owned();
        let said = vec![
            EventBody::Message { role: Role::User, text: "Review the change of the parser.".to_owned() },
            EventBody::ToolCall {
                call: call.clone(),
                tool: "Read".to_owned(),
                input: r#"{"file":"src/parse.rs"}"#.to_owned(),
            },
            EventBody::ToolResult {
                call,
                tool: None,
                status: ToolStatus::Ok,
                output: "fn parse() {\n}\n".repeat(20),
            },
            EventBody::Message {
                role: Role::Assistant,
                text: "The parser accepts an empty line.".to_owned(),
            },
        ];
        world.store.append(tasks[0].lease.as_ref(), said).await.expect("they are written");
        std::mem::forget(tasks);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_sees_the_pages_live_and_acts_on_them() {
    let Some(modules) = modules() else { return };
    let place = Arc::new(StorePlace::File(TempStore::real()));
    let mut world = World::for_browser(Arc::clone(&place), 0).await;
    let port: u16 = world.address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let mut letter = world.ids.new_tasks(1, QUEUE, "send").remove(0);
    letter.payload = r#"{"n":9007199254740993,"x":1.10,"u":"\u0000","who":"old"}"#.to_owned();
    let dead = letter.id.to_string();
    world.store.enqueue(vec![letter]).await.expect("it is accepted");
    world.fail(1).await;
    world.enqueue(3).await;
    furnish(&world).await;
    let link = format!("/login#{}", world.server().login_text().expect("a link"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/browser/scenario.mjs");
    let pictures = std::env::var(PICTURES).unwrap_or_default();
    let mut node = std::process::Command::new("node")
        .arg(script)
        .args([
            &modules.display().to_string(),
            &format!("http://{}", world.address),
            &link,
            FULL,
            &dead,
            &pictures,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    let (mut orders, out) = (node.stdin.take().expect("a pipe"), node.stdout.take().expect("a pipe"));
    let (sender, mut lines) = tokio::sync::mpsc::channel::<String>(MAX_LINES);
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let scenario = async {
        let mut last = String::new();
        while let Some(line) = lines.recv().await {
            match line.as_str() {
                "restart" => {
                    let server = world.server.take().expect("it runs");
                    server.stop(Duration::from_secs(1)).await;
                    orders.write_all(b"stopped\n").expect("it listens");
                }
                "start" => {
                    world = World::for_browser(Arc::clone(&place), port).await;
                    orders.write_all(b"started\n").expect("it listens");
                }
                _ => {}
            }
            last = line;
        }
        last
    };
    let last = tokio::time::timeout(MAX_SCENARIO, scenario).await;
    if last.is_err() {
        node.kill().expect("it is our child");
    }
    let (last, status) = (last.expect("it ends"), node.wait().expect("it ends"));
    assert!(status.success() && last == "done", "{status}: {last}");
}
