//! History checker. It derives what must hold from the log alone, and shares no rules with the store.

use std::collections::{HashMap, HashSet};

use ostler_core::{Ending, EventKind, SessionId, StateName, TaskId};

use ostler_store::views::QueueRecord;

use super::log::{Answer, Call, Line};
use super::report::{Report, Sort, Violation};
use super::stored::{Stored, StoredTask};
use super::told::{Made, Told, tasks_of};

/// Compares the calls and acknowledgements in the log with the stored state.
///
/// # Panics
/// When the log answers a call that it does not contain: then the log is broken, not the store.
#[must_use]
pub fn check(lines: &[Line], stored: &Stored) -> Report {
    let told = Told::from(lines);
    let mut found = Vec::new();
    let mut tasks: HashMap<TaskId, &StoredTask> = HashMap::new();
    for task in &stored.tasks {
        if tasks.insert(task.detail.task.id, task).is_some() {
            found.push(Violation::DoubleTask(task.detail.task.id));
        }
    }
    acknowledged(&told, &tasks, &mut found);
    for task in tasks.values() {
        unasked(&told, task, &mut found);
        consistent(task, &mut found);
    }
    nodes(&told, stored, &mut found);
    settings(&told, stored, &mut found);
    counts(&told, stored, &mut found);
    let of = |sort: Sort| found.iter().filter(|violation| violation.sort() == sort).count();
    Report {
        asked: told.calls.len(),
        acked: told.calls.iter().filter(|call| call.answer.is_some()).count(),
        stored: tasks.len(),
        lost: of(Sort::Lost),
        phantom: of(Sort::Phantom),
        double: of(Sort::Double),
        violations: found,
    }
}

const fn ends(call: &Call) -> bool {
    matches!(call, Call::Finish(..) | Call::Cancel(_))
}

/// Acknowledged changes are stored.
fn acknowledged(told: &Told<'_>, tasks: &HashMap<TaskId, &StoredTask>, found: &mut Vec<Violation>) {
    let mut leases: HashSet<(TaskId, u64)> = HashSet::new();
    let mut completed: HashSet<TaskId> = HashSet::new();
    for made in &told.calls {
        let Some(answer) = made.answer else { continue };
        if let (Call::Claim, Answer::Claimed(claimed)) = (made.call, answer) {
            for (task, token) in claimed {
                if !leases.insert((*task, *token)) {
                    found.push(Violation::DoubleClaim(*task, *token));
                }
                if tasks.get(task).is_some_and(|stored| stored.detail.task.token < *token) {
                    found.push(Violation::LostClaim(*task, *token));
                }
            }
        }
        if let (Call::Finish(task, _), Answer::Finished(StateName::Completed)) = (made.call, answer)
            && !completed.insert(*task)
        {
            found.push(Violation::DoubleCompletion(*task));
        }
        for task in tasks_of(made.call) {
            match tasks.get(task) {
                Some(stored) => found.extend(missing(told, made, answer, stored)),
                None if *answer == Answer::Enqueued && !told.may_be_pruned(*task) => {
                    found.push(Violation::LostTask(*task));
                }
                None => {}
            }
        }
    }
}

