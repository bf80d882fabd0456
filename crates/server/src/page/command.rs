//! The command line that does what a button does, filled in with the fields of its form.

use super::forms::FormFields;
use crate::operations::Operation;

/// The longest payload that is written into a command line; a longer one is read from standard input.
const MAX_SHOWN_PAYLOAD: usize = 200;
/// Ids in one command line.
const MAX_SHOWN_IDS: usize = 5;

/// The command line.
pub(super) fn command_line(operation: &Operation, fields: &FormFields) -> String {
    let mut words: Vec<String> = match operation.id {
        "tasks.act" => return bulk(fields),
        "pools.recycle" if fields.get("t:all").is_some() => words_of("ostler recycle --all POOL"),
        "pools.recycle" => words_of("ostler recycle --any POOL"),
        "tasks.action.stop" => return String::new(),
        _ => words_of(operation.command),
    };
    let mut at = 0;
    while at < words.len() {
        let values = placeholder(&words[at], fields);
        if values.is_empty() {
            at += 1;
        } else {
            let count = values.len();
            words.splice(at..=at, values);
            at += count;
        }
    }
    for (name, option) in [
        ("s:key", "--key"),
        ("s:reason", "--reason"),
        ("s:for", "--for"),
        ("s:max_cost", "--max-cost"),
        ("t:from_scratch", "--from-scratch"),
        ("t:again", "--again"),
        ("n:attempts", "--attempts"),
        ("s:timeout", "--timeout"),
        ("n:concurrency", "--concurrency"),
        ("n:key_concurrency", "--key-concurrency"),
        ("l:rate", "--rate"),
        ("l:key_rate", "--key-rate"),
        ("s:budget", "--budget"),
        ("s:budget_per_day", "--budget-per-day"),
        ("s:cron", "--cron"),
        ("s:every", "--every"),
        ("s:timezone", "--timezone"),
    ] {
        for value in fields.all(name) {
            words.push(option.to_owned());
            if !name.starts_with("t:") {
                words.push(word(value));
            }
        }
    }
    if let Some(payload) = fields.get("j:payload") {
        words.push("--payload".to_owned());
        words.push(if payload.len() > MAX_SHOWN_PAYLOAD { "-".to_owned() } else { word(payload) });
    }
    words.join(" ")
}

fn words_of(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

/// What stands for a word in capitals.
fn placeholder(word_in_capitals: &str, fields: &FormFields) -> Vec<String> {
    let names: &[&str] = match word_in_capitals {
        "ID" => &["p:id"],
        "JOB" => &["p:job"],
        "QUEUE" => &["p:queue", "s:queue"],
        "KIND" => &["s:kind"],
        "NODE" => &["p:node"],
        "WORKER" => &["p:worker"],
        "POOL" => &["p:pool"],
        "NAME" => &["p:account", "p:name", "p:subscriber"],
        "MIN" => &["n:min"],
        "MAX" => &["n:max"],
        "N" => &["n:items", "s:most"],
        "TEXT" => &["s:prompt"],
        _ => return Vec::new(),
    };
    let all: Vec<&str> = names.iter().flat_map(|name| fields.all(name)).collect();
    let mut shown: Vec<String> = all.iter().take(MAX_SHOWN_IDS).map(|value| word(value)).collect();
    if all.len() > MAX_SHOWN_IDS {
        shown.push(format!("… ({} in all)", all.len()));
    }
    shown
}

/// The command for all tasks that match.
fn bulk(fields: &FormFields) -> String {
    let (command, of_letters) = match fields.get("s:action").unwrap_or_default() {
        "replay" => ("ostler dead replay", true),
        "drop" => ("ostler dead drop", true),
        "retry" => ("ostler retry", false),
        _ => ("ostler cancel", false),
    };
    let mut words = vec![command.to_owned()];
    for (name, value) in &fields.0 {
        let Some(field) = name.strip_prefix("f:").filter(|_| !value.is_empty()) else { continue };
        // Dead letters are all failed.
        if of_letters && field == "state" {
            continue;
        }
        words.push(format!("--{}", field.replace('_', "-")));
        if field != "stale" {
            words.push(word(value));
        }
    }
    // Without a filter the program wants to be told that all are meant.
    if of_letters && words.len() == 1 {
        words.push("--all".to_owned());
    }
    words.join(" ")
}

/// A text as one word of a command line.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@,=".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::OPERATIONS;

    fn line(id: &str, pairs: &[(&str, &str)]) -> String {
        let operation = OPERATIONS.iter().find(|row| row.id == id).expect("a row of the table");
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        command_line(operation, &FormFields(pairs.collect()))
    }

    #[test]
    fn a_button_has_its_command() {
        assert_eq!(line("tasks.cancel", &[("p:id", "01J")]), "ostler cancel 01J");
        assert_eq!(line("queues.resume", &[("p:queue", "old mail")]), "ostler resume 'old mail'");
        assert_eq!(
            line("pools.resize", &[("p:pool", "p"), ("n:min", "1"), ("n:max", "4")]),
            "ostler resize p 1 4"
        );
        assert_eq!(
            line(
                "tasks.act",
                &[("s:action", "replay"), ("f:queue", "q"), ("f:text", "it's"), ("f:kind", "")]
            ),
            r"ostler dead replay --queue q --text 'it'\''s'"
        );
        assert_eq!(
            line(
                "tasks.act",
                &[("s:action", "drop"), ("f:state", "failed"), ("f:ended_until", "2026-11-01T00:00:00Z")]
            ),
            "ostler dead drop --ended-until 2026-11-01T00:00:00Z"
        );
        assert_eq!(
            line("tasks.act", &[("s:action", "drop"), ("f:state", "failed")]),
            "ostler dead drop --all"
        );
        assert_eq!(
            line("dead.replay", &[("p:id", "01J"), ("j:payload", "{}")]),
            "ostler dead replay 01J --payload '{}'"
        );
        let nightly =
            [("p:name", "nightly"), ("s:queue", "reports"), ("s:kind", "report"), ("s:cron", "0 3 * * *")];
        assert_eq!(
            line("schedules.put", &nightly),
            "ostler schedule add nightly reports report --cron '0 3 * * *'"
        );
        assert_eq!(
            line("breakers.reset", &[("p:queue", "q"), ("s:key", "k")]),
            "ostler breaker reset q --key k"
        );
    }
}
