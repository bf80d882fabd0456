//! Updates of a session: messages, thoughts, tools and plans, as events of the transcript.
//!
//! Messages and thoughts come in pieces, and no line repeats them whole. They are put together here, and their lines are not kept:
//! nothing but their text is in them. A long one is stored in parts, and so is one whose agent takes its time: the transcript is live, and
//! little is lost with a node.

use ostler_core::Role;
use serde_json::Value;

use super::messages::AcpToolCall;
use super::tools::ToolCalls;
use crate::dialect::Speech;
use crate::fact::Fact;
use crate::json::{list, text};
use crate::transcript::{continued, raw, said, status, thought};

/// Bytes of a message from which on it is stored at the end of a line.
const PART_BYTES: usize = 2 << 10;
/// Bytes of a message at which it is stored wherever it is.
const MAX_PART_BYTES: usize = 64 << 10;
/// Bytes of a word. A longer one, or a text without blanks, is cut where it is.
const MAX_WORD_BYTES: usize = 64;
/// Bytes of the answer, but for the piece that passes them.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What a turn has brought so far.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// Pieces that are not in the transcript yet.
    pending: Option<(Voice, String)>,
    /// Whose words are in the transcript in part.
    begun: Option<Voice>,
    /// The last message: the answer, if none follows.
    pub(super) answer: String,
    message: Option<String>,
    /// Whether the next piece begins another message.
    is_complete: bool,
    pub(super) tools: ToolCalls,
    pub(super) has_called: bool,
    /// Model requests, as far as they can be told: what follows the end of all tools is the answer to another one.
    pub(super) requests: u32,
    is_answered: bool,
}

/// Whose words they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Message,
    Thought,
}

impl Updates {
    /// What an update means. Its line is kept if there is more in it than text that is kept anyhow.
    pub(super) fn read(&mut self, update: &Value, line: &[u8]) -> Vec<Fact> {
        match text(update, "sessionUpdate").unwrap_or_default() {
            "agent_message_chunk" => self.piece(Voice::Message, update, line),
            "agent_thought_chunk" => self.piece(Voice::Thought, update, line),
            "tool_call" | "tool_call_update" => match serde_json::from_value::<AcpToolCall>(update.clone()) {
                Ok(call) => self.tool(call, line),
                Err(_) => vec![raw(line).into()],
            },
            "plan" => self.beside(line, status(format!("plan: {}", plan(update)))),
            "current_mode_update" => {
                let mode = text(update, "currentModeId").unwrap_or_default();
                self.beside(line, status(format!("mode: {mode}")))
            }
            // The prompt is in the transcript, and what could be asked for is not of interest.
            "user_message_chunk" | "available_commands_update" => Vec::new(),
            _ => vec![raw(line).into()],
        }
    }

    /// A question for permission has the call that it is about.
    pub(super) fn asked(&mut self, call: &AcpToolCall) -> (AcpToolCall, Vec<Fact>) {
        let mut facts = self.flush_text();
        facts.extend(self.request());
        (self.tools.known(call), facts)
    }

    /// The tool that was asked for runs.
    pub(super) fn allowed(&mut self, call: AcpToolCall) -> Vec<Fact> {
        self.called();
        self.tools.allowed(call)
    }

    /// It does not.
    pub(super) fn denied(&mut self, call: AcpToolCall) -> Vec<Fact> {
        self.called();
        let facts = self.tools.denied(call);
        self.is_answered = true;
        facts
    }

    /// What is not in the transcript yet.
    pub(super) fn flush(&mut self) -> Vec<Fact> {
        let mut facts = self.flush_text();
        facts.extend(self.tools.flush());
        facts
    }

    /// Bytes of the pieces that are not in the transcript yet. Blanks wait for words.
    pub(super) fn unsaid(&self) -> usize {
        self.pending.as_ref().map_or(0, |(_, words)| words.trim().len())
    }

    /// The pieces so far. Of an agent that goes on they are cut where a line ends, or a word.
    pub(super) fn say(&mut self, speech: Speech) -> Option<Fact> {
        let (_, words) = self.pending.as_ref()?;
        let has_words = |end: usize| (!words[..end].trim().is_empty()).then_some(end);
        let end = match speech {
            Speech::Pauses => has_words(words.len())?,
            Speech::GoesOn => {
                let lines = words.rfind('\n').map_or(0, |at| at + 1);
                let whole = words.trim_end_matches(|letter: char| !letter.is_whitespace()).len();
                let long = if words.len() < MAX_WORD_BYTES { 0 } else { words.len() };
                [lines, whole, long].into_iter().find_map(has_words)?
            }
        };
        self.part(end)
    }

    /// Whether something was said since a tool was called.
    pub(super) const fn has_last_word(&self) -> bool {
        !self.is_complete
    }

    fn piece(&mut self, voice: Voice, update: &Value, line: &[u8]) -> Vec<Fact> {
        let content = update.get("content").unwrap_or(&Value::Null);
        let Some(words) = text(content, "text").filter(|_| text(content, "type") == Some("text")) else {
            // A picture, a file.
            return self
                .beside(line, status(format!("content: {}", text(content, "type").unwrap_or("unknown"))));
        };
        let mut facts: Vec<Fact> = self.request().into_iter().collect();
        let message = text(update, "messageId");
        let is_other = message.is_some() && self.message.is_some() && message != self.message.as_deref();
        if is_other
            || self.begun.is_some_and(|other| other != voice)
            || self.pending.as_ref().is_some_and(|(other, _)| *other != voice)
        {
            facts.extend(self.flush_text());
        }
        if voice == Voice::Message {
            if (is_other || self.is_complete) && !words.is_empty() {
                self.answer.clear();
                self.is_complete = false;
            }
            if self.answer.len() <= MAX_ANSWER_BYTES {
                self.answer.push_str(words);
            }
        }
        self.message = message.map(str::to_owned).or_else(|| self.message.take());
        let (_, pending) = self.pending.get_or_insert_with(|| (voice, String::new()));
        pending.push_str(words);
        let is_long = pending.len() >= PART_BYTES && words.contains('\n') || pending.len() >= MAX_PART_BYTES;
        if is_long {
            facts.extend(self.part(usize::MAX));
        }
        facts
    }

