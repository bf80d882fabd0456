//! Tests of the history checker: one valid history, and invalid ones that must each be detected.

use std::time::Duration;

use ostler_core::{
    Attempt, AttemptEnd, CancelReason, Conversation, EventBody, Id, Overrides, Priority, Rank, Readiness,
    SessionId, State, Step, Task, Timestamp, Wait, Worker, WorkerId, WorkerState,
};
use ostler_store::events::Event;
use ostler_store::views::{
    Counts, LaneRecord, LaneTotals, Liveness, NodeRecord, QueueRecord, QueueSettings, TaskDetail,
    WorkerRecord,
};

use super::*;
use crate::Ids;

const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const HERE: SessionId = SessionId(Id::from_bits(7));

/// A consistent log and store, for a test to corrupt.
struct History {
    lines: Vec<Line>,
    stored: Stored,
}

impl History {
    /// One task with a full life: enqueued, claimed, started, with an event and a step, completed.
    fn good() -> (Self, TaskId) {
        let id = Ids::new(1).task();
        let mut history = Self { lines: Vec::new(), stored: Stored::default() };
        history.say(Call::Enqueue(vec![id]), Answer::Enqueued);
        history.say(Call::Claim, Answer::Claimed(vec![(id, 1)]));
        history.say(Call::Start(id, 1), Answer::Started);
        history.say(Call::Append(id), Answer::Appended(1));
        history.say(Call::SaveStep(id, "fetched".to_owned()), Answer::StepSaved);
        history.say(Call::Finish(id, 1), Answer::Finished(StateName::Completed));
        let mut task = stored(id, State::Completed { finished_at: NOW });
        task.detail.task.token = 1;
        task.detail.task.runs = 1;
        task.detail.attempts = vec![attempt(1, 1, Some(Ending::Success))];
        task.detail.steps =
            vec![Step { name: "fetched".to_owned(), value: "1".to_owned(), saved_at: NOW, token: 1 }];
        task.events = vec![event(1, 1)];
        history.stored.tasks = vec![task];
        history.recount();
        (history, id)
    }

    /// One task in this state, of which the log only has the enqueue.
    fn task_in(state: State) -> (Self, TaskId) {
        let id = Ids::new(1).task();
        let mut history = Self { lines: Vec::new(), stored: Stored::default() };
        history.say(Call::Enqueue(vec![id]), Answer::Enqueued);
        history.stored.tasks = vec![stored(id, state)];
        history.recount();
        (history, id)
    }

    fn say(&mut self, call: Call, answer: Answer) {
        let number = self.ask(call);
        self.lines.push(Line::Ack(number, answer));
    }

    fn ask(&mut self, call: Call) -> String {
        let number = format!("1.{}", self.lines.len());
        self.lines.push(Line::Ask(number.clone(), call));
        number
    }

    fn task(&mut self) -> &mut StoredTask {
        &mut self.stored.tasks[0]
    }

    fn recount(&mut self) {
        let mut counts = Counts::default();
        for task in &self.stored.tasks {
            *counts.of(task.detail.task.state.name()) += 1;
        }
        let (queue, kind) = ("mail".to_owned(), "send".to_owned());
        self.stored.survey.lanes =
            vec![LaneRecord { queue, kind, counts, tally: LaneTotals::default(), recent_ms: vec![] }];
    }

    fn violations(&self) -> Vec<Violation> {
        check(&self.lines, &self.stored).violations
    }
}

fn stored(id: TaskId, state: State) -> StoredTask {
    let task = Task {
        traceparent: None,
        id,
        queue: "mail".to_owned(),
        kind: "send".to_owned(),
        payload: "{}".to_owned(),
        output: None,
        priority: Priority::NORMAL,
        rank: Rank(0),
        state,
        unique_key: None,
        limit_key: None,
        overrides: Overrides::NONE,
        not_after: None,
        deadline: None,
        folder: None,
        cost: 1,
        token: 0,
        runs: 0,
        failures: 0,
        crashes: 0,
        node_deaths: 0,
        suspect: false,
        created_at: NOW,
        cancel_requested_at: None,
        first_failure_at: None,
        last_failure_at: None,
        last_failure: None,
    };
    StoredTask {
        detail: TaskDetail {
            task,
            attempts: vec![],
            steps: vec![],
            after: vec![],
            talks: vec![],
            scratch_token: 0,
        },
        events: vec![],
    }
}

