//! Handlers of a queue: async ones, typed ones, and those whose futures are not `Send`.

use std::future::Future;
use std::sync::Arc;

use ostler_exec::{Context, TaskError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Builder;
use crate::kind::Kind;

impl Builder {
    /// Registers a handler for a kind of task. The payload is deserialized from JSON; a payload that does not fit is a
    /// permanent failure. The value returned by the handler is stored as the task's output, as JSON.
    #[must_use]
    pub fn handle<P, O, F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, TaskError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.plan.handlers = self.plan.handlers.handle(kind, move |payload, context| {
            let handler = Arc::clone(&handler);
            async move { call(handler.as_ref(), &payload, context).await }
        });
        self
    }

    /// Registers a handler for a [`Kind`]: its name and settings belong to the type of the payload.
    #[must_use]
    pub fn handle_kind<K, F, R>(self, handler: F) -> Self
    where
        K: Kind,
        F: Fn(K, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<K::Output, TaskError>> + Send + 'static,
    {
        let overrides = K::overrides();
        let builder = if overrides.is_none() { self } else { self.defaults_of(K::NAME, overrides) };
        builder.handle(K::NAME, handler)
    }

    /// Registers a handler that returns `anyhow::Result`. An error is classified by what it was made from: a
    /// [`TaskError`](crate::TaskError) keeps its class, a system error has one, and everything else has none.
    #[cfg(feature = "anyhow")]
    #[must_use]
    pub fn handle_anyhow<P, O, F, R>(self, kind: impl Into<String>, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, anyhow::Error>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.handle(kind, move |payload, context| {
            let handler = Arc::clone(&handler);
            async move { handler(payload, context).await.map_err(TaskError::from_anyhow) }
        })
    }

    /// Registers a handler whose future is not `Send`. It runs on a dedicated thread, one task at a time, and everything it
    /// spawns is dropped when it returns. A queue may have such handlers besides those of [`handle`](Self::handle).
    #[must_use]
    pub fn handle_local<P, O, F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        P: DeserializeOwned + 'static,
        O: Serialize + 'static,
        F: Fn(P, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, TaskError>> + 'static,
    {
        let (kind, handler) = (kind.into(), Arc::new(handler));
        self.plan.local.push(Box::new(move |threads| {
            threads.handle(kind, move |payload, context| {
                let handler = Arc::clone(&handler);
                async move { call(handler.as_ref(), &payload, context).await }
            })
        }));
        self
    }
}

/// Deserializes the payload, calls the handler and serializes its output.
async fn call<P, O, F, R>(handler: &F, payload: &str, context: Context) -> Result<Option<String>, TaskError>
where
    P: DeserializeOwned,
    O: Serialize,
    F: Fn(P, Context) -> R,
    R: Future<Output = Result<O, TaskError>>,
{
    let payload = serde_json::from_str(payload)
        .map_err(|error| TaskError::permanent(format!("the payload does not fit the handler: {error}")))?;
    let output = handler(payload, context).await?;
    serde_json::to_string(&output)
        .map(Some)
        .map_err(|error| TaskError::permanent(format!("the output cannot be written as JSON: {error}")))
}
