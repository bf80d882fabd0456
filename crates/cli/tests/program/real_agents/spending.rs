//! Budgets of jobs of real agents, compared with what the server bills.

use std::time::Duration;

use ostler_testkit::ProcessSignal;

use super::site::{Agent, Site, items};
use super::{in_time, pause, rounds};
use crate::ostler::{Ran, Running, ran};

/// Tokens that cost ten cents.
const PROMPT: &str = "[[item {{ item }}]][[tokens 99985 3]][[words 2 0.1]] Say some words.";
/// In US dollars.
const DIME: f64 = 0.1;
/// Amounts differ by less than this.
const NOTHING: f64 = 1e-6;

impl Site {
    /// What the server bills, in US dollars.
    fn billed(&self) -> f64 {
        let answers = self.llm.requests().into_iter().filter_map(|request| request.answer);
        answers.map(|answer| (answer.input_tokens + 5 * answer.output_tokens) as f64 / 1e6).sum()
    }

    /// What the store has.
    fn spent(&self) -> f64 {
        self.place.json(["cost"])["total"]["cost_usd"].as_f64().expect("a number")
    }

    fn words<'a>(&self, agent: Agent, options: &[&'a str], items: &'a [String]) -> Vec<&'a str> {
        let words = ["map", "--name", "job", "--pool", agent.name(), "--kind", "ask", "--prompt", PROMPT];
        let items = items.iter().map(String::as_str);
        words.into_iter().chain(options.iter().copied()).chain([":::"]).chain(items).collect()
    }

    fn map(&self, words: &[&str]) -> Ran {
        ran(self.place.command(words).env("HOME", self.place.folder()))
    }
}

fn keep_to_the_budget(agent: Agent) {
    let Some(site) = Site::new(&[(agent, "stagger = \"50ms\"")]) else { return };
    let items = items("i", 50);
    let paused = site.map(&site.words(agent, &["-j8", "--max-cost", "1"], &items));
    assert_eq!(paused.code, Some(6), "{paused:?}");
    let billed = site.billed();
    assert!(billed <= 1.0 + DIME + NOTHING, "the server bills ${billed}");
    assert!(billed >= 1.0 - DIME, "the budget is used: ${billed}");
    assert!((site.spent() - billed).abs() < NOTHING, "{} and {billed}", site.spent());
    let job = site.place.json(["job", "show", "job"]);
    let over = job["budget"]["over_usd"].as_f64().expect("a number");
    assert!((over - (billed - 1.0).max(0.0)).abs() < NOTHING, "{job}");
    assert!(site.place.done(["job", "show", "job"]).contains("budget    $1.00: $1.00 spent"));
    let paused = site.map(&site.words(agent, &["-j8", "--max-cost", "2"], &items));
    assert_eq!(paused.code, Some(6), "{paused:?}");
    let billed = site.billed();
    assert!((2.0 - DIME..=2.0 + DIME + NOTHING).contains(&billed), "the server bills ${billed}");
    assert!((site.spent() - billed).abs() < NOTHING, "{} and {billed}", site.spent());
    assert_eq!(site.place.json(["job", "show", "job"])["tasks"]["completed"], 20);
}

#[test]
fn eight_codexes_spend_the_budget_of_their_job_and_the_server_bills_no_more() {
    keep_to_the_budget(Agent::Codex);
}

#[test]
fn eight_claudes_spend_the_budget_of_their_job_and_the_server_bills_no_more() {
    keep_to_the_budget(Agent::Claude);
}

/// Codex says what a conversation has cost since it began: what goes on with it counts only the difference.
#[test]
fn a_conversation_of_codex_that_goes_on_costs_what_the_server_bills() {
    let agent = Agent::Codex;
    let Some(site) = Site::new(&[(agent, "")]) else { return };
    let _node = site.up();
    let first = site.submit(agent, "[[item first]][[tokens 99985 3]] Say some words.");
    site.done(&first);
    let next = site.place.done(["continue", &first, "--prompt", "[[item second]] Say more."]);
    let next = site.done(next.trim());
    let asked = site.llm.of("second");
    assert!(asked.len() == 1 && asked[0].sha256.len() > 1, "the model has the history: {asked:?}");
    let cost = next["attempts"][0]["cost_usd"].as_f64().expect("a number");
    assert!((cost - DIME).abs() < NOTHING, "{next}");
    let (spent, billed) = (site.spent(), site.billed());
    assert!(
        (spent - billed).abs() < NOTHING && (billed - 2.0 * DIME).abs() < NOTHING,
        "${spent} and ${billed}"
    );
}

/// Items for each kill: more than are answered between two kills.
const ITEMS_FOR_A_KILL: u64 = 10;

/// Kills `ostler map` again and again: what the store has in the end is what the server bills, but for requests in flight.
fn killed_attempts_are_in_the_sum(agent: Agent, count: u64, kills: u64) {
    let Some(site) = Site::new(&[(agent, "stagger = \"50ms\"")]) else { return };
    let items = items("i", count);
    let words = site.words(agent, &["-j4"], &items);
    let mut in_flight = 0;
    for kill in 0..kills {
        let is_done = || site.place.json(["job", "show", "job"])["tasks"]["completed"] == count;
        assert!(
            kill == 0 || !is_done(),
            "{count} items are too few for {kills} kills: all were done after {kill}"
        );
        let before = site.llm.requests().len();
        let mut command = site.place.command(&words);
        command.env("HOME", site.place.folder());
        let mapper = Running::start(command);
        // A moment that differs from round to round.
        let more = 2 + usize::try_from(kill % 3).expect("it is small");
        in_time("it has asked", || (site.llm.requests().len() >= before + more).then_some(()));
        pause(Duration::from_millis(kill * 61 % 400));
        mapper.signal(ProcessSignal::KILL);
        drop(mapper);
        in_time("its agents died with it", || site.processes().is_empty().then_some(()));
        let done = site.place.json(["job", "show", "job"])["tasks"]["completed"].as_u64().expect("a number");
        let running = site.llm.requests().len() as u64 - done - in_flight;
        assert!(running <= 4, "{running} were in flight");
        in_flight += running;
    }
    assert_eq!(site.map(&words).code, Some(0));
    let (spent, billed) = (site.spent(), site.billed());
    assert!(
        (spent - billed).abs() <= DIME * in_flight as f64 + NOTHING,
        "${spent} and ${billed}, {in_flight} in flight"
    );
    let asked = site.llm.requests().len() as u64;
    assert!(
        asked <= count + in_flight,
        "{asked} requests for {count} items, {in_flight} in flight at a kill"
    );
    println!(
        "{}: {count} items, {kills} kills, {in_flight} in flight, {asked} requests: ${billed} billed, ${spent} stored",
        agent.name()
    );
}

#[test]
fn what_killed_claudes_had_spent_is_in_the_sum() {
    let (count, kills) = rounds().map_or((8, 2), |rounds| (ITEMS_FOR_A_KILL * rounds, rounds));
    killed_attempts_are_in_the_sum(Agent::Claude, count, kills);
}

#[test]
fn what_killed_codexes_had_spent_is_in_the_sum() {
    let (count, kills) = rounds().map_or((8, 2), |rounds| (ITEMS_FOR_A_KILL * rounds, rounds));
    killed_attempts_are_in_the_sum(Agent::Codex, count, kills);
}
