//! JSON lines of `ostler submit --jsonl`: one task each, with the options of `ostler submit` as fields.

use std::fmt::Display;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::plans::Plans;
use super::tasks::TaskOptions;
use super::values;

/// A line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    queue: Option<String>,
    kind: Option<String>,
    payload: Option<Box<RawValue>>,
    priority: Option<i64>,
    #[serde(rename = "in")]
    delay: Option<String>,
    at: Option<String>,
    id: Option<String>,
    key: Option<String>,
    timeout: Option<String>,
    attempts: Option<u64>,
    folder: Option<String>,
    not_after: Option<String>,
    limit_key: Option<String>,
    cost: Option<u64>,
    key_for: Option<String>,
    key_until: Option<String>,
    if_taken: Option<String>,
    #[serde(default)]
    after: Vec<String>,
    if_failed: Option<String>,
    deadline: Option<String>,
}

/// A task of a line.
pub(crate) struct TaskLine {
    pub(crate) queue: String,
    pub(crate) kind: String,
    /// JSON text.
    pub(crate) payload: String,
    pub(crate) options: TaskOptions,
}

/// Parses a line; queue and kind are those of the arguments where the line has none.
pub(crate) fn parse(text: &str, queue: Option<&str>, kind: Option<&str>) -> Result<TaskLine, String> {
    let line: RawLine = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if line.key.is_none() {
        let of_a_key = [
            ("key_for", line.key_for.is_some()),
            ("key_until", line.key_until.is_some()),
            ("if_taken", line.if_taken.is_some()),
        ];
        if let Some((field, _)) = of_a_key.into_iter().find(|(_, given)| *given) {
            return Err(format!("{field} needs a key"));
        }
    }
    if line.if_failed.is_some() && line.after.is_empty() {
        return Err("if_failed needs tasks in after".to_owned());
    }
    for (one, other, both) in [
        ("in", "at", line.delay.is_some() && line.at.is_some()),
        ("key_for", "key_until", line.key_for.is_some() && line.key_until.is_some()),
    ] {
        if both {
            return Err(format!("{one} and {other} exclude each other"));
        }
    }
    let after: Result<Vec<_>, String> =
        line.after.iter().map(|id| field("after", id, values::task)).collect();
    let plans = Plans {
        key_for: read("key_for", line.key_for, values::duration)?,
        key_until: read("key_until", line.key_until, values::key_hold)?,
        if_taken: read("if_taken", line.if_taken, values::on_conflict)?,
        after: after?,
        if_failed: read("if_failed", line.if_failed, values::on_failed)?,
        deadline: read("deadline", line.deadline, values::duration)?,
    };
    let options = TaskOptions {
        payload: None,
        priority: read("priority", line.priority, values::priority)?,
        delay: read("in", line.delay, values::duration)?,
        at: read("at", line.at, values::moment)?,
        id: read("id", line.id, values::id)?,
        key: line.key,
        timeout: read("timeout", line.timeout, values::duration)?,
        attempts: read("attempts", line.attempts, values::attempts)?,
        folder: line.folder.map(Into::into),
        not_after: read("not_after", line.not_after, values::moment)?,
        limit_key: line.limit_key,
        cost: read("cost", line.cost, super::limits::cost)?,
        plans,
    };
    let named = |name: &str, given: Option<String>, default: Option<&str>| {
        let missing = || format!("{name} is missing, here and in the arguments");
        given.or_else(|| default.map(str::to_owned)).ok_or_else(missing)
    };
    Ok(TaskLine {
        queue: field("queue", &named("queue", line.queue, queue)?, values::queue)?,
        kind: field("kind", &named("kind", line.kind, kind)?, values::kind)?,
        payload: line.payload.map_or_else(|| "null".to_owned(), |payload| payload.get().to_owned()),
        options,
    })
}

/// Reads a value as the command line does.
fn read<T>(
    name: &str,
    value: Option<impl Display>,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    value.map(|value| field(name, &value.to_string(), parse)).transpose()
}

fn field<T>(name: &str, text: &str, parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    parse(text).map_err(|error| if error.starts_with(name) { error } else { format!("{name}: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse(text, None, None).err().unwrap_or_else(|| panic!("{text} is refused"))
    }

    #[test]
    fn a_line_is_refused_with_the_field_that_is_wrong() {
        for (text, part) in [
            ("[1]", "invalid type"),
            ("{\"queue\":\"q\"}", "kind is missing"),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"prio\":1}", "unknown field `prio`"),
            (
                "{\"queue\":\"q\",\"kind\":\"k\",\"priority\":101}",
                "priority: expected a whole number from -100",
            ),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"id\":\"7\"}", "id: \"7\" is not an id"),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"in\":\"soon\"}", "in: "),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"in\":\"1s\",\"at\":\"2999-01-01T00:00:00Z\"}", "exclude"),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"if_taken\":\"keep\"}", "if_taken needs a key"),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"key\":\"a\",\"key_until\":\"x\"}", "removed, end"),
            ("{\"queue\":\"q\",\"kind\":\"k\",\"if_failed\":\"run\"}", "if_failed needs"),
            ("{\"queue\":\"\",\"kind\":\"k\"}", "queue"),
        ] {
            assert!(wrong(text).contains(part), "{text}: {}", wrong(text));
        }
    }

    #[test]
    fn what_a_line_says_wins_over_the_arguments() {
        let line = parse("{\"kind\":\"b\",\"payload\":{\"a\": 1.10}}", Some("q"), Some("a")).expect("a task");
        assert_eq!(
            (line.queue.as_str(), line.kind.as_str(), line.payload.as_str()),
            ("q", "b", "{\"a\": 1.10}")
        );
    }
}
