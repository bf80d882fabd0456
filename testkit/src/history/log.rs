//! Log of calls and answers: one line each, appended and synced, so that it survives the process that writes it.
//!
//! ```text
//! ask 4242.7 finish 01JC8Z0Q4M9T7N3V5X1B2D6F8H 3
//! ack 4242.7 finished completed
//! ```
//!
//! A line cut short by a kill is the last one of its file, and is ignored.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_core::{SessionId, StateName, TaskId};

/// A call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A node joins.
    Join(SessionId),
    /// A node leaves.
    Leave(SessionId),
    /// A node reports this many workers.
    Report(SessionId, usize),
    /// Sets the maximum number of waiting tasks in a queue.
    Configure(String, u64),
    /// Expires dead nodes.
    Expire,
    Enqueue(Vec<TaskId>),
    Claim,
    /// An attempt starts; with its token.
    Start(TaskId, u64),
    /// An attempt finishes, with any outcome; with its token.
    Finish(TaskId, u64),
    /// Saves a step with this name.
    SaveStep(TaskId, String),
    /// Appends events.
    Append(TaskId),
    Cancel(TaskId),
    /// Replays, keeping the steps.
    Replay(TaskId),
    /// Removes these tasks.
    Prune(Vec<TaskId>),
    /// Removes old tasks.
    PruneOld,
}

/// The store's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Joined,
    Left,
    Reported,
    Configured,
    /// These sessions were ended.
    Expired(Vec<SessionId>),
    /// All tasks of the call are stored.
    Enqueued,
    /// These tasks, with these tokens.
    Claimed(Vec<(TaskId, u64)>),
    Started,
    /// The outcome is recorded, and this is the task's state now.
    Finished(StateName),
    StepSaved,
    /// The events are stored; the last one has this number.
    Appended(u64),
    Cancelled,
    /// A running task is marked to be cancelled.
    CancelRequested,
    /// The task is queued again.
    Replayed,
    /// This many tasks were removed.
    Pruned(usize),
    /// The store did nothing.
    Nothing,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A call is about to be made.
    Ask(String, Call),
    /// The call with this number was answered.
    Ack(String, Answer),
}

/// The file that lines are appended to. Several processes may have it open.
#[derive(Debug)]
pub struct Log {
    file: File,
    next: AtomicU64,
}

/// A logged call without an answer yet.
#[derive(Debug)]
#[must_use = "a call without its answer may have been carried out or not"]
pub struct Asked<'a> {
    log: &'a Log,
    number: String,
}

impl Log {
    /// Opens the log at this path, created if missing.
    ///
    /// # Panics
    /// When the file cannot be opened.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("the log can be written");
        Self { file, next: AtomicU64::new(0) }
    }

    /// Logs that a call is about to be made.
    pub fn ask(&self, call: &Call) -> Asked<'_> {
        let number = format!("{}.{}", std::process::id(), self.next.fetch_add(1, Ordering::SeqCst));
        self.append(&Line::Ask(number.clone(), call.clone()));
        Asked { log: self, number }
    }

    fn append(&self, line: &Line) {
        // One write per line, so that lines of several writers do not interleave.
        let text = format!("{}\n", print(line));
        (&self.file).write_all(text.as_bytes()).expect("the log can be written");
        self.file.sync_data().expect("the log can be synced");
    }
}

impl Asked<'_> {
    /// Logs the answer.
    pub fn answered(self, answer: Answer) {
        self.log.append(&Line::Ack(self.number, answer));
    }
}

/// All complete lines of a log.
///
/// # Panics
/// When the log cannot be read, or has an invalid line other than a truncated last one.
#[must_use]
pub fn read(path: &Path) -> Vec<Line> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    read_text(&String::from_utf8(bytes).expect("a log is text"))
}

/// All complete lines of a log's text.
///
/// # Panics
/// When the log has an invalid line other than a truncated last one.
#[must_use]
pub fn read_text(text: &str) -> Vec<Line> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| parse(line).unwrap_or_else(|| panic!("\"{line}\" is not a line of a log")))
        .collect()
}

