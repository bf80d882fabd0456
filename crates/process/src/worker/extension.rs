//! Worker extension: what a node answers its workers beyond the plain protocol. Hosts of isolates, which come with the node, speak a
//! private dialect that may change with every version. The gateway's calls, which `docs/guide/worker-protocol.md` documents, are for
//! workers of users.
//!
//! ```text
//! node → worker   {"type":"hello", …, "setup":{…}}                      fields of [`WorkerExtension::hello`]
//!                 {"type":"task", …, "function":{…}}                    fields of the attempt, and content that the worker lacks
//!                 {"type":"task", …, "forget":true}                     the worker drops the content that it has, before it takes this
//!                 {"type":"answer","id":"…","token":3,"request":7,"answer":{…}}      or "refused":"a sentence" in place of "answer"
//! worker → node   {"type":"call","id":"…","token":3,"request":7,"call":{…}}
//!                 {"type":"leaving"}                                    the worker exits when its attempt has its result
//! ```
//!
//! Calls of an attempt run concurrently, beside its other frames, and are dropped with it.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use ostler_core::Failure;
use ostler_exec::{Control, Served, Work};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use crate::folders::TaskFolder;
use crate::supervisor::Exit;

/// Calls of one attempt that run at once.
pub const MAX_OPEN_CALLS: usize = 256;
/// Contents that a worker is expected to remember. Above it, it forgets all of them.
const MAX_KNOWN_CONTENTS: usize = 256;

/// A further member of a frame: its name, and JSON text.
pub type FrameField = (&'static str, String);

/// What a node adds to the protocol for workers of its own.
#[async_trait]
pub trait WorkerExtension: Send + Sync {
    /// The kinds that the workers serve, whatever they announce. `None`: what they announce.
    fn served(&self) -> Option<Served> {
        None
    }

    /// Where a worker finds its socket.
    fn socket(&self) -> WorkerSocket {
        WorkerSocket::Inherited
    }

    /// Sent once to each worker, with its first frame.
    fn hello(&self) -> Vec<FrameField>;

    /// Prepares an attempt, before it is sent to a worker.
    ///
    /// # Errors
    /// The failure with which the attempt ends instead.
    async fn prepare(
        &self,
        work: &Work,
        folder: Option<&TaskFolder>,
        control: &Control,
    ) -> Result<Arc<dyn AttemptExtension>, Failure>;
}

/// Where a worker finds its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSocket {
    /// A descriptor that it inherits.
    Inherited,
    /// Its standard input: a program can own that without `unsafe`.
    StandardInput,
}

/// What an extension adds to one attempt.
pub trait AttemptExtension: Send + Sync {
    /// Members of the task frame.
    fn fields(&self) -> Vec<FrameField>;

    /// Names content that a worker needs for the attempt, and remembers for later ones.
    fn content_key(&self) -> &str;

    /// Members of the task frame with that content, for a worker that lacks it.
    fn content(&self) -> Vec<FrameField>;

    /// Answers a call of the worker: JSON text, as is the answer.
    fn call(self: Arc<Self>, call: String) -> CallFuture;

    /// The failure of the attempt when its worker died of it, if the exit tells more than that it crashed.
    fn death(&self, exit: Exit) -> Option<Failure> {
        let _ = exit;
        None
    }
}

/// A call that is being answered.
pub type CallFuture = Pin<Box<dyn Future<Output = String> + Send>>;

/// The contents that a worker has.
#[derive(Debug, Default)]
pub(super) struct KnownContents(HashSet<String>);

impl KnownContents {
    /// The members of a task frame for this attempt.
    pub(super) fn fields(&self, attempt: &dyn AttemptExtension) -> Vec<FrameField> {
        let mut fields = attempt.fields();
        if self.0.contains(attempt.content_key()) {
            return fields;
        }
        fields.extend(attempt.content());
        if self.0.len() >= MAX_KNOWN_CONTENTS {
            fields.push(("forget", "true".to_owned()));
        }
        fields
    }

    /// The worker was sent the content of this attempt.
    pub(super) fn add(&mut self, attempt: &dyn AttemptExtension) {
        if self.0.contains(attempt.content_key()) {
            return;
        }
        if self.0.len() >= MAX_KNOWN_CONTENTS {
            self.0.clear();
        }
        self.0.insert(attempt.content_key().to_owned());
    }
}

