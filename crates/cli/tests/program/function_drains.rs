//! Draining of a node whose pool of functions is full, with a long queue behind it and a script that nothing interrupts: it starts nothing
//! more, waits for what runs, and takes the drain back. A drain by SIGTERM does the same, and is final.
//!
//! Threads run a hundred functions at once. Hosts run fewer: each is a process. With `OSTLER_ROUNDS` set, they are a hundred, too.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ostler_testkit::ProcessSignal;

use crate::function_kills::rows;
use crate::ostler::{Place, Running};
use crate::workers::until;

/// Functions that run at once on threads, and in the long test in hosts.
const MANY: usize = 100;
/// Hosts of the short test.
const FEW: usize = 12;
/// Queued tasks for each that runs.
const QUEUED_PER_RUNNING: usize = 5;
/// Tasks that end during the first drain.
const LET_THROUGH: usize = 5;
/// How often a held response has another byte, so that no limit of its request ends it.
const DRIP: Duration = Duration::from_secs(5);

/// Waits at the gate, and returns.
const WAIT: &str = "export default async ({ url }) => (await (await fetch(url + '/wait')).text()).length > 0";
/// Waits at the gate, and then runs a builtin that nothing interrupts.
const DEAF: &str = "export default async ({ url }) => { await (await fetch(url + '/deaf')).text(); \
    return [].reverse.call({ length: 2 ** 32 - 1 }) }";

/// A server whose responses wait at a gate. It counts the requests.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Passes>, Condvar)>);

#[derive(Default)]
struct Passes {
    arrived: usize,
    /// How many of `/wait`, and of `/deaf`, may still pass.
    wait: usize,
    deaf: usize,
}

impl Gate {
    fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let gate = Self::default();
        let serving = gate.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.answer(stream));
            }
        });
        (gate, address)
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        let is_deaf = lines.next()?.ok()?.contains("/deaf");
        while !lines.next()?.ok()?.is_empty() {}
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").ok()?;
        let (passes, changed) = &*self.0;
        let mut passes = passes.lock().expect("no panic");
        passes.arrived += 1;
        loop {
            let left = if is_deaf { &mut passes.deaf } else { &mut passes.wait };
            if *left > 0 {
                *left -= 1;
                return Some(());
            }
            stream.write_all(b".").ok()?;
            passes = changed.wait_timeout(passes, DRIP).expect("no panic").0;
        }
    }

    fn open(&self, change: impl FnOnce(&mut Passes)) {
        change(&mut self.0.0.lock().expect("no panic"));
        self.0.1.notify_all();
    }

    fn arrived(&self) -> usize {
        self.0.0.lock().expect("no panic").arrived
    }
}

fn count(place: &Place, condition: &str) -> usize {
    let found = rows(place, &format!("SELECT count(*) AS n FROM tasks WHERE {condition}"));
    usize::try_from(found[0]["n"].as_u64().expect("a number")).expect("it is small")
}

fn drains(isolation: &str, running: usize) {
    let (gate, address) = Gate::start();
    let place = Place::new();
    place.write(
        "ostler.toml",
        format!(
            "name = \"anna\"\nshutdown_timeout = \"5m\"\n[lease]\nttl = \"60s\"\nheartbeat = \"200ms\"\npoll = \"200ms\"\n\
             [pool.functions]\nexecutor = \"isolate\"\nscripts = \"functions\"\nfetch = [\"{address}\"]\n\
             isolation = \"{isolation}\"\nmin_workers = 0\nmax_workers = {running}\ntimeout = \"5m\"\n\
             retry = {{ attempts = 1 }}\n"
        ),
    );
    std::fs::create_dir(place.folder().join("functions")).expect("a folder");
    place.write("functions/wait.js", WAIT);
    place.write("functions/deaf.js", DEAF);
    let line = |kind: &str| {
        format!(
            "{{\"queue\":\"functions\",\"kind\":\"{kind}\",\"payload\":{{\"url\":\"http://{address}\"}}}}\n"
        )
    };
    let queued = running * QUEUED_PER_RUNNING;
    let lines = line("deaf") + &line("wait").repeat(running - 1 + queued);
    let ran = place.run_with(["submit", "--jsonl", "-"], lines.as_bytes());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let node = Running::start(place.command(["up"]));
    until("all workers are busy", || (gate.arrived() == running).then_some(()));

    // It refuses: what ends is not followed by anything.
    place.done(["drain", "anna"]);
    node.says("drain requested");
    gate.open(|passes| passes.wait = LET_THROUGH);
    until("some have ended", || (count(&place, "state = 'completed'") == LET_THROUGH).then_some(()));
    assert_eq!(gate.arrived(), running, "nothing starts during a drain");

    // It is taken back: the next ones start, while the others still run.
    place.done(["resume", "--node", "anna"]);
    node.says("the drain was taken back");
    let begun = running + LET_THROUGH;
    until("all workers are busy again", || (gate.arrived() == begun).then_some(()));

    // One task cannot be interrupted. Its limit ends it, and the drain waits for the others.
    node.signal(ProcessSignal::TERM);
    node.says(&format!("waiting up to 5m for {running} running tasks"));
    gate.open(|passes| passes.deaf = 1);
    until("the deaf one has failed", || (count(&place, "state = 'failed'") == 1).then_some(()));
    assert_eq!(count(&place, "state = 'running'"), running - 1, "the others run on");
    gate.open(|passes| passes.wait = running);
    node.says(&format!("{running} tasks finished while it drained, 0 returned"));
    assert_eq!(node.end().0, Some(0), "no thread keeps the program");
    assert_eq!(gate.arrived(), begun);
    assert_eq!(count(&place, "state = 'completed'"), begun - 1);
    assert_eq!(
        count(&place, "state = 'queued' AND runs = 0"),
        queued - LET_THROUGH,
        "as if nothing had happened"
    );
}

#[test]
fn a_full_pool_on_threads_drains_and_is_taken_back() {
    drains("thread", MANY);
}

#[test]
fn a_full_pool_of_hosts_drains_and_is_taken_back() {
    drains("process", if std::env::var_os("OSTLER_ROUNDS").is_some() { MANY } else { FEW });
}
