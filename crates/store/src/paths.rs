//! Payload paths: where a queue finds the limit key and the cost of a task that was enqueued without them.

use std::collections::BTreeMap;
use std::fmt;

use ostler_core::{KeyHold, cut};
use serde_json::value::RawValue;

use crate::bounds::MAX_KEY_BYTES;
use crate::calls::NewTask;
use crate::error::Error;
use crate::gates::MAX_COST;
use crate::views::QueueSettings;

/// Field names in one path.
pub const MAX_PATH_DEPTH: usize = 8;
/// Bytes of a path as written.
pub const MAX_PATH_BYTES: usize = 256;

/// The prefix of every path.
const ROOT: &str = "payload.";

/// A path in a payload, such as `payload.tenant` or `payload.user.plan`: field names from the outside in. It leads through
/// objects only; of a duplicate field the last one counts.
///
/// It is evaluated once, when a task is enqueued (or replaces another), and only if the task itself sets no
/// value. A replay keeps the task's key and cost, even with a new payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PayloadPath(Vec<String>);

impl PayloadPath {
    /// Parses `payload.a.b`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), with an example.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::invalid(format!("\"{}\" {why}", cut(text, MAX_PATH_BYTES)));
        if text.len() > MAX_PATH_BYTES {
            return Err(wrong(format!("has {} bytes, and a path has at most {MAX_PATH_BYTES}", text.len())));
        }
        let names: Vec<String> =
            text.strip_prefix(ROOT).unwrap_or_default().split('.').map(String::from).collect();
        if names.iter().any(|name| name.is_empty() || name.chars().any(char::is_control)) {
            return Err(wrong(
                "is no path into a payload: it looks like payload.tenant or payload.user.plan".to_owned(),
            ));
        }
        if names.len() > MAX_PATH_DEPTH {
            return Err(wrong(format!(
                "leads {} names deep, and at most {MAX_PATH_DEPTH} are taken",
                names.len()
            )));
        }
        Ok(Self(names))
    }

    /// The limit key at this path. A string is the key itself; a number, `true` and `false` are taken as written.
    /// With anything else (a missing field, `null`, an empty string, a list or an object) the task has no key. A key that is
    /// too long is truncated, so that it shares its limit with others of the same prefix rather than having none.
    #[must_use]
    pub fn key_in(&self, payload: &str) -> Option<String> {
        let text = self.scalar(payload)?.replace('\0', "\u{fffd}");
        (!text.is_empty()).then(|| cut(&text, MAX_KEY_BYTES))
    }

    /// The cost at this path: a number, or a string that is one, rounded up and clamped to between one and
    /// [`MAX_COST`]. `None`: there is no number.
    #[must_use]
    pub fn cost_in(&self, payload: &str) -> Option<u32> {
        let number: f64 = self.scalar(payload)?.trim().parse().ok()?;
        // Both bounds are 32-bit integers, and so is every rounded value between them.
        (!number.is_nan()).then(|| number.ceil().clamp(1.0, f64::from(MAX_COST)) as u32)
    }

    /// The text of the value at this path, if it is a scalar.
    fn scalar(&self, payload: &str) -> Option<String> {
        let mut here = payload;
        for name in &self.0 {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(here).ok()?;
            here = fields.get(name)?.get();
        }
        match here.as_bytes().first()? {
            b'"' => serde_json::from_str(here).ok(),
            b'{' | b'[' | b'n' => None,
            _ => Some(here.to_owned()),
        }
    }
}

impl fmt::Display for PayloadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ROOT}{}", self.0.join("."))
    }
}

impl QueueSettings {
    /// Whether payloads have to be read when tasks are enqueued.
    #[must_use]
    pub const fn reads_payloads(&self) -> bool {
        self.key_path.is_some() || self.cost_path.is_some()
    }

    /// Whether the queue decides anything of this task that it does not set itself.
    #[must_use]
    pub fn fills(&self, task: &NewTask) -> bool {
        let holds = self.key_hold != KeyHold::default();
        self.reads_payloads() || (holds && task.unique.as_ref().is_some_and(|unique| unique.hold.is_none()))
    }

