//! JSON lines of `ostler submit --jsonl`: one task each, with the options of `ostler submit` as fields.

use ostler_wire::input::{TaskInput, object};

/// A fault of a text that is one line, whose number the caller knows.
fn at_column(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let place = format!(" at line {} column {column}", error.line());
    text.strip_suffix(&place).map_or(text.clone(), |what| format!("{what} at column {column}"))
}

/// Parses a line; queue and kind are those of the arguments where the line has none.
pub(crate) fn parse(text: &str, queue: Option<&str>, kind: Option<&str>) -> Result<TaskInput, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = object(&mut reader).and_then(|line| reader.end().map(|()| line));
    let mut line: TaskInput = read.map_err(|error| at_column(&error))?;
    let named = |name: &str, given: Option<String>, default: Option<&str>| {
        let missing = || format!("{name} is missing, here and in the arguments");
        given.or_else(|| default.map(str::to_owned)).ok_or_else(missing)
    };
    line.queue = Some(named("queue", line.queue, queue)?);
    line.kind = Some(named("kind", line.kind, kind)?);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_line_says_wins_over_the_arguments() {
        let line = parse("{\"kind\":\"b\",\"payload\":{\"a\": 1.10}}", Some("q"), Some("a")).expect("a task");
        let payload = line.payload.as_ref().map(|payload| payload.get());
        assert_eq!(
            (line.queue.as_deref(), line.kind.as_deref(), payload),
            (Some("q"), Some("b"), Some("{\"a\": 1.10}"))
        );
        assert_eq!(
            parse("{\"queue\":\"q\"}", None, None).map(|_| ()),
            Err("kind is missing, here and in the arguments".to_owned())
        );
        for list in ["[1]", "[\"q\",\"k\"]"] {
            assert!(parse(list, None, None).is_err_and(|sentence| sentence.contains("an object")), "{list}");
        }
    }
}
