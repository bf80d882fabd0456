//! An answer while it arrives: its text, its usage, and why it stopped. The readers of the three APIs fill it in; it has no I/O.

use ostler_core::{Role, Usage, UsageSource};

use crate::ending::{AgentAnswer, Trouble};
use crate::fact::Fact;
use crate::reason::Reason;
use crate::transcript::{said, thought};

/// Bytes of text for one token: what English text has on average.
const BYTES_PER_TOKEN: u64 = 4;

/// How many tokens a text of this many bytes has, about.
pub(super) const fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// What is known of an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    text: String,
    /// Pieces that are not in the transcript yet.
    pending: Vec<Piece>,
    /// Bytes of all that the model wrote, its reasoning included.
    written_bytes: usize,
    model: Option<String>,
    tokens: Option<Tokens>,
    /// The usage is what the provider bills.
    has_final_usage: bool,
    stop: Option<Stop>,
    /// The text is whole, though more events may follow.
    has_finished: bool,
    /// The last event of the stream was there.
    is_complete: bool,
    trouble: Option<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Thinking(String),
}

/// Tokens, as far as a provider has reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// Without those of the cache.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) reasoning: u64,
}

/// Why a model stopped to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Finished,
    OutputLimit,
    ContextFull,
    /// In the words of the model or of its provider.
    Refused(String),
    /// A filter of the provider.
    Filtered,
    /// It waits for something that there is not: the result of a tool.
    Unfinished(String),
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The server closed it.
    Closed,
    /// It broke, or a limit was reached: a sentence.
    Broken(String),
}

impl Answer {
    pub(super) fn say(&mut self, text: &str) {
        self.text.push_str(text);
        self.written_bytes += text.len();
        match self.pending.last_mut() {
            Some(Piece::Text(piece)) => piece.push_str(text),
            Some(Piece::Thinking(_)) | None if text.is_empty() => {}
            Some(Piece::Thinking(_)) | None => self.pending.push(Piece::Text(text.to_owned())),
        }
    }

    pub(super) fn think(&mut self, text: &str) {
        self.written_bytes += text.len();
        match self.pending.last_mut() {
            Some(Piece::Thinking(piece)) => piece.push_str(text),
            Some(Piece::Text(_)) | None if text.is_empty() => {}
            Some(Piece::Text(_)) | None => self.pending.push(Piece::Thinking(text.to_owned())),
        }
    }

    /// What else the model wrote, such as the input of a tool: it is paid for.
    pub(super) fn wrote(&mut self, text: &str) {
        self.written_bytes += text.len();
    }

    pub(super) fn named(&mut self, model: Option<&str>) {
        if let Some(model) = model.filter(|model| !model.is_empty()) {
            self.model = Some(model.to_owned());
        }
    }

    /// Usage so far.
    pub(super) fn used(&mut self, tokens: Tokens) {
        self.tokens = Some(tokens);
    }

    pub(super) fn tokens(&self) -> Tokens {
        self.tokens.unwrap_or_default()
    }

    /// Usage that will not change.
    pub(super) fn used_in_all(&mut self, tokens: Tokens) {
        self.tokens = Some(tokens);
        self.has_final_usage = true;
    }

    pub(super) fn stopped(&mut self, stop: Stop) {
        self.stop = Some(stop);
    }

    /// The text is whole. A refusal that was seen before stays one.
    pub(super) fn finished(&mut self, stop: Stop) {
        self.has_finished = true;
        if !matches!(self.stop, Some(Stop::Refused(_))) {
            self.stop = Some(stop);
        }
    }

    pub(super) const fn complete(&mut self) {
        self.is_complete = true;
    }

    /// The first trouble counts.
    pub(super) fn fail(&mut self, trouble: Trouble) {
        self.trouble.get_or_insert(trouble);
    }

    /// Whether nothing more is expected.
    pub(super) const fn is_over(&self) -> bool {
        self.is_complete || self.trouble.is_some()
    }

