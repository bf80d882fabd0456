//! Live table of a map job over a pool: its running items, each with its turn, its last action and its cost, as their events tell.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::{Cost, EventBody, EventKind, EventKinds, JobId, Role, State, StateName, TaskId, Timestamp};
use ostler_ops::OpsError;
use ostler_ops::jobs::ItemPayload;
use ostler_store::Store;
use ostler_store::events::EventQuery;
use ostler_store::jobs::queue_of;
use ostler_store::views::Filter;

use crate::print::{how_long, visible};

/// The maximum number of items shown.
const ROWS: usize = 8;
/// Pages of events read for an item at once; the rest is read at the next look.
const PAGES: usize = 4;
/// The interval between two looks at the items.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// Columns for an item, at most.
const ITEM_COLUMNS: usize = 32;

/// The running items of a job.
#[derive(Debug, Default)]
pub(crate) struct LiveTable {
    rows: BTreeMap<TaskId, LiveRow>,
    /// Running items that are not shown.
    more: u64,
}

/// A running item, as far as its events were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LiveRow {
    item: String,
    started_at: Timestamp,
    /// Messages of the model.
    turn: u64,
    action: String,
    cost: Option<Cost>,
    /// The number of the last event that was read.
    seen: u64,
}

impl LiveTable {
    /// Looks at the items that run now, and at what they did since the last time.
    pub(crate) async fn update(
        &mut self,
        store: &dyn Store,
        job: JobId,
        running: u64,
    ) -> Result<(), OpsError> {
        let filter =
            Filter { queue: Some(queue_of(job)), state: Some(StateName::Running), ..Filter::default() };
        let page = store.list(filter, None, ROWS).await?;
        let mut before = std::mem::take(&mut self.rows);
        for task in page.tasks {
            let State::Running { started_at, .. } = task.state else { continue };
            // An item that is tried again begins with nothing.
            let known = before.remove(&task.id).filter(|row| row.started_at == started_at);
            let mut row = known.unwrap_or_else(|| LiveRow {
                item: ItemPayload::of(&task.payload).map_or_else(String::new, |payload| payload.item.shown()),
                started_at,
                ..LiveRow::default()
            });
            for _ in 0..PAGES {
                let query = EventQuery {
                    kinds: EventKinds::ALL.without(EventKind::Raw),
                    after: row.seen,
                    ..EventQuery::default()
                };
                let events = store.read_events(task.id, query).await?;
                let Some(last) = events.last() else { break };
                row.seen = last.number;
                events
                    .iter()
                    .filter(|event| event.at >= started_at)
                    .for_each(|event| row.follow(&event.body));
            }
            self.rows.insert(task.id, row);
        }
        self.more = running.saturating_sub(self.rows.len() as u64);
        Ok(())
    }

    /// A line for each item, which leaves the last column of the terminal free.
    pub(crate) fn lines(&self, columns: usize, now: Timestamp) -> Vec<String> {
        let room = columns.saturating_sub(1);
        let width = self.rows.values().map(|row| row.item.chars().count()).max().unwrap_or(0);
        let width = width.min(ITEM_COLUMNS).min(room / 3);
        let mut lines: Vec<String> = self.rows.values().map(|row| row.line(width, room, now)).collect();
        if self.more > 0 {
            lines.push(short(&format!("… and {} more", self.more), room));
        }
        lines
    }
}

impl LiveRow {
    fn follow(&mut self, event: &EventBody) {
        match event {
            EventBody::Message { role: Role::Assistant, text } => {
                self.turn += 1;
                self.action = text.clone();
            }
            EventBody::Continued { role: Some(Role::Assistant), text } => self.action = text.clone(),
            EventBody::ToolCall { tool, input, .. } => self.action = format!("{tool} {input}"),
            EventBody::Progress { done, total, note } => {
                let total = total.map(|total| format!("/{total}")).unwrap_or_default();
                let note = note.as_ref().map(|note| format!(" {note}")).unwrap_or_default();
                self.action = format!("{done}{total}{note}");
            }
            EventBody::Log { text, .. }
            | EventBody::Status { text }
            | EventBody::Warning { text }
            | EventBody::Error { text }
            | EventBody::Result { text } => self.action = text.clone(),
            EventBody::Usage(usage) => {
                self.cost = match (self.cost, usage.cost) {
                    (Some(one), Some(other)) => Some(one + other),
                    (known, None) | (None, known) => known,
                };
            }
            EventBody::Message { role: Role::User | Role::System, .. }
            | EventBody::Prompt { .. }
            | EventBody::Thinking { .. }
            | EventBody::ToolResult { .. }
            | EventBody::File { .. }
            | EventBody::Session { .. }
            | EventBody::Stdout { .. }
            | EventBody::Transition { .. }
            | EventBody::Thinned { .. }
            | EventBody::Raw { .. }
            | EventBody::FormerPayload { .. }
            | EventBody::Continued { role: Some(Role::User | Role::System) | None, .. } => {}
        }
    }

    /// The item in `width` columns, then time, turn and cost, and as much of the last action as there is room for.
    fn line(&self, width: usize, room: usize, now: Timestamp) -> String {
        let mut line = format!(
            "{:<width$}  {:>4}",
            short(&visible(&self.item), width),
            how_long(now.since(self.started_at))
        );
        if self.turn > 0 {
            line.push_str(&format!("  turn {}", self.turn));
        }
        if let Some(cost) = self.cost {
            line.push_str(&format!("  {cost}"));
        }
        let action = self.action.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if !action.is_empty() {
            line.push_str("  ");
            line.push_str(&visible(action.trim()));
        }
        short(&line, room)
    }
}

/// The text in at most this many columns, with a mark where it is cut.
fn short(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    if columns == 0 { String::new() } else { format!("{kept}…") }
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, Usage};

    use super::*;

    fn table(item: &str, events: &[EventBody]) -> LiveTable {
        let mut row = LiveRow { item: item.to_owned(), ..LiveRow::default() };
        events.iter().for_each(|event| row.follow(event));
        LiveTable { rows: BTreeMap::from([(TaskId(Id::from_bits(1)), row)]), more: 3 }
    }

    #[test]
    fn a_row_has_item_time_turn_cost_and_the_last_action() {
        let usage = || EventBody::Usage(Usage { cost: Cost::from_usd(0.02), ..Usage::default() });
        let said = |text: &str| EventBody::Message { role: Role::Assistant, text: text.to_owned() };
        let call = EventBody::ToolCall {
            call: "1".to_owned(),
            tool: "Read".to_owned(),
            input: "{\"path\":\"src/main.rs\"}".to_owned(),
        };
        let table = table("src/main.rs", &[said("I look."), usage(), said("\n\nNow\nthis."), usage(), call]);
        let now = Timestamp::from_millis(72_000);
        assert_eq!(
            table.lines(80, now),
            ["src/main.rs  1m12s  turn 2  $0.04  Read {\"path\":\"src/main.rs\"}", "… and 3 more"]
        );
        assert_eq!(table.lines(50, now)[0], "src/main.rs  1m12s  turn 2  $0.04  Read {\"path\":…");
        for columns in 0..100 {
            assert!(
                table.lines(columns, now).iter().all(|line| line.chars().count() < columns.max(1)),
                "{columns}"
            );
        }
    }

    #[test]
    fn what_an_item_says_cannot_break_the_table() {
        let table = table("a\x1b[2J\nb", &[EventBody::Status { text: "x\r\x07y".to_owned() }]);
        assert!(table.lines(80, Timestamp::ZERO).iter().all(|line| !line.contains(char::is_control)));
    }
}
