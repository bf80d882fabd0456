//! Nodes: sessions and their worker records.

use ostler_core::{Outcome, SessionId, State, Task, Worker};

use super::state::{MemoryState, Session};
use ostler_store::Check;
use ostler_store::LeaseRef;
use ostler_store::calls::{Fenced, NewSession, Renewed};
use ostler_store::node_commands::{CommandAnswer, NodeCommand, NumberedCommand, Reply};
use ostler_store::views::{GoneWorker, WorkerEnd, WorkerRecord};
use ostler_store::{MAX_GONE_WORKERS, MAX_NODE_COMMANDS, MAX_UNNAMED};

impl MemoryState {
    pub(super) fn join(&mut self, node: NewSession) -> Fenced {
        if self.session(node.id).is_some() {
            return Fenced::Lost;
        }
        let (joined_at, beat) = (self.now, self.uptime);
        let (orders, answers) = (Vec::new(), Vec::new());
        let (killed, departed, ended) = (false, false, false);
        let session = Session { joined_at, beat, killed, departed, ended, orders, answers, node };
        self.sessions.push((session.node.id, session));
        Fenced::Recorded
    }

    pub(super) fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|(session, _)| *session == id).map(|(_, session)| session)
    }

    pub(super) fn kill(&mut self, id: SessionId) {
        if let Some(session) = self.session(id) {
            session.killed = true;
        }
    }

    /// Whether the session may still act: it has not ended, and has renewed in time.
    pub(super) fn is_live(&mut self, id: SessionId) -> bool {
        let uptime = self.uptime;
        self.session(id).is_some_and(|session| !session.ended && !session.is_overdue(uptime))
    }

    pub(super) fn renew(&mut self, id: SessionId, held: &[LeaseRef]) -> Renewed {
        let live = self.is_live(id);
        if !self.checks.pass(Check::RenewSession, live) {
            return Renewed::Ended;
        }
        let uptime = self.uptime;
        if let Some(session) = self.session(id) {
            session.beat = uptime;
        }
        let holds = |lease: &LeaseRef| {
            self.entries.values().any(|entry| {
                entry.task.id == lease.task && entry.task.token == lease.token && is_held_by(&entry.task, id)
            })
        };
        let lost = held.iter().filter(|lease| !holds(lease)).map(|lease| lease.task).collect();
        let marked = |task: &&Task| is_held_by(task, id) && task.cancel_requested_at.is_some();
        let cancelled =
            self.entries.values().map(|entry| &entry.task).filter(marked).map(|task| task.id).collect();
        let leases = self
            .entries
            .iter()
            .filter(|(_, entry)| is_held_by(&entry.task, id))
            .map(|(slot, entry)| LeaseRef { task: entry.task.id, token: entry.task.token, row: *slot });
        let named = |lease: &LeaseRef| {
            held.iter().any(|named| (named.task, named.token) == (lease.task, lease.token))
        };
        let unnamed = leases.filter(|lease| !named(lease)).take(MAX_UNNAMED).collect();
        let orders = self.session(id).map(|session| session.orders.clone()).unwrap_or_default();
        Renewed::Held { cancelled, lost, unnamed, commands: orders }
    }

    pub(super) fn order(&mut self, id: SessionId, order: NodeCommand) -> CommandAnswer {
        let Some(session) = self.session(id).filter(|session| !session.ended) else {
            return CommandAnswer::NoSuchNode;
        };
        let number = session.orders.last().map_or(0, |last| last.number) + 1;
        session.orders.push(NumberedCommand { number, command: order });
        let excess = session.orders.len().saturating_sub(MAX_NODE_COMMANDS);
        session.orders.drain(..excess);
        session.forget_answers();
        self.rings.control = true;
        CommandAnswer::Given { number }
    }

    pub(super) fn answer(&mut self, id: SessionId, answer: Reply) -> Fenced {
        let live = self.is_live(id);
        if !self.checks.pass(Check::ReportSession, live) {
            return Fenced::Lost;
        }
        if let Some(session) = self.session(id) {
            session.answers.retain(|other| other.number != answer.number);
            session.answers.push(answer);
            session.answers.sort_by_key(|answer| answer.number);
            session.forget_answers();
        }
        Fenced::Recorded
    }

    pub(super) fn leave(&mut self, id: SessionId) -> Fenced {
        if self.session(id).is_none_or(|session| session.ended) {
            return Fenced::Lost;
        }
        self.hand_back_all(id);
        Fenced::Recorded
    }

    pub(super) fn depart(&mut self, id: SessionId) -> Fenced {
        match self.session(id).filter(|session| !session.ended) {
            Some(session) => {
                session.departed = true;
                Fenced::Recorded
            }
            None => Fenced::Lost,
        }
    }

    /// Hands back the tasks of a session, and ends it. Returns how many there were.
    pub(super) fn hand_back_all(&mut self, id: SessionId) -> usize {
        let held = self.slots(|task| is_held_by(task, id));
        for slot in &held {
            self.end_attempt(*slot, &Outcome::HandedBack, None, None, None);
        }
        self.end_session(id, WorkerEnd::Closed);
        held.len()
    }

    pub(super) fn end_session(&mut self, id: SessionId, how: WorkerEnd) {
        if let Some(session) = self.session(id) {
            session.ended = true;
            session.orders.clear();
            session.answers.clear();
        }
        let left = self.workers.extract_if(.., |record| record.session == id).map(|record| record.worker);
        let left = left.collect();
        self.bury(id, left, how);
        self.free_tellings(id);
    }

    /// Keeps the last records of workers that are gone.
    fn bury(&mut self, id: SessionId, workers: Vec<Worker>, end: WorkerEnd) {
        let Some(node) = self.session(id).map(|session| session.node.name.clone()) else { return };
        let gone_at = self.now;
        self.gone.extend(workers.into_iter().map(|worker| GoneWorker {
            session: id,
            node: node.clone(),
            worker: Worker { task: None, ..worker },
            end,
            gone_at,
        }));
        let excess = self.gone.len().saturating_sub(MAX_GONE_WORKERS);
        self.gone.drain(..excess);
    }

    pub(super) fn report(&mut self, id: SessionId, workers: Vec<Worker>, closed: Vec<Worker>) -> Fenced {
        let live = self.is_live(id);
        if !self.checks.pass(Check::ReportSession, live) {
            return Fenced::Lost;
        }
        let last_seen = self.now;
        self.workers.retain(|record| record.session != id);
        self.workers.extend(workers.into_iter().map(|worker| WorkerRecord {
            session: id,
            worker,
            tasks: 0,
            last_seen,
        }));
        self.bury(id, closed, WorkerEnd::Closed);
        Fenced::Recorded
    }
}

impl Session {
    /// Drops the replies to commands that are no longer kept.
    fn forget_answers(&mut self) {
        let Self { orders, answers, .. } = self;
        answers.retain(|answer| orders.iter().any(|order| order.number == answer.number));
    }

    /// Whether the session's TTL has passed, or its node is known to be dead.
    pub(super) fn is_overdue(&self, uptime: std::time::Duration) -> bool {
        self.killed || uptime.saturating_sub(self.beat) > self.node.ttl
    }
}

/// Whether the session holds a lease on the task.
pub(super) fn is_held_by(task: &Task, id: SessionId) -> bool {
    match task.state {
        State::Claimed { session } | State::Running { session, .. } => session == id,
        State::Queued { .. } | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => {
            false
        }
    }
}
