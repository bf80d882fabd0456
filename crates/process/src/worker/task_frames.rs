//! Frames by which a handler submits and looks up tasks.

use std::time::Duration;

use ostler_core::TaskId;
use ostler_exec::ChildTask;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A request about tasks, or what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TaskRequest {
    Submit(Result<ChildTask, String>),
    LookUp(Result<TaskId, String>),
}

#[derive(Deserialize)]
struct SubmitFrame<'a> {
    id: String,
    token: u64,
    request: u64,
    kind: String,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    queue: Option<String>,
    key: Option<String>,
    delay_ms: Option<f64>,
    task: Option<String>,
    folder: Option<String>,
}

#[derive(Deserialize)]
struct LookUpFrame {
    id: String,
    token: u64,
    request: u64,
    task: String,
}

/// Decodes a frame of this type: the attempt that it belongs to, the number of the request, and the request. `None`: it is another
/// type.
pub(super) fn decode(sort: &str, line: &[u8]) -> Option<serde_json::Result<(String, u64, u64, TaskRequest)>> {
    match sort {
        "submit" => Some(serde_json::from_slice(line).map(|frame: SubmitFrame<'_>| {
            let id = frame.task.as_deref().map(task_id).transpose();
            let submission = id.map(|id| ChildTask {
                kind: frame.kind,
                payload: frame.payload.map_or("null", RawValue::get).to_owned(),
                queue: frame.queue,
                key: frame.key,
                delay: frame.delay_ms.map(|delay| Duration::from_millis(super::incoming::whole(delay))),
                id,
                folder: frame.folder,
            });
            (frame.id, frame.token, frame.request, TaskRequest::Submit(submission))
        })),
        "lookup" => Some(serde_json::from_slice(line).map(|frame: LookUpFrame| {
            (frame.id, frame.token, frame.request, TaskRequest::LookUp(task_id(&frame.task)))
        })),
        _ => None,
    }
}

fn task_id(text: &str) -> Result<TaskId, String> {
    text.parse().map(TaskId).map_err(|error: ostler_core::BadId| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submit_has_all_that_was_given_and_a_wrong_id_is_refused_with_its_reason() {
        let line = br#"{"type":"submit","id":"T","token":3,"request":1,"kind":"k","payload":{"a": 1},"delay_ms":1500,
            "queue":"q","key":"one","task":"01JC8Z0Q4M9T7N3V5X1B2D6F8H"}"#;
        let (id, token, request, what) = decode("submit", line).expect("it is known").expect("it is right");
        assert_eq!((id.as_str(), token, request), ("T", 3, 1));
        let submission = ChildTask {
            queue: Some("q".into()),
            key: Some("one".into()),
            delay: Some(Duration::from_millis(1500)),
            id: Some(task_id("01JC8Z0Q4M9T7N3V5X1B2D6F8H").expect("an id")),
            ..ChildTask::new("k", r#"{"a": 1}"#)
        };
        assert_eq!(what, TaskRequest::Submit(Ok(submission)));
        let bare = br#"{"type":"submit","id":"T","token":3,"request":2,"kind":"k"}"#;
        let (.., what) = decode("submit", bare).expect("it is known").expect("it is right");
        assert_eq!(what, TaskRequest::Submit(Ok(ChildTask::new("k", "null"))));
        let wrong = br#"{"type":"lookup","id":"T","token":3,"request":3,"task":"no"}"#;
        let (.., what) = decode("lookup", wrong).expect("it is known").expect("it is right");
        assert!(matches!(&what, TaskRequest::LookUp(Err(why)) if why.contains("not an id")), "{what:?}");
        assert!(decode("log", b"{}").is_none());
    }
}
