//! Recordings: what the real programs wrote and how they exited, many cases in one file, and how a case is replayed.
//!
//! A case begins with `=== name`. Then come `exit:` (negative: killed by that signal), `stop: gave up` if the recorder killed it,
//! `new:` or `resume:` with a session, `schema: asked`, `turns:` with their limit, and `stderr:` lines; and after an empty line the lines
//! of its standard output. Long texts and lists were shortened. Of the first case of the app server only 420 characters of each line
//! were recorded: they are closed where they were cut, and its turn has its status again.
//!
//! There are none of gemini and opencode: what was recorded of these are streams of their own, which no dialect reads. They are driven by
//! the Agent Client Protocol, which a stand-in and the real programs speak in the tests.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use ostler_agent::settings::SessionStart;
use ostler_agent::{
    AgentSettings, Dialect, Fact, LineSplitter, ProcessEnd, ProcessExit, RunReport, StopCause,
};
use ostler_core::Timestamp;

/// About when the recordings were made: an hour before the limits in them reset.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_794_838_200_000);

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) stdout: Vec<u8>,
    exit: i32,
    gave_up: bool,
    session: SessionStart,
    schema: Option<String>,
    max_turns: Option<u32>,
    stderr: String,
}

pub(crate) struct Replay {
    pub(crate) facts: Vec<Fact>,
    pub(crate) report: RunReport,
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

pub(crate) fn cases(file: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder("recordings").join(file)).expect("a recording");
    let cases: Vec<Case> = text.split("=== ").skip(1).map(case).collect();
    assert!(!cases.is_empty(), "{file} has cases");
    cases
}

pub(crate) fn named(file: &str, name: &str) -> Case {
    cases(file).into_iter().find(|case| case.name == name).expect("a case of this name")
}

fn case(text: &str) -> Case {
    let (head, stdout) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let mut case = Case {
        name: lines.next().expect("a name").to_owned(),
        stdout: stdout.trim_end_matches('\n').as_bytes().to_vec(),
        exit: 0,
        gave_up: false,
        session: SessionStart::New { id: "00000000-0000-4000-8000-000000000000".to_owned() },
        schema: None,
        max_turns: None,
        stderr: String::new(),
    };
    if !case.stdout.is_empty() {
        case.stdout.push(b'\n');
    }
    for line in lines {
        let (field, value) = line.split_once(": ").unwrap_or_else(|| panic!("{}: {line}", case.name));
        match field {
            "exit" => case.exit = value.parse().expect("a code"),
            "stop" => case.gave_up = true,
            "new" => case.session = SessionStart::New { id: value.to_owned() },
            "resume" => case.session = SessionStart::Resume { id: value.to_owned() },
            "schema" => case.schema = Some("{}".to_owned()),
            "turns" => case.max_turns = Some(value.parse().expect("a number")),
            "stderr" => case.stderr.extend([value, "\n"]),
            other => panic!("{}: a recording has no {other}", case.name),
        }
    }
    case
}

impl Case {
    pub(crate) fn settings(&self) -> AgentSettings {
        let mut settings = AgentSettings::new("Do it.", self.session.clone());
        settings.schema.clone_from(&self.schema);
        settings.max_turns = self.max_turns.unwrap_or(settings.max_turns);
        settings
    }

    /// The same case with another output.
    pub(crate) fn writing(self, stdout: Vec<u8>) -> Self {
        Self { stdout, ..self }
    }

    /// Replays the case, with its output cut into reads of these sizes, again and again.
    pub(crate) fn replay(&self, dialect: Dialect, reads: &[usize]) -> Replay {
        self.replay_with(dialect, &self.settings(), reads)
    }

    pub(crate) fn replay_with(&self, dialect: Dialect, settings: &AgentSettings, reads: &[usize]) -> Replay {
        let mut run = dialect.run(settings);
        let mut facts = run.open();
        let (mut lines, mut rest) = (LineSplitter::default(), self.stdout.as_slice());
        for size in reads.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (read, later) = rest.split_at((*size).clamp(1, rest.len()));
            for line in lines.push(read) {
                facts.extend(run.line(&line));
                if facts.last() == Some(&Fact::TurnLimit) {
                    facts.extend(run.interrupt());
                }
            }
            rest = later;
        }
        if let Some(line) = lines.end() {
            facts.extend(run.line(&line));
        }
        let stop = match (self.gave_up, facts.contains(&Fact::ResultSeen)) {
            (false, _) if facts.contains(&Fact::TurnLimit) => StopCause::TurnLimit,
            (false, _) => StopCause::None,
            (true, true) => StopCause::AfterResult,
            (true, false) => StopCause::Timeout,
        };
        let exit = if self.exit < 0 { ProcessExit::Signal(-self.exit) } else { ProcessExit::Code(self.exit) };
        let end = ProcessEnd { exit, stop, stderr: &self.stderr, now: NOW, zone: &TimeZone::UTC };
        Replay { report: run.end(&end), facts }
    }
}
