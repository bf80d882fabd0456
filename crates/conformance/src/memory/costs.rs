//! Costs: what attempts spent, added up when they report it, and asked for.

use std::collections::BTreeMap;

use ostler_core::{Attempt, State, Usage, day_of};
use ostler_store::costs::{CostBy, CostKey, CostQuery, CostRecord, CostSums, MAX_COST_DAYS, MAX_COST_ROWS};

use super::state::{MemoryState, Slot, TaskEntry};

/// What costs are kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpentKey {
    pub(super) day: i64,
    pub(super) queue: String,
    pub(super) pool: String,
    pub(super) account: String,
    pub(super) model: String,
}

impl MemoryState {
    /// Adds a usage of an attempt; `first`: the attempt had none before.
    pub(super) fn record_cost(&mut self, slot: Slot, usage: &Usage, first: FirstUsage) {
        let (settings, queue) = (self.queue_settings(slot), self.task(slot).queue.clone());
        let key = SpentKey {
            day: day_of(self.now),
            pool: settings.pool_of(&queue).to_owned(),
            queue,
            account: settings.account.clone().unwrap_or_default(),
            model: usage.model.clone().unwrap_or_default(),
        };
        let sums = self.spent.entry(key).or_default();
        sums.runs += u64::from(first == FirstUsage::Yes);
        sums.add(usage);
    }

    pub(super) fn costs(&self, query: &CostQuery) -> Vec<CostRecord> {
        let name = |of: fn(&SpentKey) -> &String| {
            self.costs_by(query, |key| CostKey::Name(of(key).clone()), |key| of(key).clone())
        };
        let mut records = match query.by {
            CostBy::Task => self.costs_of_tasks(query),
            CostBy::Attempt => self.costs_of_attempts(query).into_iter().map(|(_, record)| record).collect(),
            CostBy::Queue => name(|key| &key.queue),
            CostBy::Pool => name(|key| &key.pool),
            CostBy::Account => name(|key| &key.account),
            CostBy::Model => name(|key| &key.model),
            CostBy::Day => self.costs_by(query, |key| CostKey::Day(key.day), |key| key.day),
        };
        records.truncate(query.limit);
        records
    }

    fn costs_by<K: Ord>(
        &self,
        query: &CostQuery,
        shown: impl Fn(&SpentKey) -> CostKey,
        by: impl Fn(&SpentKey) -> K,
    ) -> Vec<CostRecord> {
        let (first, last) = query.days();
        let mut found: BTreeMap<K, CostRecord> = BTreeMap::new();
        for (key, sums) in &self.spent {
            let wanted = query.queue.as_ref().is_none_or(|queue| *queue == key.queue);
            if wanted && (first..=last).contains(&key.day) {
                let record = found
                    .entry(by(key))
                    .or_insert_with(|| CostRecord { key: shown(key), sums: CostSums::default() });
                record.sums.merge(sums);
            }
        }
        found.into_values().collect()
    }

    fn costs_of_tasks(&self, query: &CostQuery) -> Vec<CostRecord> {
        let mut records: Vec<CostRecord> = Vec::new();
        for (slot, record) in self.costs_of_attempts(query) {
            let key = CostKey::Task(self.entries[&slot].task.id);
            match records.last_mut().filter(|last| last.key == key) {
                Some(last) => last.sums.merge(&record.sums),
                None => records.push(CostRecord { key, sums: record.sums }),
            }
        }
        records
    }

    /// The attempts that spent something, those of the newest tasks first.
    fn costs_of_attempts(&self, query: &CostQuery) -> Vec<(Slot, CostRecord)> {
        let (from, to) = query.times();
        let wanted = |entry: &TaskEntry| {
            let task = &entry.task;
            let ended = task.state.finished_at().unwrap_or(task.created_at).millis();
            query.queue.as_ref().is_none_or(|queue| *queue == task.queue) && (from..to).contains(&ended)
        };
        let entries = self.entries.iter().rev().filter(|(_, entry)| wanted(entry));
        let attempts = entries.flat_map(|(slot, entry)| {
            entry.conversations.iter().rev().filter(|(_, talk)| !talk.usage.is_empty()).map(
                move |(token, talk)| {
                    let mut sums = CostSums { runs: 1, ..CostSums::default() };
                    talk.usage.iter().for_each(|usage| sums.add(usage));
                    let key = CostKey::Attempt { task: entry.task.id, number: number_of(entry, *token) };
                    (*slot, CostRecord { key, sums })
                },
            )
        });
        attempts.take(MAX_COST_ROWS).collect()
    }

    pub(super) fn prune_costs(&mut self) {
        let oldest = day_of(self.now) - MAX_COST_DAYS;
        self.spent.retain(|key, _| key.day >= oldest);
    }
}

/// Whether a usage is the first of its attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstUsage {
    Yes,
    No,
}

/// The number of the attempt with this token.
fn number_of(entry: &TaskEntry, token: u64) -> u32 {
    let recorded = entry.attempts.iter().find(|attempt: &&Attempt| attempt.token == token);
    let claimed = matches!(entry.task.state, State::Claimed { .. }) && entry.task.token == token;
    recorded.map_or(entry.task.runs + u32::from(claimed), |attempt| attempt.number)
}