    fn tool(&mut self, call: AcpToolCall, line: &[u8]) -> Vec<Fact> {
        let mut facts = self.flush_text();
        if !self.tools.is_repeated(&call) {
            facts.push(raw(line).into());
        }
        if self.tools.is_new(&call) {
            facts.extend(self.request());
        }
        self.called();
        let was_running = self.tools.is_running();
        facts.extend(self.tools.update(call));
        let has_ended = facts.iter().any(|fact| matches!(fact, Fact::ToolFinished { .. }));
        if (was_running || has_ended) && !self.tools.is_running() {
            self.is_answered = true;
        }
        facts
    }

    fn called(&mut self) {
        self.has_called = true;
        self.is_complete = true;
    }

    /// The model has said something. Whether it was asked once more for it.
    fn request(&mut self) -> Option<Fact> {
        if self.requests > 0 && !std::mem::replace(&mut self.is_answered, false) {
            return None;
        }
        self.is_answered = false;
        self.requests += 1;
        Some(Fact::Turns(self.requests))
    }

    /// Something between the messages.
    fn beside(&mut self, line: &[u8], fact: Fact) -> Vec<Fact> {
        let mut facts = self.flush_text();
        facts.extend([raw(line).into(), fact]);
        facts
    }

    /// All of the pieces: the message is at its end.
    fn flush_text(&mut self) -> Vec<Fact> {
        let rest = self.part(usize::MAX);
        self.begun = None;
        rest.into_iter().collect()
    }

    /// The pieces up to here, as a part of their message.
    fn part(&mut self, end: usize) -> Option<Fact> {
        let (voice, mut part) = self.pending.take()?;
        let rest = part.split_off(end.min(part.len()));
        self.pending = (!rest.is_empty()).then_some((voice, rest));
        if part.trim().is_empty() {
            return None;
        }
        Some(match (voice, self.begun.replace(voice) == Some(voice)) {
            (Voice::Message, false) => said(Role::Assistant, part),
            (Voice::Thought, false) => thought(part),
            (Voice::Message, true) => continued(Some(Role::Assistant), part),
            (Voice::Thought, true) => continued(None, part),
        })
    }
}

/// `[x] done; [ ] to do`.
fn plan(update: &Value) -> String {
    let entry = |entry: &Value| {
        let mark = match text(entry, "status") {
            Some("completed") => "x",
            Some("in_progress") => ">",
            _ => " ",
        };
        format!("[{mark}] {}", text(entry, "content").unwrap_or_default())
    };
    list(update, "entries").iter().map(entry).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use ostler_core::EventBody;
    use serde_json::json;

    use super::*;

    fn piece(updates: &mut Updates, words: &str) {
        let content = json!({"type": "text", "text": words});
        updates.read(&json!({"sessionUpdate": "agent_message_chunk", "content": content}), b"");
    }

    fn words(fact: Option<Fact>) -> Option<String> {
        let Fact::Event(EventBody::Message { text, .. } | EventBody::Continued { text, .. }) = fact? else {
            panic!("it is a message")
        };
        Some(text)
    }

    #[test]
    fn a_part_that_follows_is_more_of_its_message_and_not_another_one() {
        let mut updates = Updates::default();
        let mut parts = Vec::new();
        for words in ["One", " two", " three"] {
            piece(&mut updates, words);
            parts.extend(updates.say(Speech::Pauses));
        }
        let more = |text: &str| continued(Some(Role::Assistant), text);
        assert_eq!(parts, [said(Role::Assistant, "One"), more(" two"), more(" three")]);
        updates.read(&json!({"sessionUpdate": "plan", "entries": []}), b"{}");
        piece(&mut updates, "Another.");
        assert_eq!(updates.flush(), [said(Role::Assistant, "Another.")]);
    }

    #[test]
    fn words_of_an_agent_that_goes_on_are_cut_at_a_line_or_between_words_and_nothing_is_lost() {
        let mut updates = Updates::default();
        assert_eq!(words(updates.say(Speech::Pauses)), None);
        piece(&mut updates, "One line.\nAnd a beg");
        let mut whole = words(updates.say(Speech::GoesOn)).expect("the line");
        assert_eq!((whole.as_str(), updates.unsaid()), ("One line.\n", "And a beg".len()));
        whole += &words(updates.say(Speech::GoesOn)).expect("whole words");
        assert_eq!(whole, "One line.\nAnd a ");
        assert_eq!(words(updates.say(Speech::GoesOn)), None, "half a word waits");
        piece(&mut updates, "inning.");
        whole += &words(updates.say(Speech::Pauses)).expect("all of it");
        assert_eq!((whole.as_str(), updates.unsaid()), ("One line.\nAnd a beginning.", 0));
        piece(&mut updates, "\n");
        assert_eq!((words(updates.say(Speech::Pauses)), updates.unsaid()), (None, 0), "blanks wait");
        let long = "x".repeat(MAX_WORD_BYTES);
        piece(&mut updates, &long);
        whole += &words(updates.say(Speech::GoesOn)).expect("a text without blanks");
        assert_eq!(whole, updates.answer, "the answer is whole, and has no other parts");
    }
}
