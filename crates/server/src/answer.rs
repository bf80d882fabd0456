//! Answers: JSON, errors as `{"error":{"code","message","details"}}`, and how errors of use cases become statuses.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use ostler_ops::input::BadField;
use ostler_ops::{OpsError, Refusal};
use ostler_store::ErrorKind;
use serde::Serialize;
use serde_json::{Value, json};

/// The body of an answer: whole, or one piece after the other.
pub(crate) type Body = Either<Full<Bytes>, Channel<Bytes, Infallible>>;
pub(crate) type Answer = Response<Body>;

/// Why a request was not done. The code is for programs and never changes.
#[derive(Clone, Debug)]
pub(crate) struct RequestError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) details: Value,
    /// Methods, if the one used is not among them.
    pub(crate) allow: Option<String>,
}

impl RequestError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: Value::Null, allow: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    /// A value of a field is wrong.
    pub(crate) fn field(field: &str, message: impl Into<String>) -> Self {
        Self { details: json!({ "field": field }), ..Self::invalid(message) }
    }

    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    pub(crate) fn answer(&self) -> Answer {
        let body =
            json!({ "error": { "code": self.code, "message": self.message, "details": self.details } });
        let mut answer = plain(self.status, "application/json", body.to_string());
        if let Some(allow) = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            answer.headers_mut().insert(ALLOW, allow);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE || self.status == StatusCode::TOO_MANY_REQUESTS {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

impl From<BadField> for RequestError {
    fn from(wrong: BadField) -> Self {
        match wrong.field {
            Some(field) => Self::field(field, wrong.sentence),
            None => Self::invalid(wrong.sentence),
        }
    }
}

impl From<ostler_store::Error> for RequestError {
    fn from(error: ostler_store::Error) -> Self {
        OpsError::Store(error).into()
    }
}

impl From<OpsError> for RequestError {
    fn from(error: OpsError) -> Self {
        let message = error.to_string();
        let details = error.reason().map_or(Value::Null, |reason| match error.about() {
            Some(about) => json!({ "reason": reason, "about": about }),
            None => json!({ "reason": reason }),
        });
        let answer = match &error {
            OpsError::Missing(_) => Self::not_found(message),
            OpsError::Refused(Refusal::IdTaken { .. }) => Self::conflict("id_taken", message),
            OpsError::Refused(
                Refusal::Finished { .. }
                | Refusal::NotFinished { .. }
                | Refusal::JobRunning { .. }
                | Refusal::NothingToApprove(_)
                | Refusal::NoConversation(_)
                | Refusal::NoPool(_)
                | Refusal::OtherItems(_),
            ) => Self::conflict("refused", message),
            OpsError::Refused(
                Refusal::TooManyTasks(_)
                | Refusal::SeveralTasks { .. }
                | Refusal::Delays
                | Refusal::SeveralNodes { .. }
                | Refusal::SeveralWorkers { .. }
                | Refusal::SeveralJobs { .. }
                | Refusal::Size { .. }
                | Refusal::Unpriced(_)
                | Refusal::TooManySchedules { .. },
            ) => Self::invalid(message),
            OpsError::Failed(_) => Self::conflict("unsuccessful", message),
            OpsError::QueueFull { queue, limit } => Self {
                details: json!({ "queue": queue, "limit": limit }),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
            },
            OpsError::Store(error) => match error.kind() {
                ErrorKind::Invalid => Self::invalid(message),
                ErrorKind::Full
                | ErrorKind::Busy
                | ErrorKind::Unavailable
                | ErrorKind::Moving
                | ErrorKind::Moved
                | ErrorKind::Closed
                | ErrorKind::Replaced
                | ErrorKind::ReadOnly => {
                    Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", message)
                }
                ErrorKind::Foreign
                | ErrorKind::TooNew
                | ErrorKind::Damaged
                | ErrorKind::BadRow
                | ErrorKind::Internal => {
                    Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", message)
                }
            },
        };
        if answer.details.is_null() { Self { details, ..answer } } else { answer }
    }
}

/// A whole answer.
pub(crate) fn plain(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

/// A view as JSON.
pub(crate) fn json_answer(status: StatusCode, view: &impl Serialize) -> Result<Answer, RequestError> {
    let text = serde_json::to_string(view).map_err(|error| {
        RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
    })?;
    Ok(plain(status, "application/json", text))
}

/// A view as JSON, with status 200.
pub(crate) fn ok(view: &impl Serialize) -> Result<Answer, RequestError> {
    json_answer(StatusCode::OK, view)
}

/// An answer that is written piece by piece.
pub(crate) fn streamed(media: &'static str, body: Channel<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(Either::Right(body));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    // A proxy must not collect the pieces.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    answer
}
