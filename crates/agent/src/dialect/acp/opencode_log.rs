//! The log of opencode: it tells each request to a model, of which the protocol says nothing.
//!
//! An answer that is no answer (an HTML page, a stream that ends early) is asked for again without an end, several times a second, and
//! some of that shows only here. A request after which no tool is called is the last one of a turn; so several of them in a row are such a
//! loop.

/// Requests in a row without a tool between them, after which a run is ended. A long conversation that is summarized has two.
const MAX_FRUITLESS: u32 = 4;
/// What opencode asks beside the conversation.
const SIDE_AGENTS: [&str; 3] = ["title", "summary", "compaction"];

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogEntry<'a> {
    /// A model is asked, in this session.
    Request { session: &'a str },
    /// Of interest only to developers of opencode.
    Noise,
    /// To be shown to the user.
    Shown,
}

/// Reads `timestamp=… level=INFO message=stream session.id=ses_1 small=false agent=build`.
pub(super) fn read(line: &str) -> LogEntry<'_> {
    let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    match (field("level"), field("message"), field("session.id")) {
        (Some("INFO"), Some("stream"), Some(session))
            if field("small") == Some("false")
                && field("agent").is_some_and(|agent| !SIDE_AGENTS.contains(&agent)) =>
        {
            LogEntry::Request { session }
        }
        (Some("INFO" | "DEBUG"), ..) => LogEntry::Noise,
        (..) => LogEntry::Shown,
    }
}

/// Counts requests, and those in a row that led to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestCount {
    pub(super) all: u32,
    fruitless: u32,
}

impl RequestCount {
    /// Another request. Whether it is one too many.
    pub(super) const fn add(&mut self) -> bool {
        self.all += 1;
        self.fruitless += 1;
        self.fruitless > MAX_FRUITLESS
    }

    /// A tool was called.
    pub(super) const fn tool(&mut self) {
        self.fruitless = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_titles_and_from_what_users_are_to_see() {
        let stream = "timestamp=2026-11-18T07:01:11.553Z level=INFO run=db8e1b7c message=stream providerID=x modelID=y session.id=ses_1";
        assert_eq!(
            read(&format!("{stream} small=false agent=build mode=primary")),
            LogEntry::Request { session: "ses_1" }
        );
        assert_eq!(read(&format!("{stream} small=true agent=title mode=primary")), LogEntry::Noise);
        assert_eq!(read(&format!("{stream} small=false agent=compaction mode=primary")), LogEntry::Noise);
        assert_eq!(read("timestamp=x level=ERROR run=1 message=\"stream error\""), LogEntry::Shown);
        assert_eq!(read("no log line at all"), LogEntry::Shown);
    }

    #[test]
    fn requests_in_a_row_without_a_tool_are_too_many_at_some_time() {
        let mut count = RequestCount::default();
        assert!((0..MAX_FRUITLESS).all(|_| !count.add()));
        count.tool();
        assert!((0..MAX_FRUITLESS).all(|_| !count.add()));
        assert!(count.add());
        assert_eq!(count.all, 2 * MAX_FRUITLESS + 1);
    }
}
