//! Events: what an attempt reports while it runs, typed from its executor to every reader.

use crate::state::StateName;
use crate::time::Timestamp;
use crate::usage::Usage;

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// For debugging.
    Debug,
    /// Informational.
    Info,
    /// Something is wrong, but the work continues.
    Warn,
    /// Something failed.
    Error,
}

/// Where a log line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogStream {
    /// A log call of the handler.
    Log,
    /// The standard output of a child process.
    Stdout,
    /// The standard error of a child process.
    Stderr,
}

/// Who speaks in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions of the system.
    System,
    /// The user, or the program that asks.
    User,
    /// The model.
    Assistant,
}

/// Whether a tool did what it was called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToolStatus {
    /// It returned a result.
    Ok,
    /// It failed; its output says how.
    Error,
}

macro_rules! names {
    ($type:ident: $($variant:ident = $name:literal),*) => {
        impl $type {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name shown to users.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The value of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

names!(Level: Debug = "debug", Info = "info", Warn = "warn", Error = "error");
names!(LogStream: Log = "log", Stdout = "stdout", Stderr = "stderr");
names!(Role: System = "system", User = "user", Assistant = "assistant");
names!(ToolStatus: Ok = "ok", Error = "error");

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventBody {
    /// A line that the work wrote, or several.
    Log { level: Level, stream: LogStream, text: String },
    /// How far the work has come.
    Progress {
        /// Units done.
        done: u64,
        /// Units in all, if known.
        total: Option<u64>,
        /// A description.
        note: Option<String>,
    },
    /// The rendered prompt of an attempt.
    Prompt { text: String },
    /// A message of a conversation.
    Message { role: Role, text: String },
    /// A model's reasoning, as far as it shows it.
    Thinking { text: String },
    /// A model calls a tool.
    ToolCall {
        /// Joins the call and its result.
        call: String,
        tool: String,
        /// JSON text.
        input: String,
    },
    /// The result of a tool.
    ToolResult { call: String, tool: Option<String>, status: ToolStatus, output: String },
    /// A file that the attempt left in its task's folder.
    File {
        /// The path within the folder.
        path: String,
        /// Bytes.
        size: u64,
        /// The SHA-256 in hexadecimal digits.
        sha256: String,
    },
    /// Tokens and money spent since the last such event of the attempt.
    Usage(Usage),
    /// The conversation that the attempt works in: another attempt can resume it by this id.
    Session { id: String },
    /// Something went wrong, and the work continues without it.
    Warning { text: String },
    /// A piece of the standard output of a command that did not succeed, or that ran for more than a moment: JSON, a string or the
    /// list of its bytes. The pieces of an attempt, joined, are its output, or its beginning and its end.
    Stdout { text: String },
    /// The task changed its state other than by a plain start or success.
    Transition {
        state: StateName,
        /// The reason: that of the state, or the class of a failure.
        why: String,
        /// When the next attempt may start.
        run_at: Option<Timestamp>,
    },
    /// Log lines were left out: they came faster than they could be stored.
    Thinned { lines: u64 },
    /// What an agent does beside its conversation: it retries, resumes, switches its model.
    Status { text: String },
    /// What an agent reports as an error. The attempt may go on.
    Error { text: String },
    /// The final answer of an agent.
    Result { text: String },
    /// A line as an agent wrote it, from which the events after it were read: JSON, a string or the list of its bytes.
    Raw { text: String },
    /// The payload that the task had before a replay with another one.
    FormerPayload { text: String },
    /// More of the message before it, or without a role of the thought: an agent that speaks piece by piece had not come to its end.
    Continued { role: Option<Role>, text: String },
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    Log,
    Message,
    ToolCall,
    Progress,
    Warning,
    File,
    Stdout,
    Prompt,
    Thinking,
    ToolResult,
    Usage,
    Session,
    Transition,
    Thinned,
    Status,
    Error,
    Result,
    Raw,
    FormerPayload,
    Continued,
}

names!(EventKind: Log = "log", Message = "message", ToolCall = "tool_call", Progress = "progress", Warning = "warning",
    File = "file", Stdout = "stdout", Prompt = "prompt", Thinking = "thinking", ToolResult = "tool_result", Usage = "usage",
    Session = "session", Transition = "transition", Thinned = "thinned", Status = "status", Error = "error",
    Result = "result", Raw = "raw", FormerPayload = "former_payload", Continued = "continued");

impl EventKind {
    /// The index in [`EventKind::ALL`], which a store persists: new kinds are added at the end.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What becomes of such events when they come faster than they can be stored.
    #[must_use]
    pub const fn loss(self) -> Loss {
        match self {
            Self::Log | Self::Progress => Loss::Thinned,
            Self::Message
            | Self::ToolCall
            | Self::Warning
            | Self::File
            | Self::Stdout
            | Self::Prompt
            | Self::Thinking
            | Self::ToolResult
            | Self::Usage
            | Self::Session
            | Self::Transition
            | Self::Thinned
            | Self::Status
            | Self::Error
            | Self::Result
            | Self::Raw
            | Self::FormerPayload
            | Self::Continued => Loss::None,
        }
    }
}

/// What becomes of events when they come faster than they can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Some are left out, and an [`EventBody::Thinned`] says how many.
    Thinned,
    /// None is lost: the source waits.
    None,
}

impl EventBody {
    /// The kind of this event.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Log { .. } => EventKind::Log,
            Self::Progress { .. } => EventKind::Progress,
            Self::Prompt { .. } => EventKind::Prompt,
            Self::Message { .. } => EventKind::Message,
            Self::Thinking { .. } => EventKind::Thinking,
            Self::ToolCall { .. } => EventKind::ToolCall,
            Self::ToolResult { .. } => EventKind::ToolResult,
            Self::File { .. } => EventKind::File,
            Self::Usage(_) => EventKind::Usage,
            Self::Session { .. } => EventKind::Session,
            Self::Warning { .. } => EventKind::Warning,
            Self::Stdout { .. } => EventKind::Stdout,
            Self::Transition { .. } => EventKind::Transition,
            Self::Thinned { .. } => EventKind::Thinned,
            Self::Status { .. } => EventKind::Status,
            Self::Error { .. } => EventKind::Error,
            Self::Result { .. } => EventKind::Result,
            Self::Raw { .. } => EventKind::Raw,
            Self::FormerPayload { .. } => EventKind::FormerPayload,
            Self::Continued { .. } => EventKind::Continued,
        }
    }

    /// Its text, which may be long: a line, a message, the input or output of a tool.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Log { text, .. }
            | Self::Prompt { text }
            | Self::Message { text, .. }
            | Self::Thinking { text }
            | Self::Warning { text }
            | Self::Stdout { text }
            | Self::Status { text }
            | Self::Error { text }
            | Self::Result { text }
            | Self::Raw { text }
            | Self::FormerPayload { text }
            | Self::Continued { text, .. }
            | Self::ToolCall { input: text, .. }
            | Self::ToolResult { output: text, .. } => Some(text),
            Self::Progress { .. }
            | Self::File { .. }
            | Self::Usage(_)
            | Self::Session { .. }
            | Self::Transition { .. }
            | Self::Thinned { .. } => None,
        }
    }

    /// The same place as [`EventBody::text`], to be changed.
    pub fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Log { text, .. }
            | Self::Prompt { text }
            | Self::Message { text, .. }
            | Self::Thinking { text }
            | Self::Warning { text }
            | Self::Stdout { text }
            | Self::Status { text }
            | Self::Error { text }
            | Self::Result { text }
            | Self::Raw { text }
            | Self::FormerPayload { text }
            | Self::Continued { text, .. }
            | Self::ToolCall { input: text, .. }
            | Self::ToolResult { output: text, .. } => Some(text),
            Self::Progress { .. }
            | Self::File { .. }
            | Self::Usage(_)
            | Self::Session { .. }
            | Self::Transition { .. }
            | Self::Thinned { .. } => None,
        }
    }

    /// The short texts beside it: names, ids, notes.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        let (one, other) = match self {
            Self::Progress { note, .. } => (note.as_deref(), None),
            Self::ToolCall { call, tool, .. } => (Some(call.as_str()), Some(tool.as_str())),
            Self::ToolResult { call, tool, .. } => (Some(call.as_str()), tool.as_deref()),
            Self::File { path, sha256, .. } => (Some(path.as_str()), Some(sha256.as_str())),
            Self::Usage(usage) => (usage.model.as_deref(), None),
            Self::Session { id } => (Some(id.as_str()), None),
            Self::Transition { why, .. } => (Some(why.as_str()), None),
            Self::Log { .. }
            | Self::Prompt { .. }
            | Self::Message { .. }
            | Self::Thinking { .. }
            | Self::Warning { .. }
            | Self::Stdout { .. }
            | Self::Thinned { .. }
            | Self::Status { .. }
            | Self::Error { .. }
            | Self::Result { .. }
            | Self::Raw { .. }
            | Self::FormerPayload { .. }
            | Self::Continued { .. } => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// The same without the sum of a file, to be changed.
    pub fn labels_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let (one, other) = match self {
            Self::Progress { note, .. } => (note.as_mut(), None),
            Self::ToolCall { call, tool, .. } => (Some(call), Some(tool)),
            Self::ToolResult { call, tool, .. } => (Some(call), tool.as_mut()),
            Self::File { path, .. } => (Some(path), None),
            Self::Usage(usage) => (usage.model.as_mut(), None),
            Self::Session { id } => (Some(id), None),
            Self::Transition { why, .. } => (Some(why), None),
            Self::Log { .. }
            | Self::Prompt { .. }
            | Self::Message { .. }
            | Self::Thinking { .. }
            | Self::Warning { .. }
            | Self::Stdout { .. }
            | Self::Thinned { .. }
            | Self::Status { .. }
            | Self::Error { .. }
            | Self::Result { .. }
            | Self::Raw { .. }
            | Self::FormerPayload { .. }
            | Self::Continued { .. } => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// An informational line of the handler.
    #[must_use]
    pub fn line(text: impl Into<String>) -> Self {
        Self::Log { level: Level::Info, stream: LogStream::Log, text: text.into() }
    }

    /// A warning.
    #[must_use]
    pub fn warning(text: impl Into<String>) -> Self {
        Self::Warning { text: text.into() }
    }
}