    /// Bytes that are not in the transcript yet.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|(Piece::Text(piece) | Piece::Thinking(piece))| piece.len()).sum()
    }

    /// The pieces that are not in the transcript yet.
    pub(super) fn flush(&mut self) -> Vec<Fact> {
        let facts = self.pending.drain(..).map(|piece| match piece {
            Piece::Text(text) => said(Role::Assistant, text),
            Piece::Thinking(text) => thought(text),
        });
        facts.collect()
    }

    /// What the request was billed for, if the provider has said it.
    pub(super) fn final_usage(&self, model: &str) -> Option<Usage> {
        self.has_final_usage.then(|| self.usage(model, self.tokens(), UsageSource::Reported))
    }

    /// What the request has used so far: what was reported, and at least what was seen. `request_bytes` is what was asked.
    pub(super) fn usage_so_far(&self, model: &str, request_bytes: usize) -> Usage {
        let reported = self.tokens();
        let known_input = reported.input + reported.cache_read + reported.cache_write;
        let tokens = Tokens {
            input: if known_input > 0 { reported.input } else { estimated_tokens(request_bytes) },
            output: reported.output.max(estimated_tokens(self.written_bytes)),
            ..reported
        };
        self.usage(model, tokens, UsageSource::Estimated)
    }

    /// Whether the provider has begun to work on it: it is paid for then.
    pub(super) fn has_begun(&self) -> bool {
        self.written_bytes > 0 || self.tokens.is_some() || self.trouble.is_none()
    }

    /// The model that answered; `asked` if the answer does not say it.
    pub(super) fn model<'a>(&'a self, asked: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(asked)
    }

    fn usage(&self, model: &str, tokens: Tokens, source: UsageSource) -> Usage {
        Usage {
            model: Some(model.to_owned()),
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            reasoning_tokens: tokens.reasoning,
            cost: None,
            source,
        }
    }

    /// The answer, or why there is none. What was written is kept with it.
    pub(super) fn conclude(&self, end: &StreamEnd) -> Result<AgentAnswer, Trouble> {
        let with_text = |reason, message: &str| {
            let details = (!self.text.is_empty()).then(|| self.text.clone());
            Trouble { details, ..Trouble::new(reason, message) }
        };
        if let Some(trouble) = &self.trouble {
            let details = trouble.details.clone().or_else(|| with_text(trouble.reason, "").details);
            return Err(Trouble { details, ..trouble.clone() });
        }
        let Some(stop) = self.stop.as_ref().filter(|_| self.is_complete || self.has_finished) else {
            return Err(match end {
                StreamEnd::Closed => {
                    with_text(Reason::BrokenStream, "the stream ended before the answer was complete")
                }
                StreamEnd::Broken(why) => with_text(
                    Reason::BrokenStream,
                    &format!("the stream broke before the answer was complete: {why}"),
                ),
            });
        };
        match stop {
            Stop::Finished if self.text.trim().is_empty() => {
                Err(Trouble::new(Reason::NoAnswer, "the model answered with no text"))
            }
            Stop::Finished => Ok(AgentAnswer { text: self.text.clone(), ..AgentAnswer::default() }),
            Stop::OutputLimit => {
                Err(with_text(Reason::OutputLimit, "the answer was longer than max_tokens allows"))
            }
            Stop::ContextFull => {
                Err(with_text(Reason::ContextTooLong, "the context of the model was full before it was done"))
            }
            Stop::Refused(why) if why.is_empty() => Err(with_text(Reason::Refused, "the model refused")),
            Stop::Refused(why) => Err(with_text(Reason::Refused, &format!("the model refused: {why}"))),
            Stop::Filtered => {
                Err(with_text(Reason::Refused, "a content filter of the provider stopped the answer"))
            }
            Stop::Unfinished(what) => Err(with_text(
                Reason::BadRequest,
                &format!("the model stopped with {what}, which a pool of this kind cannot answer"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_reach_the_transcript_once_and_in_order() {
        let mut answer = Answer::default();
        answer.think("hm");
        answer.think("m");
        answer.say("a");
        answer.say("b");
        assert_eq!(answer.pending_bytes(), 5);
        assert_eq!(answer.flush(), [thought("hmm"), said(Role::Assistant, "ab")]);
        answer.say("c");
        assert_eq!(answer.flush(), [said(Role::Assistant, "c")]);
        assert_eq!((answer.flush(), answer.text.as_str()), (Vec::new(), "abc"));
    }

    #[test]
    fn what_was_seen_is_counted_when_nothing_was_reported() {
        let mut answer = Answer::default();
        answer.say("12345");
        let usage = answer.usage_so_far("m", 400);
        assert_eq!((usage.input_tokens, usage.output_tokens), (100, 2));
        assert_eq!(usage.source, UsageSource::Estimated);
        answer.used(Tokens { input: 7, output: 30, ..Tokens::default() });
        let usage = answer.usage_so_far("m", 400);
        assert_eq!((usage.input_tokens, usage.output_tokens), (7, 30));
        assert_eq!(answer.final_usage("m"), None);
    }

    #[test]
    fn every_stop_has_its_reason_and_keeps_the_text() {
        for (stop, reason) in [
            (Stop::OutputLimit, Reason::OutputLimit),
            (Stop::ContextFull, Reason::ContextTooLong),
            (Stop::Refused(String::new()), Reason::Refused),
            (Stop::Filtered, Reason::Refused),
            (Stop::Unfinished("tool_use".into()), Reason::BadRequest),
        ] {
            let mut answer = Answer::default();
            answer.say("half");
            answer.stopped(stop);
            answer.complete();
            let trouble = answer.conclude(&StreamEnd::Closed).expect_err("it is no answer");
            assert_eq!((trouble.reason, trouble.details.as_deref()), (reason, Some("half")));
        }
        let mut answer = Answer::default();
        answer.stopped(Stop::Finished);
        answer.complete();
        assert_eq!(answer.conclude(&StreamEnd::Closed).expect_err("no text").reason, Reason::NoAnswer);
    }
}