fn attempt(number: u32, token: u64, ending: Option<Ending>) -> Attempt {
    let end = ending.map(|ending| AttemptEnd { finished_at: NOW, ending, failure: None });
    Attempt {
        number,
        token,
        session: HERE,
        worker: WorkerId(Id::from_bits(8)),
        started_at: NOW,
        end,
        conversation: Conversation::default(),
    }
}

fn event(number: u64, token: u64) -> Event {
    Event { number, at: NOW, token, body: EventBody::line("x"), cut: None }
}

const QUEUED: State = State::Queued { readiness: Readiness::Ready, why: Wait::New, run_at: NOW };
const CANCELLED: State = State::Cancelled { finished_at: NOW, reason: CancelReason::Requested };

#[test]
fn a_good_history_has_nothing_wrong() {
    let (history, _) = History::good();
    let report = check(&history.lines, &history.stored);
    assert_eq!(report, Report { asked: 6, acked: 6, stored: 1, ..Report::default() });
}

#[test]
fn a_call_without_an_answer_may_have_been_carried_out_or_not() {
    let id = Ids::new(1).task();
    let mut history = History { lines: Vec::new(), stored: Stored::default() };
    history.ask(Call::Enqueue(vec![id]));
    assert_eq!(history.violations(), []);
    history.stored.tasks = vec![stored(id, QUEUED)];
    history.recount();
    assert_eq!(history.violations(), []);
    history.ask(Call::Cancel(id));
    history.task().detail.task.state = CANCELLED;
    history.recount();
    assert_eq!(history.violations(), []);
}

#[test]
fn a_lost_task_is_found() {
    let (mut history, id) = History::good();
    history.stored = Stored::default();
    let report = check(&history.lines, &history.stored);
    assert_eq!(report.violations, [Violation::LostTask(id)]);
    assert_eq!(report.lost, 1);
}

#[test]
fn a_lost_claim_is_found() {
    let (mut history, id) = History::task_in(QUEUED);
    history.say(Call::Claim, Answer::Claimed(vec![(id, 1)]));
    assert_eq!(history.violations(), [Violation::LostClaim(id, 1)]);
}

#[test]
fn a_lost_start_is_found() {
    let (mut history, id) = History::task_in(State::Claimed { session: HERE });
    history.task().detail.task.token = 1;
    history.say(Call::Start(id, 1), Answer::Started);
    assert_eq!(history.violations(), [Violation::LostStart(id, 1)]);
}

#[test]
fn a_lost_end_is_found() {
    let (mut history, id) = History::good();
    history.task().detail.task.state = State::Running { session: HERE, started_at: NOW };
    history.task().detail.attempts = vec![attempt(1, 1, None)];
    history.recount();
    assert_eq!(history.violations(), [Violation::LostEnd(id, 1)]);
}

#[test]
fn an_ended_task_that_is_queued_again_is_found_unless_it_was_replayed() {
    let (mut history, id) = History::good();
    history.task().detail.task.state = QUEUED;
    history.recount();
    assert_eq!(history.violations(), [Violation::LostState(id, StateName::Completed)]);
    history.ask(Call::Replay(id));
    assert_eq!(history.violations(), []);
}

#[test]
fn a_lost_cancel_is_found() {
    let (mut history, id) = History::task_in(QUEUED);
    history.say(Call::Cancel(id), Answer::Cancelled);
    assert_eq!(history.violations(), [Violation::LostState(id, StateName::Cancelled)]);

    let (mut history, id) = History::task_in(State::Claimed { session: HERE });
    history.say(Call::Cancel(id), Answer::CancelRequested);
    assert_eq!(history.violations(), [Violation::LostCancel(id)]);
}

