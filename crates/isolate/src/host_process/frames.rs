//! Frames of the worker protocol, as a host reads and writes them.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixStream;

use ostler_core::{Failure, Level};
use ostler_exec::ClassSource;
use ostler_process::MAX_FRAME_BYTES;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::dialect::{FunctionModules, FunctionRef, HostSetup};
use crate::host::{FunctionProgress, HostAnswer, HostError};

/// Capacity above this is released after a large frame.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// A frame from the node.
pub(super) enum NodeFrame {
    Hello(Box<HostSetup>),
    Task(Box<TaskFrame>),
    Saved {
        id: String,
        token: u64,
        step: String,
    },
    Answer {
        id: String,
        token: u64,
        request: u64,
        answer: Result<HostAnswer, HostError>,
    },
    /// The attempt must stop: its task is cancelled, or its lease is lost.
    Cancel {
        id: String,
        token: u64,
    },
    Stop,
    /// A frame that a host does not need.
    Other,
}

/// A task to run.
#[derive(Debug, Deserialize)]
pub(super) struct TaskFrame {
    pub(super) id: String,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) kind: String,
    pub(super) payload: Box<RawValue>,
    pub(super) timeout_ms: u64,
    /// What earlier attempts have saved.
    #[serde(default)]
    pub(super) steps: HashMap<String, Box<RawValue>>,
    pub(super) function: FunctionRef,
    pub(super) modules: Option<FunctionModules>,
    /// The host drops the functions that it has.
    #[serde(default)]
    pub(super) forget: bool,
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    sort: String,
}

#[derive(Deserialize)]
struct Hello {
    setup: HostSetup,
}

#[derive(Deserialize)]
struct About {
    id: String,
    token: u64,
    step: Option<String>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    id: String,
    token: u64,
    request: u64,
    #[serde(borrow)]
    answer: Option<&'a RawValue>,
    refused: Option<String>,
}

/// Reads the frames of the node.
pub(super) struct FrameReader {
    socket: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket: BufReader::new(socket), line: Vec::new() }
    }

    /// Waits for the next frame. `None`: the node is gone.
    pub(super) fn next(&mut self) -> io::Result<Option<NodeFrame>> {
        const NEWLINE: u64 = 1;
        self.line.clear();
        self.line.shrink_to(MAX_KEPT_BYTES);
        let most = u64::try_from(MAX_FRAME_BYTES).unwrap_or(u64::MAX) + NEWLINE;
        (&mut self.socket).take(most).read_until(b'\n', &mut self.line)?;
        if self.line.pop() != Some(b'\n') {
            return Ok(None);
        }
        Ok(Some(decode(&self.line)?))
    }
}

fn decode(line: &[u8]) -> serde_json::Result<NodeFrame> {
    let Head { sort } = serde_json::from_slice(line)?;
    Ok(match sort.as_str() {
        "hello" => {
            let Hello { setup } = serde_json::from_slice(line)?;
            NodeFrame::Hello(Box::new(setup))
        }
        "task" => NodeFrame::Task(Box::new(serde_json::from_slice(line)?)),
        "saved" => match serde_json::from_slice(line)? {
            About { id, token, step: Some(step) } => NodeFrame::Saved { id, token, step },
            About { step: None, .. } => NodeFrame::Other,
        },
        "cancel" | "lost" => {
            let About { id, token, .. } = serde_json::from_slice(line)?;
            NodeFrame::Cancel { id, token }
        }
        "answer" => {
            let Answer { id, token, request, answer, refused } = serde_json::from_slice(line)?;
            let none = || HostError("the node gave no answer".to_owned());
            let answer = match (answer, refused) {
                (_, Some(why)) => Err(HostError(why)),
                (Some(answer), None) => crate::dialect::decode_answer(answer.get()),
                (None, None) => Err(none()),
            };
            NodeFrame::Answer { id, token, request, answer }
        }
        "stop" => NodeFrame::Stop,
        _ => NodeFrame::Other,
    })
}

/// The attempt that a frame is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptKey {
    pub(super) id: String,
    pub(super) token: u64,
}

