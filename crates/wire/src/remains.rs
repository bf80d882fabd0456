//! What the attempts of a task left, read from its events: files, standard output, and changes of its state.

use std::collections::{BTreeMap, VecDeque};

use ostler_core::{EventBody, EventKind, EventKinds};
use ostler_store::events::Event;
use serde::{Deserialize, Serialize};

use crate::bytes::ByteString;
use crate::time::TimeView;
use crate::word::{self, Word};

/// A file left by an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileView {
    /// Relative to the task's folder.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

impl FileView {
    /// The file of a file event.
    #[must_use]
    pub fn of_event(body: &EventBody) -> Option<Self> {
        let EventBody::File { path, size, sha256 } = body else { return None };
        Some(Self { path: path.clone(), size: *size, sha256: sha256.clone() })
    }
}

/// Files and standard output of attempts, by the attempts' tokens.
#[derive(Clone, Debug, Default)]
pub struct AttemptRemains {
    files: BTreeMap<u64, Vec<FileView>>,
    /// Standard output, as far as it is in the log.
    stdout: BTreeMap<u64, Vec<u8>>,
    /// The newest changes of the task's state.
    transitions: VecDeque<TransitionView>,
}

/// A change of a task's state, other than by a plain start or success.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TransitionView {
    pub at: TimeView,
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    /// The reason of the state, or the class of a failure.
    pub why: String,
    /// When the next attempt may start.
    pub run_at: Option<TimeView>,
}

/// The number of transitions that are shown; the log has all.
const MAX_TRANSITIONS: usize = 20;

impl AttemptRemains {
    /// The kinds of events that are read; a log may be long.
    pub const KINDS: EventKinds =
        EventKinds::only(EventKind::File).with(EventKind::Stdout).with(EventKind::Transition);

    /// Adds an event. Events are added in their order: of two files with the same path the later one counts.
    pub fn add(&mut self, event: &Event) {
        if let Some(file) = FileView::of_event(&event.body) {
            let files = self.files.entry(event.token).or_default();
            files.retain(|known| known.path != file.path);
            files.push(file);
        }
        if let EventBody::Stdout { text } = &event.body {
            self.stdout.entry(event.token).or_default().extend(ByteString::of_event(text).0);
        }
        if let EventBody::Transition { state, why, run_at } = &event.body {
            if self.transitions.len() == MAX_TRANSITIONS {
                self.transitions.pop_front();
            }
            let (at, run_at) = (event.at.into(), run_at.map(TimeView::from));
            self.transitions.push_back(TransitionView { at, state: state.name(), why: why.clone(), run_at });
        }
    }

    /// Takes the files of an attempt.
    pub(crate) fn files(&mut self, token: u64) -> Vec<FileView> {
        self.files.remove(&token).unwrap_or_default()
    }

    /// Takes the changes of the task's state.
    pub(crate) fn transitions(&mut self) -> Vec<TransitionView> {
        std::mem::take(&mut self.transitions).into()
    }

    /// Takes the standard output of an attempt.
    pub(crate) fn stdout(&mut self, token: u64) -> Option<String> {
        self.stdout.remove(&token).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}
