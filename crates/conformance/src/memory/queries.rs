//! Queries: list, show, events, survey.

use ostler_core::{IdPart, Readiness, State, Task, TaskId, beginning};
use ostler_store::MAX_READ_BYTES;
use ostler_store::events::{Event, EventQuery, TextPart, TextRef};

use super::state::{MemoryState, QueueEntry, TaskEntry};
use ostler_store::calls::Kinds;
use ostler_store::views::{
    Cursor, Filter, FoundIds, IdScan, LaneRecord, LeaseFilter, ListOrder, Liveness, NodeRecord, Page,
    QueueRecord, Survey, TaskDetail, TaskRef, WorkerRecord,
};

impl MemoryState {
    pub(super) fn list(&mut self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Page {
        let place = |cursor: Cursor| (cursor.ended_at, cursor.row);
        let mut found: Vec<(Cursor, Task)> = self
            .entries
            .iter()
            .filter(|(_, entry)| filter.matches(&entry.task) && self.lease_matches(&entry.task, filter.lease))
            .map(|(slot, entry)| (Cursor::of(filter, &entry.task, *slot), entry.task.clone()))
            .collect();
        found.sort_by_key(|(cursor, _)| place(*cursor));
        match (filter.order, after) {
            (ListOrder::OldestFirst, None) => {}
            (ListOrder::NewestFirst, None) => found.reverse(),
            (ListOrder::OldestFirst, Some(after)) => {
                found.retain(|(cursor, _)| place(*cursor) > place(after));
            }
            (ListOrder::NewestFirst, Some(after)) => {
                found.retain(|(cursor, _)| place(*cursor) < place(after));
                found.reverse();
            }
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = if more { found.last().map(|(cursor, _)| *cursor).or(after) } else { None };
        Page { tasks: found.into_iter().map(|(_, task)| task).collect(), next }
    }

    fn lease_matches(&self, task: &Task, lease: LeaseFilter) -> bool {
        match lease {
            LeaseFilter::Any => true,
            LeaseFilter::Stale => match task.state {
                State::Claimed { session: holder } | State::Running { session: holder, .. } => !self
                    .sessions
                    .iter()
                    .any(|(id, session)| *id == holder && !session.ended && !session.is_overdue(self.uptime)),
                State::Queued { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. } => false,
            },
        }
    }

    pub(super) fn show(&self, which: &TaskRef) -> Option<TaskDetail> {
        let wanted = |task: &Task| match which {
            TaskRef::Id(id) => task.id == *id,
            TaskRef::Key { queue, key } => task.queue == *queue && task.unique_key.as_ref() == Some(key),
        };
        self.entries.values().find(|entry| wanted(&entry.task)).map(|entry| TaskDetail {
            task: entry.task.clone(),
            attempts: entry.attempts.iter().map(|attempt| entry.with_conversation(attempt)).collect(),
            steps: entry.steps.clone(),
            after: entry.after.iter().map(|slot| self.entries[slot].task.id).collect(),
            talks: entry.talks().collect(),
            scratch_token: entry.scratch_token,
        })
    }

    pub(super) fn find_ids(&self, part: IdPart, limit: usize) -> FoundIds {
        let all = self.entries.values().map(|entry| entry.task.id);
        let mut ids: Vec<TaskId> = all.filter(|id| part.matches(id.0)).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        let scan = if ids.len() > limit { IdScan::Cut } else { IdScan::Whole };
        ids.truncate(limit);
        FoundIds { ids, scan }
    }

    pub(super) fn read_events(&self, task: TaskId, query: EventQuery) -> Vec<Event> {
        let events =
            self.entries.values().filter(|entry| entry.task.id == task).flat_map(|entry| &entry.events);
        let wanted = |event: &&Event| event.number > query.after && query.kinds.has(event.body.kind());
        let mut page: Vec<Event> = Vec::new();
        let mut bytes = 0;
        for event in events.filter(wanted).take(query.limit) {
            let mut event = event.clone();
            if let Some(text) = event.body.text_mut() {
                let (size, kept) = (text.len(), beginning(text, query.text_bytes).len());
                event.cut = (kept < size).then_some(size as u64);
                text.truncate(kept);
                // What is wanted of the next one may not fit, even if it is cut at a character before.
                if !page.is_empty() && bytes + size.min(query.text_bytes) > MAX_READ_BYTES {
                    break;
                }
                bytes += kept;
            }
            page.push(event);
        }
        page
    }

    pub(super) fn read_text(&self, task: TaskId, which: TextRef, from: u64, most: usize) -> Option<TextPart> {
        let entry = self.entries.values().find(|entry| entry.task.id == task)?;
        let text = match which {
            TextRef::Event(number) => {
                let event = entry.events.iter().find(|event| event.number == number)?;
                event.body.text()?
            }
            TextRef::Output => entry.task.output.as_deref()?,
        };
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(most).min(text.len());
        Some(TextPart { bytes: text.as_bytes()[start..end].to_vec(), size: text.len() as u64 })
    }

    pub(super) fn backlog(&self, queue: &str, kinds: &Kinds, limit: usize) -> usize {
        let Some(found) = self.queues.get(queue) else { return 0 };
        if found.settings.paused.is_some() || self.shut_by_budget(queue).is_some() {
            return 0;
        }
        let places = |name: String| {
            let QueueEntry { settings, gate, .. } = &self.queues[&name];
            settings.places_for(limit, gate, self.leased_under(&name), self.now)
        };
        let most = self.limiting_queues(queue).into_iter().map(places).min().unwrap_or(limit);
        let most = most.min(self.account_places(queue, limit).places);
        let is_ready = |task: &Task| matches!(task.state, State::Queued { readiness: Readiness::Ready, .. });
        self.slots(|task| task.queue == queue && kinds.has(&task.kind) && is_ready(task)).len().min(most)
    }

    pub(super) fn survey(&self) -> Survey {
        let lanes = self.lanes.iter().map(|((queue, kind), lane)| {
            let mut counts = lane.pruned;
            let in_lane = |task: &&Task| task.queue == *queue && task.kind == *kind;
            for task in self.entries.values().map(|entry| &entry.task).filter(in_lane) {
                *counts.of(task.state.name()) += 1;
            }
            LaneRecord {
                queue: queue.clone(),
                kind: kind.clone(),
                counts,
                tally: lane.tally,
                recent_ms: lane.recent_ms.clone(),
            }
        });
        let accounts = self.list_accounts();
        let queues = self.queues.iter().map(|(name, queue)| {
            let has_breaker = queue.settings.queue_rules().breaker.is_some();
            let limits = || {
                self.limiting_queues(name).iter().find_map(|limiting| {
                    let QueueEntry { settings, gate, .. } = &self.queues[limiting];
                    settings.shut(gate, self.leased_under(limiting), self.now)
                })
            };
            QueueRecord {
                name: name.clone(),
                high_water: queue.high_water,
                settings: queue.settings.clone(),
                held_until: queue.gate.held_until.filter(|until| *until > self.now),
                breaker: (has_breaker || queue.gate.breaker.is_some()).then(|| queue.gate.breaker_state()),
                shut: queue
                    .settings
                    .closed_account(&accounts, self.now)
                    .or_else(limits)
                    .or_else(|| self.shut_by_budget(name)),
                spending: queue.settings.budget.map(|_| self.spending.get(name).cloned().unwrap_or_default()),
            }
        });
        let nodes =
            self.sessions.iter().filter(|(_, session)| !session.ended).map(|(id, session)| NodeRecord {
                session: *id,
                name: session.node.name.clone(),
                host: Some(session.node.host.clone()),
                pid: session.node.pid,
                version: session.node.version.clone(),
                ttl: session.node.ttl,
                settings: session.node.settings.clone(),
                joined_at: session.joined_at,
                liveness: if session.is_overdue(self.uptime) { Liveness::Overdue } else { Liveness::Alive },
                replies: session.answers.clone(),
            });
        Survey {
            lanes: lanes.collect(),
            queues: queues.collect(),
            keys: self.key_records(),
            nodes: nodes.collect(),
            workers: self.workers.iter().map(|record| self.with_tasks(record)).collect(),
        }
    }

    /// A worker with the number of attempts that it runs.
    fn with_tasks(&self, record: &WorkerRecord) -> WorkerRecord {
        let runs = |entry: &&TaskEntry| {
            let last = entry.attempts.last();
            last.is_some_and(|attempt| attempt.end.is_none() && attempt.worker == record.worker.id)
        };
        WorkerRecord { tasks: self.entries.values().filter(runs).count() as u64, ..record.clone() }
    }
}
