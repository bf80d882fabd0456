//! Calls of a log: each with its answer, and the order in which calls may have been carried out.

use std::collections::HashMap;

use ostler_core::TaskId;

use super::log::{Answer, Call, Line};

/// A call, with the lines where it was made and answered.
pub(super) struct Made<'a> {
    pub(super) call: &'a Call,
    pub(super) asked_at: usize,
    pub(super) answer: Option<&'a Answer>,
    /// After all lines if there is no answer: the call may have been carried out at the very end.
    pub(super) answered_at: usize,
}

impl Made<'_> {
    /// Whether the call may have been carried out, according to the log.
    pub(super) fn may_have_happened(&self) -> bool {
        self.answer != Some(&Answer::Nothing)
    }
}

pub(super) struct Told<'a> {
    pub(super) calls: Vec<Made<'a>>,
    /// The positions of a task's calls.
    by_task: HashMap<TaskId, Vec<usize>>,
}

impl<'a> Told<'a> {
    pub(super) fn from(lines: &'a [Line]) -> Self {
        let mut calls: Vec<Made<'a>> = Vec::new();
        let mut open: HashMap<&str, usize> = HashMap::new();
        let mut by_task: HashMap<TaskId, Vec<usize>> = HashMap::new();
        for (place, line) in lines.iter().enumerate() {
            match line {
                Line::Ask(number, call) => {
                    for task in tasks_of(call) {
                        by_task.entry(*task).or_default().push(calls.len());
                    }
                    open.insert(number, calls.len());
                    calls.push(Made { call, asked_at: place, answer: None, answered_at: usize::MAX });
                }
                Line::Ack(number, answer) => {
                    let call = open.remove(number.as_str()).expect("an answer follows its call");
                    calls[call].answer = Some(answer);
                    calls[call].answered_at = place;
                }
            }
        }
        Self { calls, by_task }
    }

    pub(super) fn of(&self, task: TaskId) -> impl Iterator<Item = &Made<'a>> {
        self.by_task.get(&task).into_iter().flatten().map(|at| &self.calls[*at])
    }

    /// Whether a matching call on the task was, or may have been, carried out after `since` was made.
    pub(super) fn later(&self, task: TaskId, since: &Made<'_>, such: impl Fn(&Call) -> bool) -> bool {
        self.of(task).any(|made| {
            such(made.call)
                && made.may_have_happened()
                && made.answered_at > since.asked_at
                && made.asked_at != since.asked_at
        })
    }

    fn pruned_old(&self) -> bool {
        self.calls.iter().any(|made| *made.call == Call::PruneOld && made.answer != Some(&Answer::Pruned(0)))
    }

    pub(super) fn may_be_pruned(&self, task: TaskId) -> bool {
        self.pruned_old() || self.of(task).any(|made| matches!(made.call, Call::Prune(_)))
    }
}

/// The tasks named by a call.
pub(super) fn tasks_of(call: &Call) -> &[TaskId] {
    match call {
        Call::Enqueue(tasks) | Call::Prune(tasks) => tasks,
        Call::Start(task, _)
        | Call::Finish(task, _)
        | Call::SaveStep(task, _)
        | Call::Append(task)
        | Call::Cancel(task)
        | Call::Replay(task) => std::slice::from_ref(task),
        Call::Join(_)
        | Call::Leave(_)
        | Call::Report(..)
        | Call::Configure(..)
        | Call::Expire
        | Call::Claim
        | Call::PruneOld => &[],
    }
}
