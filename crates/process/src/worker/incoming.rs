//! Incoming frames of the worker protocol, version 1: worker to node. Pure decoding from bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, Failure, Level, LogStream};
use ostler_exec::ClassSource;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::conversation_frames;
use super::extension;
use super::task_frames::{self, TaskRequest};

/// The message of a failure without one.
const NO_MESSAGE: &str = "it failed without a message";

/// A frame from a worker.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum IncomingFrame {
    /// The worker accepts tasks.
    Ready(ReadyFrame),
    /// A frame about the attempt that the worker runs, or has run.
    Of { id: String, token: u64, what: AttemptFrame },
    /// The worker exits when its attempt has its result. Private: see `extension.rs`.
    Leaving,
    /// A frame that this version does not know.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttemptFrame {
    Event(EventBody),
    /// A file that was left in the task's folder.
    File(String),
    /// The value of a step: JSON text.
    Step {
        name: String,
        value: String,
    },
    /// A request about tasks, with its number.
    Request(u64, TaskRequest),
    /// A call of an extension, with its number: JSON text.
    Call(u64, String),
    /// A success with this output: JSON text.
    Done(Option<String>),
    Failed(Failure, ClassSource),
}

/// A line that is not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worker sent a frame that cannot be read: {0}")]
pub(super) struct BadFrame(String);

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    sort: Cow<'a, str>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct ReadyFrame {
    pub(super) protocol: u64,
    /// The kinds that it takes; `None`: any.
    pub(super) kinds: Option<Vec<String>>,
    /// How many tasks it takes at once; `None`: one.
    pub(super) per_worker: Option<f64>,
    /// Options by kind.
    #[serde(default)]
    pub(super) options: BTreeMap<String, KindOptions>,
}

/// The options that a worker gives a kind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct KindOptions {
    pub(super) attempts: Option<f64>,
    pub(super) timeout_ms: Option<f64>,
    pub(super) backoff: Option<String>,
    pub(super) base_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) jitter: Option<bool>,
    pub(super) max_crashes: Option<f64>,
}

#[derive(Deserialize)]
struct Addressed<T> {
    id: String,
    token: u64,
    #[serde(flatten)]
    what: T,
}

#[derive(Deserialize)]
struct ProgressFrame {
    id: String,
    token: u64,
    done: f64,
    total: Option<f64>,
    note: Option<String>,
}

#[derive(Deserialize)]
struct StepFrame<'a> {
    id: String,
    token: u64,
    name: String,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StepFailed {
    name: String,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
struct FileFrame {
    path: String,
}

#[derive(Deserialize)]
struct LogFrame {
    level: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct ResultFrame<'a> {
    id: String,
    token: u64,
    ok: bool,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    error: Option<ErrorFrame>,
}

#[derive(Deserialize, Default)]
struct ErrorFrame {
    class: Option<String>,
    message: Option<String>,
    retry_after_ms: Option<f64>,
    step: Option<String>,
    hint: Option<String>,
    details: Option<String>,
}

/// Decodes a line.
pub(super) fn decode(line: &[u8]) -> Result<IncomingFrame, BadFrame> {
    let bad = |error: serde_json::Error| BadFrame(format!("{error}: {}", shown(line)));
    fn of<'a, T: Deserialize<'a>>(line: &'a [u8]) -> serde_json::Result<(String, u64, T)> {
        let Addressed { id, token, what } = serde_json::from_slice(line)?;
        Ok((id, token, what))
    }
    let Head { sort } = serde_json::from_slice(line).map_err(bad)?;
    let (id, token, what) = match sort.as_ref() {
        "ready" => {
            return Ok(IncomingFrame::Ready(serde_json::from_slice(line).map_err(bad)?));
        }
        "progress" => {
            let ProgressFrame { id, token, done, total, note } = serde_json::from_slice(line).map_err(bad)?;
            (
                id,
                token,
                AttemptFrame::Event(EventBody::Progress { done: whole(done), total: total.map(whole), note }),
            )
        }
        "step" => {
            let StepFrame { id, token, name, value } = serde_json::from_slice(line).map_err(bad)?;
            (id, token, AttemptFrame::Step { name, value: value.map_or("null", RawValue::get).to_owned() })
        }
        "step_failed" => {
            let (id, token, StepFailed { name, message }) = of(line).map_err(bad)?;
            let message = message.unwrap_or_else(|| NO_MESSAGE.to_owned());
            (
                id,
                token,
                AttemptFrame::Event(EventBody::warning(format!("the step \"{name}\" failed: {message}"))),
            )
        }
        "file" => {
            let (id, token, FileFrame { path }) = of(line).map_err(bad)?;
            (id, token, AttemptFrame::File(path))
        }
        "log" => {
            let (id, token, LogFrame { level, message }) = of(line).map_err(bad)?;
            (
                id,
                token,
                AttemptFrame::Event(EventBody::Log {
                    level: level_named(level.as_deref()),
                    stream: LogStream::Log,
                    text: message,
                }),
            )
        }
        "result" => {
            let ResultFrame { id, token, ok, output, error } = serde_json::from_slice(line).map_err(bad)?;
            let what = if ok {
                AttemptFrame::Done(output.map(|output| output.get().to_owned()))
            } else {
                let (failure, classing) = failure(error.unwrap_or_default());
                AttemptFrame::Failed(failure, classing)
            };
            (id, token, what)
        }
        "call" => {
            let (id, token, number, call) = extension::decode(line).map_err(bad)?;
            (id, token, AttemptFrame::Call(number, call))
        }
        "leaving" => return Ok(IncomingFrame::Leaving),
        other => match (conversation_frames::decode(other, line), task_frames::decode(other, line)) {
            (Some(decoded), _) => {
                let (id, token, event) = decoded.map_err(bad)?;
                (id, token, AttemptFrame::Event(event))
            }
            (None, Some(decoded)) => {
                let (id, token, number, request) = decoded.map_err(bad)?;
                (id, token, AttemptFrame::Request(number, request))
            }
            (None, None) => return Ok(IncomingFrame::Unknown),
        },
    };
    Ok(IncomingFrame::Of { id, token, what })
}

/// Whether a line begins like a result: nothing else is known of one that is too long.
pub(super) fn begins_as_result(line: &[u8]) -> bool {
    let word = |rest: &'_ [u8], word: &[u8]| -> Option<usize> {
        let at = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        rest[at..].starts_with(word).then_some(at + word.len())
    };
    let mut at = 0;
    for expected in [&b"{"[..], b"\"type\"", b":", b"\"result\""] {
        match word(&line[at..], expected) {
            Some(length) => at += length,
            None => return false,
        }
    }
    true
}