/// A set of event kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKinds(u32);

impl EventKinds {
    /// All kinds, with those of later versions.
    pub const ALL: Self = Self(u32::MAX >> 1);
    pub const NONE: Self = Self(0);

    /// These, and this one.
    #[must_use]
    pub const fn with(self, kind: EventKind) -> Self {
        Self(self.0 | 1 << kind.code())
    }

    /// These, but not this one.
    #[must_use]
    pub const fn without(self, kind: EventKind) -> Self {
        Self(self.0 & !(1 << kind.code()))
    }

    /// Only this one.
    #[must_use]
    pub const fn only(kind: EventKind) -> Self {
        Self::NONE.with(kind)
    }

    /// Whether this kind is among them.
    #[must_use]
    pub const fn has(self, kind: EventKind) -> bool {
        self.0 & 1 << kind.code() != 0
    }

    /// One bit for each kind, at its code.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether none of these may be [thinned](Loss::Thinned).
    #[must_use]
    pub fn is_lossless(self) -> bool {
        EventKind::ALL.iter().all(|kind| !self.has(*kind) || kind.loss() == Loss::None)
    }
}

impl FromIterator<EventKind> for EventKinds {
    fn from_iter<I: IntoIterator<Item = EventKind>>(all: I) -> Self {
        all.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_kind_is_its_place_in_the_list_and_names_are_found_again() {
        for (at, kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), at);
            assert_eq!(EventKind::named(kind.name()), Some(*kind));
        }
    }

    #[test]
    fn a_set_has_what_was_added_and_is_lossless_without_logs_and_progress() {
        let set = EventKinds::only(EventKind::File).with(EventKind::Usage);
        assert!(set.has(EventKind::File) && set.has(EventKind::Usage) && !set.has(EventKind::Log));
        assert!(set.is_lossless() && !set.with(EventKind::Progress).is_lossless());
        assert!(!EventKinds::ALL.is_lossless());
    }
}