    /// The task with the limit key and the cost from its payload, and the hold of its unique key, where it sets none itself.
    #[must_use]
    pub fn filled(&self, mut task: NewTask) -> NewTask {
        if let Some(unique) = &mut task.unique {
            unique.hold = unique.hold.or(Some(self.key_hold));
        }
        if let (None, Some(path)) = (&task.limit_key, &self.key_path) {
            task.limit_key = path.key_in(&task.payload);
        }
        if let (None, Some(path)) = (task.cost, &self.cost_path) {
            task.cost = path.cost_in(&task.payload);
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PayloadPath {
        PayloadPath::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_path_is_shown_as_it_was_written() {
        for text in
            ["payload.tenant", "payload.user.plan", "payload.a b.ä-1", "payload.0", "payload.a.b.c.d.e.f.g.h"]
        {
            assert_eq!(path(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_path_is_refused_with_one_that_would_be() {
        let (deep, long) = (format!("payload{}", ".a".repeat(9)), format!("payload.{}", "x".repeat(249)));
        for (text, sentence) in [
            ("", "such as"),
            ("tenant", ""),
            ("payload", ""),
            ("payload.", ""),
            ("payload..a", ""),
            ("payload.a.", ""),
            ("Payload.a", ""),
            ("payload.a\nb", ""),
            (&deep, "leads 9 names deep, and at most 8"),
            (&long, "has 257 bytes, and a path has at most 256"),
        ] {
            let error = PayloadPath::parse(text).expect_err(text).to_string();
            let sentence = if sentence.len() > 10 { sentence } else { "it looks like payload.tenant" };
            assert!(error.contains(sentence), "{text}: {error}");
        }
    }

    #[test]
    fn a_scalar_is_the_key_as_its_text() {
        for (payload, key) in [
            (r#"{"tenant":"acme"}"#, Some("acme")),
            (r#" { "x": [1, {"tenant": 2}], "tenant" : "a\u0063me" } "#, Some("acme")),
            (r#"{"tenant":17}"#, Some("17")),
            (r#"{"tenant":12345678901234567890123}"#, Some("12345678901234567890123")),
            (r#"{"tenant":-1.50e2}"#, Some("-1.50e2")),
            (r#"{"tenant":true}"#, Some("true")),
            (r#"{"tenant":"first","tenant":"last"}"#, Some("last")),
            (r#"{"tenant":"a\u0000b"}"#, Some("a\u{fffd}b")),
            (r#"{"tenant":null}"#, None),
            (r#"{"tenant":""}"#, None),
            (r#"{"tenant":["acme"]}"#, None),
            (r#"{"tenant":{"name":"acme"}}"#, None),
            (r#"{"Tenant":"acme"}"#, None),
            (r#"[{"tenant":"acme"}]"#, None),
            ("null", None),
            ("no JSON", None),
            ("", None),
        ] {
            assert_eq!(path("payload.tenant").key_in(payload).as_deref(), key, "{payload}");
        }
        assert_eq!(path("payload.a.b").key_in(r#"{"a":{"b":"x"}}"#).as_deref(), Some("x"));
        assert_eq!(path("payload.a.0").key_in(r#"{"a":["x"]}"#), None, "a list has no names");
        assert_eq!(path("payload.a.b").key_in(r#"{"a":"b"}"#), None);
    }

    #[test]
    fn a_key_that_is_too_long_is_cut_and_stays_a_key() {
        let payload = format!(r#"{{"k":"{}"}}"#, "ä".repeat(1_000));
        let key = path("payload.k").key_in(&payload).expect("a key");
        assert!(key.len() <= MAX_KEY_BYTES && key.starts_with("ää"), "{key}");
    }

    #[test]
    fn a_cost_is_a_number_within_its_bounds() {
        for (value, cost) in [
            ("7", Some(7)),
            ("\"7\"", Some(7)),
            ("2.1", Some(3)),
            ("1e3", Some(1_000)),
            ("0", Some(1)),
            ("-5", Some(1)),
            ("1e300", Some(MAX_COST)),
            ("\"inf\"", Some(MAX_COST)),
            ("\"NaN\"", None),
            ("\"many\"", None),
            ("\"\"", None),
            ("true", None),
            ("null", None),
            ("[7]", None),
        ] {
            let payload = format!(r#"{{"tokens":{value}}}"#);
            assert_eq!(path("payload.tokens").cost_in(&payload), cost, "{value}");
        }
    }
}