fn print(line: &Line) -> String {
    let tasks = |tasks: &[TaskId]| tasks.iter().map(|task| format!(" {task}")).collect::<String>();
    match line {
        Line::Ask(number, call) => {
            let call = match call {
                Call::Join(session) => format!("join {session}"),
                Call::Leave(session) => format!("leave {session}"),
                Call::Report(session, workers) => format!("report {session} {workers}"),
                Call::Configure(queue, limit) => format!("configure {queue} {limit}"),
                Call::Expire => "expire".to_owned(),
                Call::Enqueue(ids) => format!("enqueue{}", tasks(ids)),
                Call::Claim => "claim".to_owned(),
                Call::Start(task, token) => format!("start {task} {token}"),
                Call::Finish(task, token) => format!("finish {task} {token}"),
                Call::SaveStep(task, name) => format!("save_step {task} {name}"),
                Call::Append(task) => format!("append {task}"),
                Call::Cancel(task) => format!("cancel {task}"),
                Call::Replay(task) => format!("replay {task}"),
                Call::Prune(ids) => format!("prune{}", tasks(ids)),
                Call::PruneOld => "prune_old".to_owned(),
            };
            format!("ask {number} {call}")
        }
        Line::Ack(number, answer) => {
            let answer = match answer {
                Answer::Joined => "joined".to_owned(),
                Answer::Left => "left".to_owned(),
                Answer::Reported => "reported".to_owned(),
                Answer::Configured => "configured".to_owned(),
                Answer::Expired(sessions) => {
                    format!(
                        "expired{}",
                        sessions.iter().map(|session| format!(" {session}")).collect::<String>()
                    )
                }
                Answer::Enqueued => "enqueued".to_owned(),
                Answer::Claimed(leases) => {
                    let leases = leases.iter().map(|(task, token)| format!(" {task}:{token}"));
                    format!("claimed{}", leases.collect::<String>())
                }
                Answer::Started => "started".to_owned(),
                Answer::Finished(state) => format!("finished {}", state.name()),
                Answer::StepSaved => "step_saved".to_owned(),
                Answer::Appended(last) => format!("appended {last}"),
                Answer::Cancelled => "cancelled".to_owned(),
                Answer::CancelRequested => "cancel_requested".to_owned(),
                Answer::Replayed => "replayed".to_owned(),
                Answer::Pruned(count) => format!("pruned {count}"),
                Answer::Nothing => "nothing".to_owned(),
            };
            format!("ack {number} {answer}")
        }
    }
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let [side, number, verb, rest @ ..] = &words[..] else { return None };
    let number = (*number).to_owned();
    match *side {
        "ask" => Some(Line::Ask(number, parse_call(verb, rest)?)),
        "ack" => Some(Line::Ack(number, parse_answer(verb, rest)?)),
        _ => None,
    }
}

fn parse_call(verb: &str, rest: &[&str]) -> Option<Call> {
    let tasks = || rest.iter().map(|id| id.parse().ok()).collect::<Option<Vec<TaskId>>>();
    Some(match (verb, rest) {
        ("join", [session]) => Call::Join(session.parse().ok()?),
        ("leave", [session]) => Call::Leave(session.parse().ok()?),
        ("report", [session, workers]) => Call::Report(session.parse().ok()?, workers.parse().ok()?),
        ("configure", [queue, limit]) => Call::Configure((*queue).to_owned(), limit.parse().ok()?),
        ("expire", []) => Call::Expire,
        ("enqueue", _) => Call::Enqueue(tasks()?),
        ("claim", []) => Call::Claim,
        ("start", [task, token]) => Call::Start(task.parse().ok()?, token.parse().ok()?),
        ("finish", [task, token]) => Call::Finish(task.parse().ok()?, token.parse().ok()?),
        ("save_step", [task, name]) => Call::SaveStep(task.parse().ok()?, (*name).to_owned()),
        ("append", [task]) => Call::Append(task.parse().ok()?),
        ("cancel", [task]) => Call::Cancel(task.parse().ok()?),
        ("replay", [task]) => Call::Replay(task.parse().ok()?),
        ("prune", _) => Call::Prune(tasks()?),
        ("prune_old", []) => Call::PruneOld,
        _ => return None,
    })
}