impl AttemptKey {
    /// A frame of the attempt, without its last brace.
    fn head(&self, sort: &str) -> String {
        format!(r#"{{"type":"{sort}","id":"{}","token":{}"#, self.id, self.token)
    }

    pub(super) fn log(&self, level: Level, line: &str) -> String {
        let level = match level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        format!(r#"{},"level":"{level}","message":{}}}"#, self.head("log"), json!(line))
    }

    pub(super) fn progress(&self, progress: &FunctionProgress) -> String {
        let FunctionProgress { done, total, note } = progress;
        let (total, note) = (json!(total), json!(note));
        format!(r#"{},"done":{done},"total":{total},"note":{note}}}"#, self.head("progress"))
    }

    /// The value is JSON text on one line, as the engine writes it.
    pub(super) fn step(&self, name: &str, value: &str) -> String {
        format!(r#"{},"name":{},"value":{value}}}"#, self.head("step"), json!(name))
    }

    pub(super) fn call(&self, request: u64, call: &str) -> String {
        format!(r#"{},"request":{request},"call":{call}}}"#, self.head("call"))
    }

    /// The output is JSON text on one line, as the engine writes it.
    pub(super) fn done(&self, output: Option<&str>) -> String {
        format!(r#"{},"ok":true,"output":{}}}"#, self.head("result"), output.unwrap_or("null"))
    }

    pub(super) fn failed(&self, failure: &Failure, source: ClassSource) -> String {
        let class = match source {
            ClassSource::Given => Some(failure.class.name()),
            ClassSource::Assumed => None,
        };
        let error = json!({
            "class": class,
            "message": failure.message,
            "retry_after_ms": failure.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            "step": failure.step,
            "hint": failure.hint,
            "details": failure.details,
        });
        format!(r#"{},"ok":false,"error":{error}}}"#, self.head("result"))
    }
}

/// The host accepts tasks.
pub(super) fn ready() -> String {
    json!({"type": "ready", "protocol": 1, "sdk": concat!("isolate-host/", env!("CARGO_PKG_VERSION"))})
        .to_string()
}

/// The host ends with its result.
pub(super) fn leaving() -> String {
    json!({"type": "leaving"}).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_core::ErrorClass;

    use super::*;

    fn key() -> AttemptKey {
        AttemptKey { id: "T".to_owned(), token: 3 }
    }

    #[test]
    fn what_a_host_writes_is_json_on_one_line() {
        let failure = Failure {
            hint: Some("wait\n".to_owned()),
            retry_after: Some(Duration::from_secs(2)),
            ..Failure::new(ErrorClass::Partial, "no \"way\"")
        };
        let progress = FunctionProgress { done: 1, total: None, note: Some("\n".to_owned()) };
        for (frame, sort) in [
            (ready(), "ready"),
            (leaving(), "leaving"),
            (key().log(Level::Warn, "a\n\"b\""), "log"),
            (key().progress(&progress), "progress"),
            (key().step("a\"", "{\"x\":1}"), "step"),
            (key().call(7, "{}"), "call"),
            (key().done(Some("[1]")), "result"),
            (key().done(None), "result"),
            (key().failed(&failure, ClassSource::Given), "result"),
            (key().failed(&failure, ClassSource::Assumed), "result"),
        ] {
            let value: serde_json::Value =
                serde_json::from_str(&frame).unwrap_or_else(|error| panic!("{frame}: {error}"));
            assert_eq!(value["type"], sort);
            assert!(!frame.contains('\n'), "{frame}");
        }
        assert!(key().failed(&failure, ClassSource::Assumed).contains("\"class\":null"));
    }

    #[test]
    fn what_a_host_does_not_know_is_passed_over() {
        for line in [r#"{"type":"new"}"#, r#"{"type":"saved","id":"T","token":1,"session":"s"}"#] {
            assert!(matches!(decode(line.as_bytes()), Ok(NodeFrame::Other)), "{line}");
        }
        assert!(decode(b"noise").is_err());
    }
}