#[test]
fn a_lost_replay_is_found() {
    let (mut history, id) = History::task_in(CANCELLED);
    history.say(Call::Cancel(id), Answer::Cancelled);
    history.say(Call::Replay(id), Answer::Replayed);
    assert_eq!(history.violations(), [Violation::LostReplay(id)]);
}

#[test]
fn a_lost_step_and_lost_events_are_found() {
    let (mut history, id) = History::good();
    history.task().detail.steps.clear();
    history.task().events.clear();
    assert_eq!(
        history.violations(),
        [Violation::LostEvents(id, 1), Violation::LostStep(id, "fetched".to_owned())]
    );
}

#[test]
fn a_removed_task_that_is_back_is_found() {
    let (mut history, id) = History::good();
    history.say(Call::Prune(vec![id]), Answer::Pruned(1));
    assert!(history.violations().contains(&Violation::Resurrected(id)));
    assert_eq!(check(&history.lines, &history.stored).phantom, 1);
}

#[test]
fn a_task_that_was_never_enqueued_is_found() {
    let (mut history, _) = History::good();
    let stranger = Ids::new(2).task();
    history.stored.tasks.push(stored(stranger, QUEUED));
    history.recount();
    assert_eq!(history.violations(), [Violation::PhantomTask(stranger)]);
}

#[test]
fn an_end_that_was_never_reported_is_found() {
    let (history, id) = History::task_in(CANCELLED);
    assert_eq!(history.violations(), [Violation::PhantomEnd(id)]);
}

#[test]
fn steps_and_events_that_were_never_written_are_found() {
    let (mut history, id) = History::task_in(QUEUED);
    history.task().detail.task.token = 1;
    history.task().events = vec![event(1, 1)];
    history.task().detail.steps =
        vec![Step { name: "odd".to_owned(), value: "1".to_owned(), saved_at: NOW, token: 1 }];
    let odd = Violation::PhantomStep(id, "odd".to_owned());
    assert_eq!(history.violations(), [odd, Violation::PhantomEvents(id)]);
}

#[test]
fn a_lease_that_was_given_out_twice_is_found() {
    let (mut history, id) = History::good();
    history.say(Call::Claim, Answer::Claimed(vec![(id, 1)]));
    let report = check(&history.lines, &history.stored);
    assert_eq!(report.violations, [Violation::DoubleClaim(id, 1)]);
    assert_eq!(report.double, 1);
}

#[test]
fn a_task_that_completed_twice_is_found() {
    let (mut history, id) = History::good();
    history.say(Call::Finish(id, 1), Answer::Finished(StateName::Completed));
    assert_eq!(history.violations(), [Violation::DoubleCompletion(id)]);

    let (mut history, id) = History::good();
    let task = history.task();
    task.detail.task.token = 2;
    task.detail.task.runs = 2;
    task.detail.attempts.push(attempt(2, 2, Some(Ending::Success)));
    assert_eq!(history.violations(), [Violation::DoubleCompletion(id)]);
}

#[test]
fn a_task_that_is_stored_twice_is_found() {
    let (mut history, id) = History::good();
    let again = history.task().clone();
    history.stored.tasks.push(again);
    assert!(history.violations().contains(&Violation::DoubleTask(id)));
}

#[test]
fn tokens_that_do_not_rise_are_found() {
    let (mut history, id) = History::good();
    history.task().events = vec![event(1, 2)];
    assert_eq!(history.violations(), [Violation::TokenWentBack(id)]);
}

#[test]
fn a_gap_in_the_numbers_is_found() {
    let (mut history, id) = History::good();
    history.task().events = vec![event(1, 1), event(3, 1)];
    assert_eq!(history.violations(), [Violation::Gap(id)]);

    let (mut history, id) = History::good();
    history.task().detail.task.runs = 2;
    assert_eq!(history.violations(), [Violation::Gap(id)]);
}

