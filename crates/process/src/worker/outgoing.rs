//! Outgoing frames of the worker protocol, version 1: node to worker. Pure encoding to bytes. `docs/guide/worker-protocol.md` is
//! the reference for implementations of the other side.

use std::borrow::Cow;

use ostler_core::{ErrorClass, MAX_NESTING, TaskId, is_too_deep};
use ostler_exec::{TaskInfo, Work};
use serde::de::IgnoredAny;

use super::extension::FrameField;
use super::steps::Earlier;

/// Bytes of one frame, without its newline.
pub const MAX_FRAME_BYTES: usize = 16 << 20;
/// Bytes of an answer besides its head and its content.
const ANSWER_BYTES: usize = 16;
/// The protocol version.
pub(super) const PROTOCOL: u64 = 1;

/// The first frame. `per_worker`: how many tasks the node would send at once. `more`: fields of an extension.
pub(super) fn hello(into: &mut Vec<u8>, pool: &str, worker: &str, per_worker: usize, more: &[FrameField]) {
    let (pool, worker, more) = (text(pool), text(worker), members(more));
    let slots = if per_worker > 1 { format!(r#","per_worker":{per_worker}"#) } else { String::new() };
    let parts =
        [r#"{"type":"hello","protocol":1,"pool":"#, &pool, r#","worker":"#, &worker, &slots, &more, "}"];
    line(into, &parts);
}

/// Members of an object, each after a comma.
fn members(fields: &[FrameField]) -> String {
    fields.iter().map(|(name, value)| format!(r#","{name}":{}"#, one_line(value))).collect()
}

/// Why a task cannot be encoded as a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsendable {
    #[error("its payload is not JSON")]
    NotJson,
    #[error("its payload or a step of it is nested more than {MAX_NESTING} levels deep")]
    TooDeep,
    #[error("its payload and steps are larger than a frame of the worker protocol, which has at most 16 MiB")]
    TooLarge,
}

/// A task, with what earlier attempts left, and fields of an extension.
pub(super) fn task(
    into: &mut Vec<u8>,
    id: &str,
    work: &Work,
    earlier: &Earlier,
    more: &[FrameField],
) -> Result<(), Unsendable> {
    let steps = &earlier.steps;
    let texts = [work.payload.as_str()].into_iter().chain(steps.iter().map(|(_, value)| value.as_str()));
    for json in texts {
        serde_json::from_str::<IgnoredAny>(json).map_err(|_| Unsendable::NotJson)?;
        if is_too_deep(json) {
            return Err(Unsendable::TooDeep);
        }
    }
    let timeout_ms = u64::try_from(work.timeout.as_millis()).unwrap_or(u64::MAX);
    let head = format!(
        r#"{{"type":"task","id":"{id}","token":{},"attempt":{},"kind":{},"payload":"#,
        work.token,
        work.attempt,
        text(&work.kind),
    );
    let folder = work.folder.as_deref().map_or_else(|| "null".to_owned(), text);
    let session = earlier.session.as_deref().map_or_else(|| "null".to_owned(), text);
    let trace = work.traceparent.as_ref().map(|trace| format!(r#""traceparent":"{trace}","#));
    let trace = trace.unwrap_or_default();
    let middle = format!(
        r#","timeout_ms":{timeout_ms},"folder":{folder},{trace}"previous_session":{session},"steps":{{"#
    );
    let steps: Vec<String> =
        steps.iter().map(|(name, value)| format!("{}:{}", text(name), one_line(value))).collect();
    let steps = steps.join(",");
    let payload = one_line(&work.payload);
    let more = members(more);
    let parts = [head.as_str(), &payload, &middle, &steps, "}", &more, "}"];
    if parts.iter().map(|part| part.len()).sum::<usize>() > MAX_FRAME_BYTES {
        return Err(Unsendable::TooLarge);
    }
    line(into, &parts);
    Ok(())
}

/// A step is durable.
pub(super) fn saved(into: &mut Vec<u8>, id: &str, token: u64, step: &str) {
    line(into, &[&about("saved", id, token), r#","step":"#, &text(step), "}"]);
}

/// The id of a session is durable.
pub(super) fn session(into: &mut Vec<u8>, id: &str, token: u64, session: &str) {
    line(into, &[&about("saved", id, token), r#","session":"#, &text(session), "}"]);
}

/// A task was submitted.
pub(super) fn submitted(into: &mut Vec<u8>, id: &str, token: u64, request: u64, task: TaskId) {
    line(into, &[&answer("submitted", id, token, request), r#","task":""#, &task.to_string(), r#""}"#]);
}

/// A task was looked up.
pub(super) fn found(into: &mut Vec<u8>, id: &str, token: u64, request: u64, task: Option<&TaskInfo>) {
    let head = answer("found", id, token, request);
    let Some(TaskInfo {
        id,
        state,
        output,
        error,
        queue,
        kind,
        payload,
        key,
        folder,
        runs,
        failures,
        created_at,
    }) = task
    else {
        return line(into, &[&head, r#","task":null}"#]);
    };
    let output = output.as_deref().map_or("null".into(), one_line);
    let error = nullable(error.as_deref());
    let mut found =
        format!(r#","task":{{"id":"{id}","state":"{}","output":{output},"error":{error}"#, state.name());
    found.push_str(&format!(
        r#","queue":{},"kind":{},"key":{},"folder":{},"attempts":{runs},"failures":{failures},"created_at_ms":{}"#,
        text(queue),
        text(kind),
        nullable(key.as_deref()),
        nullable(folder.as_deref()),
        created_at.millis(),
    ));
    // A payload that does not fit is left out.
    let payload = one_line(payload);
    if head.len() + found.len() + payload.len() + ANSWER_BYTES <= MAX_FRAME_BYTES {
        found.push_str(r#","payload":"#);
        found.push_str(&payload);
    }
    found.push_str("}}");
    if head.len() + found.len() > MAX_FRAME_BYTES {
        let why = "its output is larger than a frame of the worker protocol, which has at most 16 MiB";
        return line(
            into,
            &[&head.replacen("found", "refused", 1), r#","class":"permanent","message":"#, &text(why), "}"],
        );
    }
    line(into, &[&head, &found]);
}

/// The answer to a call of an extension: JSON text.
pub(super) fn call_answer(into: &mut Vec<u8>, id: &str, token: u64, request: u64, given: &str) {
    let head = answer("answer", id, token, request);
    if head.len() + given.len() + ANSWER_BYTES > MAX_FRAME_BYTES {
        let why = "the answer is larger than a frame of the worker protocol, which has at most 16 MiB";
        return call_refused(into, id, token, request, why);
    }
    line(into, &[&head, r#","answer":"#, &one_line(given), "}"]);
}

/// A call of an extension was refused.
pub(super) fn call_refused(into: &mut Vec<u8>, id: &str, token: u64, request: u64, why: &str) {
    line(into, &[&answer("answer", id, token, request), r#","refused":"#, &text(why), "}"]);
}

/// A request about tasks was refused.
pub(super) fn refused(into: &mut Vec<u8>, id: &str, token: u64, request: u64, class: ErrorClass, why: &str) {
    let head = answer("refused", id, token, request);
    line(into, &[&head, r#","class":""#, class.name(), r#"","message":"#, &text(why), "}"]);
}

fn answer(sort: &str, id: &str, token: u64, request: u64) -> String {
    format!(r#"{},"request":{request}"#, about(sort, id, token))
}

/// The lease is lost.
pub(super) fn lost(into: &mut Vec<u8>, id: &str, token: u64) {
    line(into, &[&about("lost", id, token), "}"]);
}

/// The attempt must stop.
pub(super) fn cancel(into: &mut Vec<u8>, id: &str, token: u64, reason: &str) {
    line(into, &[&about("cancel", id, token), r#","reason":"#, &text(reason), "}"]);
}

/// The worker must exit.
pub(super) fn stop(into: &mut Vec<u8>) {
    line(into, &[r#"{"type":"stop"}"#]);
}

fn about(sort: &str, id: &str, token: u64) -> String {
    format!(r#"{{"type":"{sort}","id":"{id}","token":{token}"#)
}

fn line(into: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| into.extend_from_slice(part.as_bytes()));
    into.push(b'\n');
}

fn nullable(given: Option<&str>) -> String {
    given.map_or_else(|| "null".to_owned(), text)
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// JSON on one line: between tokens, a newline is as good as a space, and inside of them it is not JSON.
fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ").into() } else { json.into() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_core::{Id, StateName, WorkerId};

    use super::*;

    fn work(payload: &str) -> Work {
        Work {
            task: TaskId(Id::from_bits(1)),
            token: 3,
            worker: WorkerId(Id::from_bits(2)),
            attempt: 2,
            queue: "docs".into(),
            kind: "a \"b\"".into(),
            payload: payload.into(),
            timeout: Duration::from_secs(300),
            grace: Duration::from_secs(5),
            folder: Some("/tmp/x".into()),
            traceparent: None,
        }
    }

    fn sent(write: impl FnOnce(&mut Vec<u8>)) -> serde_json::Value {
        let mut bytes = Vec::new();
        write(&mut bytes);
        assert_eq!(bytes.iter().position(|byte| *byte == b'\n'), Some(bytes.len() - 1), "one line");
        serde_json::from_slice(&bytes).expect("a frame is JSON")
    }

    #[test]
    fn every_frame_to_a_worker_is_one_line_of_json() {
        use serde_json::json;
        assert_eq!(
            sent(|into| hello(into, "docs", "w\n1", 1, &[])),
            json!({"type": "hello", "protocol": 1, "pool": "docs", "worker": "w\n1"})
        );
        assert_eq!(
            sent(|into| hello(into, "docs", "w", 50, &[])),
            json!({"type": "hello", "protocol": 1, "pool": "docs", "worker": "w", "per_worker": 50})
        );
        let other = TaskId(Id::from_bits(7));
        assert_eq!(
            sent(|into| submitted(into, "T", 3, 1, other)),
            json!({"type": "submitted", "id": "T", "token": 3, "request": 1, "task": other.to_string()})
        );
        assert_eq!(
            sent(|into| found(into, "T", 3, 2, None)),
            json!({"type": "found", "id": "T", "token": 3, "request": 2, "task": null})
        );
        let info = TaskInfo {
            id: other,
            state: StateName::Completed,
            output: Some("{\"n\":\n1}".into()),
            error: None,
            queue: "docs".into(),
            kind: "k".into(),
            payload: "[1]".into(),
            key: Some("job_1".into()),
            folder: None,
            runs: 2,
            failures: 1,
            created_at: ostler_core::Timestamp::from_millis(5),
        };
        assert_eq!(
            sent(|into| found(into, "T", 3, 2, Some(&info))),
            json!({"type": "found", "id": "T", "token": 3, "request": 2,
                "task": {"id": other.to_string(), "state": "completed", "output": {"n": 1}, "error": null, "queue": "docs",
                    "kind": "k", "payload": [1], "key": "job_1", "folder": null, "attempts": 2, "failures": 1, "created_at_ms": 5}})
        );
        assert_eq!(
            sent(|into| refused(into, "T", 3, 4, ErrorClass::Transient, "full")),
            json!({"type": "refused", "id": "T", "token": 3, "request": 4, "class": "transient", "message": "full"})
        );
        assert_eq!(
            sent(|into| saved(into, "T", 3, "a")),
            json!({"type": "saved", "id": "T", "token": 3, "step": "a"})
        );
        assert_eq!(sent(|into| lost(into, "T", 3)), json!({"type": "lost", "id": "T", "token": 3}));
        assert_eq!(
            sent(|into| cancel(into, "T", 3, "why")),
            json!({"type": "cancel", "id": "T", "token": 3, "reason": "why"})
        );
        assert_eq!(sent(stop), json!({"type": "stop"}));
        let steps =
            vec![("fetched".to_owned(), "{\"n\":\n1}".to_owned()), ("b".to_owned(), "null".to_owned())];
        let earlier = Earlier { steps, session: Some("s-1".to_owned()) };
        assert_eq!(
            sent(|into| task(
                into,
                "T",
                &work("{\"a\":\r\n [1]}"),
                &earlier,
                &[("more", "{\"x\":\n1}".to_owned())]
            )
            .expect("it fits")),
            json!({
                "type": "task", "id": "T", "token": 3, "attempt": 2, "kind": "a \"b\"",
                "timeout_ms": 300_000, "folder": "/tmp/x", "payload": {"a": [1]}, "previous_session": "s-1",
                "steps": {"fetched": {"n": 1}, "b": null}, "more": {"x": 1},
            })
        );
    }

    #[test]
    fn a_task_that_is_no_frame_is_not_sent() {
        let mut bytes = Vec::new();
        let none = Earlier::default();
        for wrong in ["", "{", "a\nb", "1 2"] {
            assert_eq!(task(&mut bytes, "T", &work(wrong), &none, &[]), Err(Unsendable::NotJson), "{wrong}");
        }
        let deep = "[".repeat(MAX_NESTING + 1) + &"]".repeat(MAX_NESTING + 1);
        assert_eq!(task(&mut bytes, "T", &work(&deep), &none, &[]), Err(Unsendable::TooDeep));
        let steps = Earlier { steps: vec![("a".to_owned(), deep)], session: None };
        assert_eq!(task(&mut bytes, "T", &work("1"), &steps, &[]), Err(Unsendable::TooDeep));
        let large = format!("\"{}\"", "x".repeat(MAX_FRAME_BYTES));
        assert_eq!(task(&mut bytes, "T", &work(&large), &none, &[]), Err(Unsendable::TooLarge));
        assert!(bytes.is_empty());
    }
}
