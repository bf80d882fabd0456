//! From the arguments of a tool call to a request of an operation. What is wrong is a sentence; the values are read by the operation itself.

use bytes::Bytes;
use hyper::header::HeaderValue;
use serde_json::{Map, Value};

use super::tools::{ACTION, FieldPlace, Needed, ToolChoice, ToolSpec, fields, operation};
use crate::answer::RequestError;
use crate::local::LocalRequest;
use crate::operations::Operation;

/// What a call asks for.
pub(super) struct ToolCall {
    pub(super) operation: &'static Operation,
    pub(super) request: LocalRequest,
}

impl ToolCall {
    pub(super) fn read(tool: &ToolSpec, mut arguments: Map<String, Value>) -> Result<Self, RequestError> {
        // `null` is as good as left out.
        arguments.retain(|_, value| !value.is_null());
        let operation = chosen(tool, &mut arguments)?;
        let mut request = LocalRequest::default();
        let mut query = form_urlencoded::Serializer::new(String::new());
        for field in fields(operation) {
            let name = field.name.as_str();
            if field.place == FieldPlace::Body {
                // The body keeps all that is left, and is read as a whole.
                continue;
            }
            let Some(value) = arguments.remove(name) else {
                if field.needed == Needed::Yes {
                    return Err(RequestError::field(name, format!("{name}: it is missing")));
                }
                continue;
            };
            let text = text(name, value)?;
            match field.place {
                FieldPlace::Path if text.is_empty() => {
                    return Err(RequestError::field(name, format!("{name}: it must not be empty")));
                }
                FieldPlace::Path => request.params.push((field.name, text)),
                FieldPlace::Query => {
                    query.append_pair(name, &text);
                }
                FieldPlace::Header => {
                    let value = HeaderValue::from_str(&text).map_err(|_| {
                        RequestError::field(name, format!("{name}: expected visible characters"))
                    })?;
                    request.headers.insert("idempotency-key", value);
                }
                FieldPlace::Body => {}
            }
        }
        request.query = query.finish();
        if operation.body.is_some() {
            request.body = Bytes::from(Value::Object(arguments).to_string());
        } else if let Some(unknown) = arguments.keys().next() {
            let message = format!("{unknown}: {} has no such argument here", tool.name);
            return Err(RequestError::field(unknown, message));
        }
        Ok(Self { operation, request })
    }
}

/// The operation that the arguments mean.
fn chosen(tool: &ToolSpec, arguments: &mut Map<String, Value>) -> Result<&'static Operation, RequestError> {
    match tool.choice {
        ToolChoice::Only(id) => Ok(operation(id)),
        ToolChoice::Named { argument, one, all } => {
            Ok(operation(if arguments.contains_key(argument) { one } else { all }))
        }
        ToolChoice::Action(actions) => {
            let action = arguments.remove(ACTION);
            let action = action.as_ref().and_then(Value::as_str).unwrap_or_default();
            let found = actions.iter().find(|(name, _)| *name == action);
            found.map(|(_, id)| operation(id)).ok_or_else(|| {
                let names: Vec<&str> = actions.iter().map(|(name, _)| *name).collect();
                RequestError::field(ACTION, format!("{ACTION}: expected one of {}", names.join(", ")))
            })
        }
    }
}

/// A value as it stands in a path, a query or a header.
fn text(name: &str, value: Value) -> Result<String, RequestError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(RequestError::field(name, format!("{name}: expected a text, a number, true or false")))
        }
    }
}
