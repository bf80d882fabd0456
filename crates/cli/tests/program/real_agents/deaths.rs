//! Deaths of the node in the middle of a job: each item is asked once, but for those in flight, and no transcript is lost.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use ostler_testkit::ProcessSignal;

use super::site::{Agent, Site, items};
use super::{first_seed, in_time, pause, rounds};
use crate::ostler::{Place, Running};

const WORKERS: usize = 8;
/// What the server answers to each item.
const ANSWER: &str = "word0 word1 word2";

/// What a death in the middle of a job did.
struct DeathAtHalf {
    /// Items that were asked and not done.
    in_flight: usize,
    /// Items that were asked twice: some of those in flight.
    asked_twice: usize,
    requests: usize,
    took: Duration,
}

/// Kills a node when half of the items were asked, and another one does the rest.
fn die_at_half(agent: Agent, count: u64, seed: u64) -> Option<DeathAtHalf> {
    let lines = format!("max_workers = {WORKERS}\nstagger = \"1ms\"\nretry = {{ attempts = 1 }}");
    let site = Site::new(&[(agent, &lines)])?;
    let prompt = "[[item {{ item }}]][[words 3 0.1]] Say some words.";
    let began = Instant::now();
    let node = site.up();
    let at_once = format!("-j{WORKERS}");
    let job = site.detach(agent, &[at_once.as_str()], prompt, &items("i", count));
    // A seed is a moment: after this request, and a while.
    let nth = usize::try_from(count / 2 + seed % 4).expect("it is small");
    in_time("half of them were asked", || (site.llm.requests().len() >= nth).then_some(()));
    pause(Duration::from_millis(seed * 97 % 1_000));
    node.signal(ProcessSignal::KILL);
    drop(node);
    in_time("the agents died with the node", || site.processes().is_empty().then_some(()));
    let results = site.results(&job);
    let is_done: BTreeSet<&str> = results
        .iter()
        .filter(|one| one["state"] == "completed")
        .map(|one| one["item"].as_str().expect("a text"))
        .collect();
    let before = site.llm.requests();
    let in_flight: BTreeSet<&str> =
        before.iter().map(|request| request.item.as_str()).filter(|item| !is_done.contains(item)).collect();
    assert!(in_flight.len() <= WORKERS, "{in_flight:?}");
    let _node = site.up();
    site.all_done(&job);
    let took = began.elapsed();
    let all = site.llm.requests();
    let mut asked_twice = 0;
    let results = site.results(&job);
    assert_eq!(results.len() as u64, count, "seed {seed}: no item is lost");
    for result in results {
        let item = result["item"].as_str().expect("a text");
        let asked = all.iter().filter(|request| request.item == item).count();
        let most = if in_flight.contains(item) { 2 } else { 1 };
        assert!((1..=most).contains(&asked), "seed {seed}: {item} is asked for {asked} times");
        assert_eq!(result["output"].as_str().map(str::trim), Some(ANSWER), "seed {seed}: {result}");
        asked_twice += usize::from(asked == 2);
    }
    has_transcripts(&site.place, count);
    Some(DeathAtHalf { in_flight: in_flight.len(), asked_twice, requests: all.len(), took })
}

/// Each attempt that got as far as a session has its prompt, and each task its answer. All of it is read at once: a look at each task
/// would be a process of its own.
fn has_transcripts(place: &Place, count: u64) {
    let query = format!(
        "SELECT (SELECT count(*) FROM conversation WHERE session IS NOT NULL AND prompt IS NULL), \
         (SELECT count(DISTINCT task) FROM event WHERE text LIKE '{ANSWER}%')"
    );
    let read = Command::new("sqlite3").arg("-readonly").arg(place.store()).arg(query).output();
    let read = String::from_utf8(read.expect("there is sqlite3").stdout).expect("text");
    assert_eq!(read.trim(), format!("0|{count}"), "attempts without a prompt, and tasks with an answer");
}

#[test]
fn claude_asks_once_for_each_item_but_for_those_in_flight_at_the_death_of_the_node() {
    die_again_and_again(Agent::Claude);
}

#[test]
fn codex_asks_once_for_each_item_but_for_those_in_flight_at_the_death_of_the_node() {
    die_again_and_again(Agent::Codex);
}

fn die_again_and_again(agent: Agent) {
    let (count, seeds) = rounds().map_or((20, 1), |rounds| (200, rounds));
    let first = first_seed();
    for seed in first..first + seeds {
        let Some(death) = die_at_half(agent, count, seed) else { return };
        if rounds().is_some() {
            let DeathAtHalf { in_flight, asked_twice, requests, took } = death;
            println!(
                "{}, seed {seed}: {count} items, {in_flight} in flight at the death, {requests} requests, {asked_twice} items asked \
                 twice, 0 lost, {} s",
                agent.name(),
                took.as_secs()
            );
        }
    }
}

/// Writes a line every 20 ms, and the time of each into a file.
const WRITER: &str = r#"
import sys, time
sys.stdin.read()
for number in range(100000):
    with open("written", "a") as log:
        log.write(f"{number} {time.time()}\n")
    print(f"line {number}", flush=True)
    time.sleep(0.02)
"#;

#[test]
fn what_an_agent_wrote_a_second_before_the_death_of_its_node_is_in_the_transcript() {
    let place = Place::new();
    let script = place.write("writer.py", WRITER);
    let config = format!(
        "[lease]\nttl = \"5s\"\nheartbeat = \"200ms\"\npoll = \"200ms\"\n[pool.writers]\nexecutor = \"agent\"\nagent = \"command\"\n\
         command = [\"python3\", \"{}\"]\nretry = {{ attempts = 1 }}\n",
        script.display()
    );
    place.write("ostler.toml", config);
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let id = place.done(["submit", "writers", "write", "--payload", "\"go\""]).trim().to_owned();
    let written = || {
        let text = std::fs::read_to_string(place.folder().join("written")).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(number, at)| (number.to_owned(), at.parse().expect("a time")))
            .collect::<Vec<(String, f64)>>()
    };
    in_time("it has written for some seconds", || (written().len() >= 150).then_some(()));
    node.signal(ProcessSignal::KILL);
    drop(node);
    let all = written();
    let last = all.last().expect("it has written").1;
    let shown = place.done(["logs", &id]);
    let stored: BTreeSet<&str> = shown.lines().collect();
    for (number, at) in &all {
        if *at <= last - 1.0 {
            assert!(
                stored.contains(format!("[assistant] line {number}").as_str()),
                "line {number} of {} is lost",
                all.len()
            );
        }
    }
}
