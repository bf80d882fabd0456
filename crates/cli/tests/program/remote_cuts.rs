//! The client in Rust behind connections that are cut: a lost answer makes no second task, and a followed stream has no gap.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ostler_testkit::MAX_WAIT;
use serde_json::json;

use crate::ostler::{Place, Running};

const TOKEN: &str = "the-token-of-this-test";

/// Passes connections on to a node, and cuts each after as many bytes of its answers as the plan says; without one, it does not cut.
struct CuttingProxy {
    address: String,
    plan: Arc<Mutex<Vec<usize>>>,
    cuts: Arc<AtomicUsize>,
}

impl CuttingProxy {
    fn before(node: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (plan, cuts) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (node, planned, counted) = (node.to_owned(), Arc::clone(&plan), Arc::clone(&cuts));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let budget = planned.lock().expect("a plan").pop();
                let (node, cuts) = (node.clone(), Arc::clone(&counted));
                std::thread::spawn(move || pass_on(client, &node, budget, &cuts));
            }
        });
        Self { address, plan, cuts }
    }

    /// Cuts each of the next connections after the given number of bytes.
    fn cut_after(&self, bytes: &[usize]) {
        let mut plan = self.plan.lock().expect("a plan");
        plan.extend(bytes.iter().rev());
    }

    fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

fn pass_on(mut client: TcpStream, node: &Path, budget: Option<usize>, cuts: &AtomicUsize) {
    let Ok(mut server) = UnixStream::connect(node) else { return };
    let (mut from, mut to) = (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut left = budget.unwrap_or(usize::MAX);
    let mut piece = [0; 4096];
    // The node has done its work when the answer begins to come.
    while let Ok(read @ 1..) = server.read(&mut piece) {
        let passed = read.min(left);
        if client.write_all(&piece[..passed]).is_err() {
            break;
        }
        left -= passed;
        if passed < read {
            cuts.fetch_add(1, Ordering::SeqCst);
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

struct Behind {
    running: Running,
    place: Place,
    proxy: CuttingProxy,
}

fn start(place: &Place) -> Running {
    let socket = place.folder().join("api.sock");
    let mut command = place.command(["up", "--listen", &format!("unix:{}", socket.display())]);
    command.env("OSTLER_TOKEN", TOKEN).env("XDG_STATE_HOME", place.folder());
    let running = Running::start(command);
    running.line();
    running
}

impl Behind {
    fn up() -> Self {
        let place = Place::new();
        place.write(
            "ostler.toml",
            "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\n",
        );
        // A socket takes any `Host`: requests name the address of the proxy.
        let socket = place.folder().join("api.sock");
        let running = start(&place);
        let proxy = CuttingProxy::before(&socket);
        Self { running, place, proxy }
    }

    /// The program again, at the same socket.
    fn restart(&mut self) {
        self.running.kill();
        self.running = start(&self.place);
    }

    fn client(&self) -> ostler::RemoteClient {
        let url = format!("http://{}", self.proxy.address);
        ostler::connect(&url).and_then(|client| client.with_token(TOKEN)).expect("a client")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_makes_no_second_task() {
    let node = Behind::up();
    let client = node.client().on("parked");
    client.submit("run", &json!({ "n": 0 })).await.expect("one without a cut");
    // Before the first byte, inside the head, and inside the body.
    node.proxy.cut_after(&[0, 20, 0]);
    let id = client.submit("run", &json!({ "n": 1 })).await.expect("it arrives");
    assert_eq!(node.proxy.cuts(), 3);
    let many = client.submit_many("run", &[json!(2), json!(3)]).await.expect("they arrive");
    assert!(many.iter().all(Result::is_ok));
    node.proxy.cut_after(&[0, 0]);
    client.submit_many("run", &[json!(4), json!(5)]).await.expect("they arrive");
    let listed = node.place.json(["ls", "--queue", "parked"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(6), "{listed}");
    assert!(listed.as_array().into_iter().flatten().any(|task| task["id"] == id.to_string()), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_events_have_no_gap_and_no_doubles_after_cuts() {
    let node = Behind::up();
    let client = node.client().on("shell");
    let script = "i=0; while [ $i -lt 300 ]; do echo line $i >&2; i=$((i+1)); done; exit 1";
    let about = ostler::Submission {
        overrides: ostler::Overrides { attempts: Some(1), ..ostler::Overrides::NONE },
        ..ostler::Submission::default()
    };
    let id = client.submit_with("run", &script, about).await.expect("it is in");
    // Within the head, and within the first events: all of them have more bytes than that.
    node.proxy.cut_after(&[300, 500, 700, 900]);
    let (mut events, mut numbers, mut lines) = (client.follow(id, 0), Vec::new(), 0);
    while let Some(event) = events.next().await.expect("the stream goes on") {
        numbers.push(event.number);
        lines += usize::from(event.data.starts_with("line "));
    }
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert!(lines > 0 && node.proxy.cuts() == 4, "{lines} lines, {} cuts", node.proxy.cuts());
}

/// Waits for an overview that counts this many queued tasks.
async fn until_waiting(live: &mut ostler::Live, tasks: u64) -> ostler::LiveState {
    let seen = async {
        loop {
            let now = live.next().await.expect("it goes on");
            if now.stats.tasks.queued == tasks {
                return now;
            }
        }
    };
    tokio::time::timeout(MAX_WAIT, seen).await.expect("it changes")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_goes_on_after_cuts_and_after_a_killed_node() {
    let mut node = Behind::up();
    let client = node.client().on("parked");
    // Within the head, and within a section.
    node.proxy.cut_after(&[100, 600]);
    let mut live = client.live();
    let first = until_waiting(&mut live, 0).await;
    assert_eq!((first.nodes.len(), node.proxy.cuts()), (1, 2));
    client.submit("run", &json!(1)).await.expect("it is in");
    until_waiting(&mut live, 1).await;
    node.restart();
    client.submit("run", &json!(2)).await.expect("it is in");
    let last = until_waiting(&mut live, 2).await;
    assert_ne!(last.nodes[0].id, first.nodes[0].id, "another start of the node");
}
