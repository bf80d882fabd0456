//! Hosts of functions that are killed at random, while steps of their tasks have effects elsewhere: nothing is lost, and an effect happens
//! twice only where the attempt that had it died before its step was kept.
//!
//! `OSTLER_ROUNDS=500 ./test -p ostler-cli -- function_kills --nocapture` kills that many hosts of each engine, and prints what it has
//! counted.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ostler_testkit::MAX_WAIT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::ostler::{Place, Running};

/// Kills of the short test.
const KILLS: usize = 10;
/// The test submits a batch of this many tasks whenever fewer are open.
const TASKS: usize = 20;
/// The longest time between two kills, in milliseconds.
const LONGEST_PAUSE_MS: u64 = 60;
/// The longest time that a round may take on a busy machine.
const LONGEST_ROUND: Duration = Duration::from_secs(2);
/// Steps of a task.
const STEPS: [&str; 3] = ["a", "b", "c"];

const FUNCTION: &str = r#"
export default async ({ url }, ctx) => {
  const attempts = [];
  for (const name of ["a", "b", "c"]) {
    attempts.push(await ctx.step(name, async () => {
      const response = await fetch(`${url}/${ctx.task}/${name}/${ctx.attempt}`);
      await response.text();
      await new Promise((resolve) => setTimeout(resolve, 5)); // the effect is there, and the step is not kept yet
      return ctx.attempt;
    }));
  }
  return attempts;
};
"#;

/// A server that counts: the attempts by which each step of each task was seen.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Effects>>);

/// The attempts that had an effect, by task and step.
type Effects = HashMap<(String, String), Vec<u32>>;

impl Counter {
    fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let counter = Self::default();
        let counting = counter.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counting = counting.clone();
                std::thread::spawn(move || counting.answer(stream));
            }
        });
        (counter, address)
    }

    /// Counts a request when its head is complete. A client may be gone by then.
    fn answer(&self, stream: TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        let first = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let mut parts = first.split(' ').nth(1)?.split('/').skip(1);
        let (task, step, attempt) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
        let key = (task.to_owned(), step.to_owned());
        self.0.lock().expect("no panic").entry(key).or_default().push(attempt);
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").ok()
    }
}

/// Pids of the hosts of a node that are in their sandbox, and so ready: grandchildren of it, below its supervisor. A queue whose hosts die
/// at their start is paused.
fn hosts(node: u32) -> Vec<i32> {
    // Of each thread, since any may have started a child.
    let children = |pid: u32| {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists =
            threads.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        let text: String = lists.map(|list| list + " ").collect();
        text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    let is_host = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("isolate-host") && status.contains("Seccomp:\t2")
    };
    let grandchildren = children(node).into_iter().flat_map(children);
    grandchildren.filter(is_host).filter_map(|pid| i32::try_from(pid).ok()).collect()
}

/// A small generator: the pauses between kills, and who is next.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Rows of a query, as JSON.
pub(crate) fn rows(place: &Place, query: &str) -> Vec<Value> {
    let done = Command::new("sqlite3").args(["-readonly", "-json"]).arg(place.store()).arg(query).output();
    let done = done.expect("sqlite3 runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    if done.stdout.is_empty() { Vec::new() } else { serde_json::from_slice(&done.stdout).expect("JSON") }
}

fn unfinished(place: &Place) -> u64 {
    let open = rows(place, "SELECT count(*) AS n FROM tasks WHERE state NOT IN ('completed', 'failed')");
    open[0]["n"].as_u64().expect("a number")
}

on_each_engine!(steps_of_killed_hosts_are_neither_lost_nor_repeated_without_a_death);

fn steps_of_killed_hosts_are_neither_lost_nor_repeated_without_a_death(engine: &str) {
    let kills = std::env::var("OSTLER_ROUNDS").map_or(KILLS, |text| text.parse().expect("a number"));
    let (counter, address) = Counter::start();
    let place = Place::new();
    place.write(
        "ostler.toml",
        format!(
            "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.functions]\nexecutor = \"isolate\"\n\
             engine = \"{engine}\"\nscripts = \"functions\"\nfetch = [\"{address}\"]\nmin_workers = 2\nmax_workers = 2\n\
             retry = {{ base = \"10ms\", max = \"20ms\", attempts = 1000, max_crashes = 1000 }}\n"
        ),
    );
    std::fs::create_dir(place.folder().join("functions")).expect("a folder");
    place.write("functions/visit.js", FUNCTION);
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let line = format!(
        "{{\"queue\":\"functions\",\"kind\":\"visit\",\"payload\":{{\"url\":\"http://{address}\"}}}}\n"
    );
    let submit = || {
        let ran = place.run_with(["submit", "--jsonl", "-"], line.repeat(TASKS).as_bytes());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        TASKS
    };
    let mut tasks = submit();

    let (mut draw, mut killed, began) = (Draw(17), 0, Instant::now());
    while killed < kills {
        assert!(began.elapsed() < MAX_WAIT + LONGEST_ROUND * u32::try_from(kills).expect("it is small"));
        if unfinished(&place) < TASKS as u64 {
            tasks += submit();
        }
        let pause = Duration::from_millis(draw.next(LONGEST_PAUSE_MS));
        // Not a wait for something: the moment of the kill is what the test draws.
        std::thread::park_timeout(pause);
        let hosts = hosts(node.pid());
        if hosts.is_empty() {
            continue;
        }
        let chosen = hosts[usize::try_from(draw.next(hosts.len() as u64)).expect("it is small")];
        let pid = Pid::from_raw(chosen).expect("a pid");
        killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
    }
    let bound = Instant::now() + MAX_WAIT.max(began.elapsed());
    while unfinished(&place) > 0 {
        assert!(Instant::now() < bound, "{} tasks are not done", unfinished(&place));
        std::thread::park_timeout(Duration::from_millis(50));
    }

    let seen = counter.0.lock().expect("no panic");
    let done = rows(&place, "SELECT id, state, output FROM tasks");
    assert_eq!(done.len(), tasks);
    let ended: BTreeMap<(String, u64), String> = rows(&place, "SELECT task, number, state FROM attempts")
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().expect("a text").to_owned();
            ((text("task"), row["number"].as_u64().expect("a number")), text("state"))
        })
        .collect();
    let (mut effects, mut repeated) = (0, 0);
    for row in &done {
        let id = row["id"].as_str().expect("an id");
        assert_eq!(row["state"], "completed", "{row}");
        let kept: Vec<u32> = serde_json::from_str(row["output"].as_str().expect("a text")).expect("numbers");
        for (step, kept) in STEPS.iter().zip(kept) {
            let mut attempts = seen[&(id.to_owned(), (*step).to_owned())].clone();
            effects += attempts.len();
            assert_eq!(attempts.pop(), Some(kept), "{id}, {step}: the effect that was kept is the last one");
            repeated += attempts.len();
            for attempt in attempts {
                assert!(attempt < kept, "{id}, {step}: twice in one attempt");
                let state = &ended[&(id.to_owned(), u64::from(attempt))];
                assert_ne!(
                    state, "completed",
                    "{id}, {step}: repeated, though attempt {attempt} did not die"
                );
            }
        }
    }
    let crashes = ended.values().filter(|state| *state != "completed").count();
    println!(
        "{engine}: {killed} hosts killed in {:?}: {tasks} tasks, 0 lost; {effects} effects of {} steps, {repeated} repeated; {crashes} attempts died",
        began.elapsed(),
        tasks * STEPS.len()
    );
    assert!(crashes > 0 && repeated <= crashes, "{crashes} attempts died");
}