fn parse_answer(verb: &str, rest: &[&str]) -> Option<Answer> {
    let lease = |text: &&str| {
        let (task, token) = text.split_once(':')?;
        Some((task.parse().ok()?, token.parse().ok()?))
    };
    Some(match (verb, rest) {
        ("joined", []) => Answer::Joined,
        ("left", []) => Answer::Left,
        ("reported", []) => Answer::Reported,
        ("configured", []) => Answer::Configured,
        ("expired", sessions) => {
            Answer::Expired(sessions.iter().map(|id| id.parse().ok()).collect::<Option<_>>()?)
        }
        ("enqueued", []) => Answer::Enqueued,
        ("claimed", leases) => Answer::Claimed(leases.iter().map(lease).collect::<Option<_>>()?),
        ("started", []) => Answer::Started,
        ("finished", [state]) => Answer::Finished(StateName::named(state)?),
        ("step_saved", []) => Answer::StepSaved,
        ("appended", [last]) => Answer::Appended(last.parse().ok()?),
        ("cancelled", []) => Answer::Cancelled,
        ("cancel_requested", []) => Answer::CancelRequested,
        ("replayed", []) => Answer::Replayed,
        ("pruned", [count]) => Answer::Pruned(count.parse().ok()?),
        ("nothing", []) => Answer::Nothing,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ids;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        let ids = Ids::new(1);
        let (a, b) = (ids.task(), ids.task());
        let node = ids.session();
        let calls = [
            Call::Join(node),
            Call::Leave(node),
            Call::Report(node, 2),
            Call::Configure("mail".to_owned(), 10),
            Call::Expire,
            Call::Enqueue(vec![a, b]),
            Call::Claim,
            Call::Start(a, 1),
            Call::Finish(a, 2),
            Call::SaveStep(a, "fetched".to_owned()),
            Call::Append(a),
            Call::Cancel(a),
            Call::Replay(a),
            Call::Prune(vec![a]),
            Call::PruneOld,
        ];
        let answers = [
            Answer::Joined,
            Answer::Left,
            Answer::Reported,
            Answer::Configured,
            Answer::Expired(vec![node]),
            Answer::Expired(vec![]),
            Answer::Enqueued,
            Answer::Claimed(vec![(a, 1), (b, 7)]),
            Answer::Claimed(vec![]),
            Answer::Started,
            Answer::Finished(StateName::Completed),
            Answer::StepSaved,
            Answer::Appended(9),
            Answer::Cancelled,
            Answer::CancelRequested,
            Answer::Replayed,
            Answer::Pruned(1),
            Answer::Nothing,
        ];
        let asks = calls.into_iter().map(|call| Line::Ask("1.0".to_owned(), call));
        let lines: Vec<Line> =
            asks.chain(answers.into_iter().map(|a| Line::Ack("1.0".to_owned(), a))).collect();
        let text: String = lines.iter().map(|line| format!("{}\n", print(line))).collect();
        assert_eq!(read_text(&text), lines);
    }

    #[test]
    fn a_last_line_that_was_cut_short_is_left_out() {
        assert_eq!(read_text("ask 1.0 claim\nack 1.0 clai"), [Line::Ask("1.0".to_owned(), Call::Claim)]);
        assert_eq!(read_text("ask 1.0 cl"), []);
    }

    #[test]
    #[should_panic(expected = "\"ack 1.0 clai\" is not a line of a log")]
    fn a_line_in_the_middle_that_is_none_is_not_left_out() {
        let _ = read_text("ack 1.0 clai\nask 1.1 claim\n");
    }
}