/// The effect of an acknowledged call that a stored task lacks.
fn missing(told: &Told<'_>, made: &Made<'_>, answer: &Answer, stored: &StoredTask) -> Option<Violation> {
    let task = &stored.detail.task;
    let state = task.state.name();
    let attempt = |token: u64| stored.detail.attempts.iter().find(|attempt| attempt.token == token);
    let replayed = || told.later(task.id, made, |call| matches!(call, Call::Replay(_)));
    match (made.call, answer) {
        (Call::Start(_, token), Answer::Started) => {
            attempt(*token).is_none().then_some(Violation::LostStart(task.id, *token))
        }
        (Call::Finish(_, token), Answer::Finished(ended)) => {
            let open = attempt(*token).is_some_and(|attempt| attempt.end.is_none());
            if open || task.token < *token || (state.is_leased() && task.token == *token) {
                return Some(Violation::LostEnd(task.id, *token));
            }
            let changed = ended.is_terminal() && state != *ended && !replayed();
            changed.then_some(Violation::LostState(task.id, *ended))
        }
        (Call::Cancel(_), Answer::Cancelled) => (state != StateName::Cancelled && !replayed())
            .then_some(Violation::LostState(task.id, StateName::Cancelled)),
        (Call::Cancel(_), Answer::CancelRequested) => {
            let there = task.cancel_requested_at.is_some() || state.is_terminal() || replayed();
            (!there).then_some(Violation::LostCancel(task.id))
        }
        (Call::Replay(_), Answer::Replayed) => (state.is_terminal() && !told.later(task.id, made, ends))
            .then_some(Violation::LostReplay(task.id)),
        (Call::SaveStep(_, name), Answer::StepSaved) => {
            let there = stored.detail.steps.iter().any(|step| step.name == *name);
            (!there).then(|| Violation::LostStep(task.id, name.clone()))
        }
        (Call::Append(_), Answer::Appended(last)) => {
            let there = stored.events.iter().any(|event| event.number == *last);
            (!there).then_some(Violation::LostEvents(task.id, *last))
        }
        (Call::Prune(_), Answer::Pruned(count)) => {
            // A call for several tasks may skip those that had not finished.
            let all = tasks_of(made.call).len() == *count;
            let again = told.later(task.id, made, |call| matches!(call, Call::Enqueue(_)));
            (all && !again).then_some(Violation::Resurrected(task.id))
        }
        // The rest is about no single task, or answers that nothing was done.
        (
            Call::Join(_)
            | Call::Leave(_)
            | Call::Report(..)
            | Call::Configure(..)
            | Call::Expire
            | Call::Enqueue(_)
            | Call::Claim
            | Call::Start(..)
            | Call::Finish(..)
            | Call::SaveStep(..)
            | Call::Append(_)
            | Call::Cancel(_)
            | Call::Replay(_)
            | Call::Prune(_)
            | Call::PruneOld,
            _,
        ) => None,
    }
}

/// Stored changes were requested.
fn unasked(told: &Told<'_>, stored: &StoredTask, found: &mut Vec<Violation>) {
    let task = &stored.detail.task;
    let asked = |such: &dyn Fn(&Call) -> bool| {
        told.of(task.id).any(|made| such(made.call) && made.may_have_happened())
    };
    if !asked(&|call| matches!(call, Call::Enqueue(_))) {
        found.push(Violation::PhantomTask(task.id));
        return;
    }
    // A task past its deadline finishes without a call.
    if task.state.name().is_terminal() && task.not_after.is_none() && task.deadline.is_none() && !asked(&ends)
    {
        found.push(Violation::PhantomEnd(task.id));
    }
    for step in &stored.detail.steps {
        if !asked(&|call| matches!(call, Call::SaveStep(_, name) if *name == step.name)) {
            found.push(Violation::PhantomStep(task.id, step.name.clone()));
        }
    }
    // Transitions are written by the store itself.
    let mut appended = stored.events.iter().filter(|event| event.body.kind() != EventKind::Transition);
    if appended.next().is_some() && !asked(&|call| matches!(call, Call::Append(_))) {
        found.push(Violation::PhantomEvents(task.id));
    }
}

/// The records of one task are consistent.
fn consistent(stored: &StoredTask, found: &mut Vec<Violation>) {
    let task = &stored.detail.task;
    let attempts = &stored.detail.attempts;
    let successes = attempts
        .iter()
        .filter(|attempt| attempt.end.as_ref().is_some_and(|end| end.ending == Ending::Success))
        .count();
    if successes > 1 {
        found.push(Violation::DoubleCompletion(task.id));
    }
    let rising = attempts.windows(2).all(|pair| pair[0].token < pair[1].token)
        && stored.events.windows(2).all(|pair| pair[0].token <= pair[1].token);
    let highest = attempts
        .iter()
        .map(|attempt| attempt.token)
        .chain(stored.events.iter().map(|event| event.token))
        .max();
    if !rising || highest.is_some_and(|highest| highest > task.token) {
        found.push(Violation::TokenWentBack(task.id));
    }
    let numbered = attempts.iter().zip(1..).all(|(attempt, number)| attempt.number == number)
        && stored.events.iter().zip(1..).all(|(event, number)| event.number == number)
        && attempts.len() == task.runs as usize;
    if !numbered {
        found.push(Violation::Gap(task.id));
    }
    let open = attempts.iter().filter(|attempt| attempt.end.is_none()).count();
    if open != usize::from(task.state.name() == StateName::Running) {
        found.push(Violation::OpenAttempt(task.id));
    }
}