#[test]
fn an_attempt_that_never_ends_is_found() {
    let (mut history, id) = History::task_in(QUEUED);
    history.task().detail.task.token = 1;
    history.task().detail.task.runs = 1;
    history.task().detail.attempts = vec![attempt(1, 1, None)];
    assert_eq!(history.violations(), [Violation::OpenAttempt(id)]);
}

#[test]
fn counts_that_do_not_add_up_are_found() {
    let (mut history, _) = History::good();
    history.stored.survey.lanes[0].counts.queued = 1;
    let sorts: Vec<Option<StateName>> = history
        .violations()
        .into_iter()
        .filter_map(
            |violation| if let Violation::Counts { state, .. } = violation { Some(state) } else { None },
        )
        .collect();
    assert_eq!(sorts, [Some(StateName::Queued), None]);
}

// ---- nodes and settings -------------------------------------------------------------------------------

fn node(session: SessionId) -> NodeRecord {
    NodeRecord {
        session,
        name: "here".to_owned(),
        host: None,
        pid: 1,
        version: "0.1.0".to_owned(),
        ttl: Duration::from_secs(60),
        settings: "{}".to_owned(),
        joined_at: NOW,
        liveness: Liveness::Alive,
        replies: Vec::new(),
    }
}

fn worker(session: SessionId) -> WorkerRecord {
    let worker = Worker {
        id: WorkerId(Id::from_bits(9)),
        name: "docs-1".to_owned(),
        pool: "mail".to_owned(),
        pid: None,
        state: WorkerState::Idle,
        memory_bytes: None,
        started_at: NOW,
        done: 0,
        failed: 0,
        task: None,
    };
    WorkerRecord { session, worker, tasks: 0, last_seen: NOW }
}

#[test]
fn a_lost_node_is_found_unless_it_left_or_may_have_been_ended() {
    let (mut history, _) = History::good();
    history.say(Call::Join(HERE), Answer::Joined);
    assert_eq!(history.violations(), [Violation::LostNode(HERE)]);
    history.stored.survey.nodes = vec![node(HERE)];
    assert_eq!(history.violations(), []);
    history.stored.survey.nodes.clear();
    history.ask(Call::Expire);
    assert_eq!(history.violations(), []);
}

#[test]
fn a_node_that_is_gone_or_never_came_is_found() {
    for (call, answer) in [(Call::Leave(HERE), Answer::Left), (Call::Expire, Answer::Expired(vec![HERE]))] {
        let (mut history, _) = History::good();
        history.say(Call::Join(HERE), Answer::Joined);
        history.stored.survey.nodes = vec![node(HERE)];
        history.say(call, answer);
        assert_eq!(history.violations(), [Violation::PhantomNode(HERE)]);
    }
    let (mut history, _) = History::good();
    history.stored.survey.nodes = vec![node(HERE)];
    assert_eq!(history.violations(), [Violation::PhantomNode(HERE)]);
}

#[test]
fn lost_workers_are_found() {
    let (mut history, _) = History::good();
    history.say(Call::Join(HERE), Answer::Joined);
    history.say(Call::Report(HERE, 1), Answer::Reported);
    history.stored.survey.nodes = vec![node(HERE)];
    assert_eq!(history.violations(), [Violation::LostWorkers(HERE)]);
    history.stored.survey.workers = vec![worker(HERE)];
    assert_eq!(history.violations(), []);
}

#[test]
fn a_lost_setting_is_found() {
    let (mut history, _) = History::good();
    history.say(Call::Configure("mail".to_owned(), 10), Answer::Configured);
    assert_eq!(history.violations(), [Violation::LostSetting("mail".to_owned())]);
    let settings = QueueSettings { limit: Some(10), ..QueueSettings::default() };
    history.stored.survey.queues = vec![QueueRecord {
        name: "mail".to_owned(),
        high_water: 0,
        settings,
        held_until: None,
        breaker: None,
        shut: None,
        spending: None,
    }];
    assert_eq!(history.violations(), []);
}