/// The calls of one attempt. Dropping it drops them.
pub(super) struct AttemptCalls {
    extension: Option<Arc<dyn AttemptExtension>>,
    open: JoinSet<(u64, String)>,
}

impl AttemptCalls {
    pub(super) fn new(extension: Option<Arc<dyn AttemptExtension>>) -> Self {
        Self { extension, open: JoinSet::new() }
    }

    pub(super) const fn extension(&self) -> Option<&Arc<dyn AttemptExtension>> {
        self.extension.as_ref()
    }

    /// Whether a worker may be waiting for an answer.
    pub(super) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// See [`AttemptExtension::death`].
    pub(super) fn death(&self, exit: Exit) -> Option<Failure> {
        self.extension.as_ref()?.death(exit)
    }

    /// Begins to answer a call. Returns why it is refused.
    pub(super) fn begin(&mut self, number: u64, call: String) -> Result<(), String> {
        let Some(extension) = &self.extension else {
            return Err("nothing answers calls here: the pool has no gateway".to_owned());
        };
        if self.open.len() >= MAX_OPEN_CALLS {
            return Err(format!("more than {MAX_OPEN_CALLS} calls wait for an answer"));
        }
        let answer = Arc::clone(extension).call(call);
        self.open.spawn(async move { (number, answer.await) });
        Ok(())
    }

    /// The next answer, with the number of its call.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(u64, String)> {
        loop {
            match ready!(self.open.poll_join_next(context)) {
                Some(Ok(answered)) => return Poll::Ready(answered),
                // A call that panicked has no answer: the attempt ends at its deadline.
                Some(Err(_)) => {}
                None => return Poll::Pending,
            }
        }
    }
}

#[derive(Deserialize)]
struct CallFrame<'a> {
    id: String,
    token: u64,
    request: u64,
    #[serde(borrow)]
    call: &'a RawValue,
}

/// Decodes a call: the attempt that it belongs to, its number, and what is asked.
pub(super) fn decode(line: &[u8]) -> serde_json::Result<(String, u64, u64, String)> {
    let CallFrame { id, token, request, call } = serde_json::from_slice(line)?;
    Ok((id, token, request, call.get().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Needs(String);

    impl AttemptExtension for Needs {
        fn fields(&self) -> Vec<FrameField> {
            vec![("function", "1".to_owned())]
        }

        fn content_key(&self) -> &str {
            &self.0
        }

        fn content(&self) -> Vec<FrameField> {
            vec![("modules", "2".to_owned())]
        }

        fn call(self: Arc<Self>, call: String) -> CallFuture {
            Box::pin(std::future::ready(call))
        }
    }

    #[test]
    fn a_worker_gets_content_once_until_it_has_too_much() {
        let mut known = KnownContents::default();
        let needs = |key: &str| Needs(key.to_owned());
        let names = |known: &KnownContents, key: &str| -> Vec<&str> {
            known.fields(&needs(key)).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&known, "a"), ["function", "modules"]);
        known.add(&needs("a"));
        assert_eq!(names(&known, "a"), ["function"]);
        (1..MAX_KNOWN_CONTENTS).for_each(|number| known.add(&needs(&number.to_string())));
        assert_eq!(names(&known, "a"), ["function"], "a full worker has what it was sent");
        assert_eq!(names(&known, "b"), ["function", "modules", "forget"]);
        known.add(&needs("b"));
        assert_eq!(names(&known, "b"), ["function"]);
        assert_eq!(names(&known, "a"), ["function", "modules"], "it was forgotten");
    }

    #[test]
    fn a_call_is_decoded_with_its_number() {
        let line = br#"{"type":"call","id":"T","token":3,"request":7,"call":{"ask": "x"}}"#;
        let (id, token, number, call) = decode(line).expect("it is right");
        assert_eq!((id.as_str(), token, number, call.as_str()), ("T", 3, 7, r#"{"ask": "x"}"#));
        assert!(decode(br#"{"type":"call","id":"T","token":3}"#).is_err());
    }
}
