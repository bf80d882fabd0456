//! Compares every cell of the table in the guide to failures with `decide`.

use std::time::Duration;

use ostler_core::{
    Backoff, CancelReason, Effect, Ending, ErrorClass, Facts, FailReason, Failure, Id, Jitter, LeasePhase,
    Next, Outcome, Policy, RetryPolicy, TaskId, Timestamp, decide,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const BASE: Duration = Duration::from_secs(10);
/// The retry time of a rate limit in this test: longer than any backoff here.
const ASKED: Duration = Duration::from_secs(90);
const HEAD: [&str; 8] =
    ["class", "where it comes from", "then", "a failure?", "wait", "one too many", "breaker", "queue"];

/// The rows of the table, cell by cell, without the backticks around the class.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let inside = line.trim().trim_start_matches('|').trim_end_matches('|');
        inside.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let table: Vec<Vec<String>> = page
        .lines()
        .skip_while(|line| !line.starts_with("| class |"))
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect();
    assert_eq!(table[0], HEAD, "the table has these columns");
    table[2..].to_vec()
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/failures.md");
    std::fs::read_to_string(path).expect("the guide is there")
}

fn policy() -> Policy {
    let retry = RetryPolicy {
        attempts: 5,
        backoff: Backoff::Exponential,
        base: BASE,
        max: Duration::from_secs(3_600),
        jitter: Jitter::Off,
    };
    Policy { retry, ..Policy::default() }
}

fn fresh() -> Facts {
    Facts {
        id: TaskId(Id::from_bits(7)),
        phase: LeasePhase::Running,
        failures: 0,
        crashes: 0,
        node_deaths: 0,
        cancel_requested: false,
        not_after: None,
        deadline: None,
    }
}

/// A task that has one attempt, crash and node death left.
fn last() -> Facts {
    let Policy { retry, max_crashes, max_node_deaths, .. } = policy();
    let (failures, crashes, node_deaths) = (retry.attempts - 1, max_crashes - 1, max_node_deaths - 1);
    Facts { failures, crashes, node_deaths, ..fresh() }
}

fn outcome(name: &str) -> Outcome {
    match Ending::named(name).unwrap_or_else(|| panic!("no attempt ends as {name}")) {
        Ending::Success => Outcome::Success,
        Ending::NodeDied => Outcome::NodeDied,
        Ending::HandedBack => Outcome::HandedBack,
        Ending::Cancelled => Outcome::Cancelled,
        Ending::Failed(class @ (ErrorClass::RateLimited | ErrorClass::UsageLimit)) => {
            let failure = Failure::new(class, "slower");
            Outcome::Failed(Failure { retry_after: Some(ASKED), ..failure })
        }
        Ending::Failed(class) => Outcome::Failed(Failure::new(class, "it broke")),
    }
}

fn place(next: &Next) -> String {
    match next {
        Next::Queue { why, .. } => format!("queued ({})", why.name()),
        Next::Complete => "completed".to_owned(),
        Next::Fail(reason) => format!("failed ({})", FailReason::name(*reason)),
        Next::Cancel(reason) => format!("cancelled ({})", CancelReason::name(*reason)),
    }
}

fn wait(next: &Next) -> &'static str {
    match next {
        Next::Queue { run_at, .. } if *run_at == NOW.after(BASE) => "backoff",
        Next::Queue { run_at, .. } if *run_at == NOW.after(ASKED) => "until then",
        Next::Queue { run_at, .. } => {
            assert_eq!(*run_at, NOW);
            "–"
        }
        Next::Complete | Next::Fail(_) | Next::Cancel(_) => "–",
    }
}

/// The decision in the words of the table: all cells but the one that names the source of the class.
fn decided(name: &str) -> [String; 7] {
    let (outcome, policy) = (outcome(name), policy());
    let first = decide(&fresh(), &outcome, &policy, NOW);
    let end = decide(&last(), &outcome, &policy, NOW);
    let (breaker, queue) = match first.effect {
        Effect::None => ("–", "–"),
        Effect::BreakerSuccess => ("closes it", "–"),
        Effect::BreakerFailure => ("counts it", "–"),
        Effect::HoldUntil(until) => {
            assert_eq!(until, NOW.after(ASKED));
            ("–", "held until then")
        }
        Effect::HoldAccount(until) => {
            assert_eq!(until, NOW.after(ASKED));
            ("–", "its account is held until then")
        }
        Effect::PauseQueue | Effect::PauseForBudget => ("–", "pauses"),
    };
    let failure = if first.failures > 0 { "yes" } else { "no" };
    [
        format!("`{name}`"),
        place(&first.next),
        failure.to_owned(),
        wait(&first.next).to_owned(),
        place(&end.next),
        breaker.to_owned(),
        queue.to_owned(),
    ]
}

/// The cells that differ from the rules.
fn wrong(rows: &[Vec<String>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        let said: Vec<&String> =
            row.iter().enumerate().filter(|(column, _)| *column != 1).map(|(_, cell)| cell).collect();
        let right = decided(row[0].trim_matches('`'));
        assert_eq!(said.len(), right.len(), "{row:?}");
        let differ = said.iter().zip(&right).filter(|(said, right)| *said != right);
        wrong.extend(differ.map(|(said, right)| format!("{}: \"{said}\" should be \"{right}\"", row[0])));
    }
    wrong
}

#[test]
fn every_cell_of_the_table_in_the_guide_is_what_the_rules_decide() {
    assert_eq!(wrong(&rows(&page())), Vec::<String>::new());
}

#[test]
fn every_way_to_end_has_a_row_and_says_where_it_comes_from() {
    let rows = rows(&page());
    let named: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    let mut all: Vec<&str> = ErrorClass::ALL.iter().map(|class| class.name()).collect();
    all.extend(["success", "node_died", "handed_back", "cancelled"]);
    let sorted = |mut names: Vec<&str>| -> Vec<String> {
        names.sort_unstable();
        names.into_iter().map(ToOwned::to_owned).collect()
    };
    assert_eq!(sorted(named), sorted(all));
    assert!(rows.iter().all(|row| row[1].len() > 10), "it says where it comes from");
}

#[test]
fn a_wrong_cell_is_noticed_wherever_it_stands() {
    let right = rows(&page());
    for (row, column) in (0..right.len()).flat_map(|row| (2..HEAD.len()).map(move |column| (row, column))) {
        let mut rows = right.clone();
        rows[row][column] = if rows[row][column] == "–" { "yes".to_owned() } else { "–".to_owned() };
        assert_eq!(wrong(&rows).len(), 1, "row {row}, column {column}");
    }
}