/// Joined nodes are present with their workers, and departed ones are absent.
fn nodes(told: &Told<'_>, stored: &Stored, found: &mut Vec<Violation>) {
    let there: HashSet<SessionId> = stored.survey.nodes.iter().map(|node| node.session).collect();
    let goes = |made: &Made<'_>, session: SessionId| match (made.call, made.answer) {
        (Call::Leave(left), _) => *left == session && made.may_have_happened(),
        (Call::Expire, Some(Answer::Expired(ended))) => ended.contains(&session),
        // It may have ended any session.
        (Call::Expire, _) => true,
        _ => false,
    };
    let is_gone = |made: &Made<'_>, session: SessionId| made.answer.is_some() && goes(made, session);
    let mut came = HashSet::new();
    for made in &told.calls {
        match (made.call, made.answer) {
            (Call::Join(session), answer) => {
                came.insert(*session);
                let stays = !told.calls.iter().any(|made| goes(made, *session));
                if answer == Some(&Answer::Joined) && stays && !there.contains(session) {
                    found.push(Violation::LostNode(*session));
                }
            }
            (Call::Report(session, count), Some(Answer::Reported)) => {
                let again = |later: &Made<'_>| {
                    matches!(later.call, Call::Report(by, _) if by == session)
                        && later.asked_at > made.asked_at
                };
                let last = !told.calls.iter().any(|later| again(later) || goes(later, *session));
                let reported =
                    stored.survey.workers.iter().filter(|worker| worker.session == *session).count();
                if last && reported != *count {
                    found.push(Violation::LostWorkers(*session));
                }
            }
            _ => {}
        }
    }
    for session in there {
        if !came.contains(&session) || told.calls.iter().any(|made| is_gone(made, session)) {
            found.push(Violation::PhantomNode(session));
        }
    }
}

/// The last acknowledged setting of a queue is stored.
fn settings(told: &Told<'_>, stored: &Stored, found: &mut Vec<Violation>) {
    for made in &told.calls {
        let (Call::Configure(queue, limit), Some(Answer::Configured)) = (made.call, made.answer) else {
            continue;
        };
        let again = |later: &Made<'_>| {
            matches!(later.call, Call::Configure(other, _) if other == queue)
                && later.asked_at > made.asked_at
        };
        let holds = |record: &QueueRecord| record.name == *queue && record.settings.limit == Some(*limit);
        if !told.calls.iter().any(again) && !stored.survey.queues.iter().any(holds) {
            found.push(Violation::LostSetting(queue.clone()));
        }
    }
}

/// The counts of each lane match its tasks.
fn counts(told: &Told<'_>, stored: &Stored, found: &mut Vec<Violation>) {
    let certainly: usize = told
        .calls
        .iter()
        .filter_map(|made| match made.answer {
            Some(Answer::Pruned(count)) => Some(*count),
            Some(_) | None => None,
        })
        .sum();
    let perhaps: usize = told
        .calls
        .iter()
        .filter(|made| made.answer.is_none())
        .map(|made| match made.call {
            Call::Prune(tasks) => tasks.len(),
            Call::PruneOld => usize::MAX / 2,
            Call::Join(_)
            | Call::Leave(_)
            | Call::Report(..)
            | Call::Configure(..)
            | Call::Expire
            | Call::Enqueue(_)
            | Call::Claim
            | Call::Start(..)
            | Call::Finish(..)
            | Call::SaveStep(..)
            | Call::Append(_)
            | Call::Cancel(_)
            | Call::Replay(_) => 0,
        })
        .fold(0, usize::saturating_add);
    let mut submitted = 0;
    for lane in &stored.survey.lanes {
        let mut counts = lane.counts;
        submitted += counts.submitted();
        for state in StateName::ALL {
            let here = stored.tasks.iter().map(|task| &task.detail.task).filter(|task| {
                task.queue == lane.queue && task.kind == lane.kind && task.state.name() == state
            });
            let least = here.count() as u64;
            // A finished task stays counted when it is removed.
            let most = if state.is_terminal() { u64::MAX } else { least };
            let counted = *counts.of(state);
            if !(least..=most).contains(&counted) {
                let lane = (lane.queue.clone(), lane.kind.clone());
                found.push(Violation::Counts { lane, state: Some(state), counted, found: (least, most) });
            }
        }
    }
    let least = (stored.tasks.len() + certainly) as u64;
    let most = least.saturating_add(perhaps as u64);
    if !(least..=most).contains(&submitted) {
        let lane = ("*".to_owned(), "*".to_owned());
        found.push(Violation::Counts { lane, state: None, counted: submitted, found: (least, most) });
    }
}

#[cfg(test)]
mod tests;