fn failure(fault: ErrorFrame) -> (Failure, ClassSource) {
    let ErrorFrame { class, message, retry_after_ms, step, hint, details } = fault;
    // A class that this version does not know counts as unclassed.
    let known = class.as_deref().and_then(ErrorClass::named);
    let classing = if known.is_some() { ClassSource::Given } else { ClassSource::Assumed };
    let class = known.unwrap_or(ErrorClass::Transient);
    let message = message.filter(|text| !text.is_empty()).unwrap_or_else(|| NO_MESSAGE.to_owned());
    let retry_after = retry_after_ms.map(|millis| Duration::from_millis(whole(millis)));
    (Failure { class, message, details, step, hint, retry_after, exit_code: None }, classing)
}

fn level_named(name: Option<&str>) -> Level {
    match name {
        Some("debug") => Level::Debug,
        Some("warn" | "warning") => Level::Warn,
        Some("error") => Level::Error,
        Some(_) | None => Level::Info,
    }
}

/// Converts a number: some languages have no integers.
pub(super) fn whole(number: f64) -> u64 {
    // Negative numbers and NaN become zero; numbers that are too large saturate.
    number as u64
}

/// The beginning of a line, for a message.
fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    format!("\"{}\"{}", text.escape_debug(), if line.len() > SHOWN { " …" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> IncomingFrame {
        decode(line.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn of(what: AttemptFrame) -> IncomingFrame {
        IncomingFrame::Of { id: "T".into(), token: 3, what }
    }

    fn note(note: EventBody) -> IncomingFrame {
        of(AttemptFrame::Event(note))
    }

    #[test]
    fn every_frame_of_a_worker_is_read() {
        assert_eq!(
            read(r#"{"type":"ready","protocol":1,"sdk":"python/0.1","kinds":["resize"]}"#),
            IncomingFrame::Ready(ReadyFrame {
                protocol: 1,
                kinds: Some(vec!["resize".into()]),
                ..ReadyFrame::default()
            })
        );
        let bare = ReadyFrame { protocol: 1, ..ReadyFrame::default() };
        assert_eq!(read(r#"{"type":"ready","protocol":1}"#), IncomingFrame::Ready(bare.clone()));
        let options = KindOptions { attempts: Some(5.0), timeout_ms: Some(30e3), ..KindOptions::default() };
        assert_eq!(
            read(
                r#"{"type":"ready","protocol":1,"per_worker":50,"options":{"x":{"attempts":5,"timeout_ms":30000}}}"#
            ),
            IncomingFrame::Ready(ReadyFrame {
                per_worker: Some(50.0),
                options: [("x".to_owned(), options)].into(),
                ..bare
            })
        );
        assert_eq!(
            read(r#"{"type":"progress","id":"T","token":3,"done":40,"total":100,"note":"x"}"#),
            note(EventBody::Progress { done: 40, total: Some(100), note: Some("x".into()) })
        );
        assert_eq!(
            read(r#"{"type":"step","id":"T","token":3,"name":"fetched","value":{"a": [1]}}"#),
            of(AttemptFrame::Step { name: "fetched".into(), value: r#"{"a": [1]}"#.into() })
        );
        assert_eq!(
            read(r#"{"type":"step_failed","id":"T","token":3,"name":"comment","message":"no"}"#),
            note(EventBody::warning("the step \"comment\" failed: no"))
        );
        assert_eq!(
            read(r#"{"type":"file","id":"T","token":3,"path":"report.pdf"}"#),
            of(AttemptFrame::File("report.pdf".into()))
        );
        assert_eq!(
            read(r#"{"type":"log","id":"T","token":3,"level":"warn","message":"m"}"#),
            note(EventBody::Log { level: Level::Warn, stream: LogStream::Log, text: "m".into() })
        );
        assert_eq!(
            read(r#"{"type":"result","id":"T","token":3,"ok":true,"output":{"n": 1}}"#),
            of(AttemptFrame::Done(Some(r#"{"n": 1}"#.into())))
        );
        assert_eq!(read(r#"{"type":"result","id":"T","token":3,"ok":true}"#), of(AttemptFrame::Done(None)));
        assert_eq!(
            read(r#"{"type":"result","id":"T","token":3,"ok":true,"output":null}"#),
            of(AttemptFrame::Done(None))
        );
    }

    #[test]
    fn a_failure_has_its_class_and_all_that_was_said() {
        let line = r#"{"type":"result","id":"T","token":3,"ok":false,"error":{"class":"rate_limited","message":"slow",
            "retry_after_ms":2000,"step":"move","hint":"wait","details":"d"}}"#;
        let failure = Failure {
            details: Some("d".into()),
            step: Some("move".into()),
            hint: Some("wait".into()),
            retry_after: Some(Duration::from_secs(2)),
            ..Failure::new(ErrorClass::RateLimited, "slow")
        };
        assert_eq!(read(line), of(AttemptFrame::Failed(failure, ClassSource::Given)));
        for unclassed in [
            r#"{"type":"result","id":"T","token":3,"ok":false,"error":{"message":"m"}}"#,
            r#"{"type":"result","id":"T","token":3,"ok":false,"error":{"class":null,"message":"m"}}"#,
            r#"{"type":"result","id":"T","token":3,"ok":false,"error":{"class":"new","message":"m"}}"#,
        ] {
            assert_eq!(
                read(unclassed),
                of(AttemptFrame::Failed(Failure::new(ErrorClass::Transient, "m"), ClassSource::Assumed))
            );
        }
        let silent = read(r#"{"type":"result","id":"T","token":3,"ok":false}"#);
        assert_eq!(
            silent,
            of(AttemptFrame::Failed(Failure::new(ErrorClass::Transient, NO_MESSAGE), ClassSource::Assumed))
        );
    }

    #[test]
    fn unknown_types_and_fields_are_ignored() {
        assert_eq!(read(r#"{"type":"dance","id":7,"token":"x"}"#), IncomingFrame::Unknown);
        assert_eq!(
            read(r#"{"new":{"a":[]},"type":"file","id":"T","token":3,"path":"p","mood":1}"#),
            of(AttemptFrame::File("p".into()))
        );
    }

    #[test]
    fn numbers_may_come_from_languages_without_whole_ones() {
        let progress =
            |done: &str| read(&format!(r#"{{"type":"progress","id":"T","token":3,"done":{done}}}"#));
        for (number, done) in [("4.0", 4), ("4.9", 4), ("-1", 0), ("1e30", u64::MAX)] {
            assert_eq!(
                progress(number),
                note(EventBody::Progress { done, total: None, note: None }),
                "{number}"
            );
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_with_its_beginning() {
        for line in
            ["noise", "", "[]", "7", "{\"type\":\"log\"", r#"{"type":"result","id":"T"}"#, "{\"a\":1}"]
        {
            let error = decode(line.as_bytes()).expect_err(line).to_string();
            assert!(
                error.contains("cannot be read") && error.contains(&*line.escape_debug().to_string()),
                "{error}"
            );
        }
        assert!(decode(b"\xff\xfe").is_err());
        let deep = format!(
            r#"{{"type":"result","id":"T","token":3,"ok":true,"output":{}1{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        // However deep it is, nothing overflows.
        let _ = decode(deep.as_bytes());
    }

    #[test]
    fn the_beginning_of_a_result_is_known() {
        for (line, is) in [
            (r#"{"type":"result","id""#, true),
            (r#" { "type" : "result" , "#, true),
            (r#"{"type":"results","#, false),
            (r#"{"type":"log","message":"result"#, false),
            (r#"{"id":"x","type":"result""#, false),
            ("{", false),
            ("", false),
        ] {
            assert_eq!(begins_as_result(line.as_bytes()), is, "{line}");
        }
    }
}
