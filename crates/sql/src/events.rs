//! Events of a task: their stored format, and the conversation that they record with an attempt.

use std::collections::HashMap;

use ostler_core::{
    Conversation, Cost, EventBody, EventKind, Level, LogStream, PROMPT_SHOWN, PromptRef, Role, StateName,
    TaskId, Timestamp, ToolStatus, Usage, UsageSource, add_usage, beginning,
};
use ostler_store::MAX_READ_BYTES;
use ostler_store::events::{Event, EventQuery, TextPart, TextRef};
use ostler_store::views::QueueSettings;
use serde::{Deserialize, Serialize};

use crate::codec::Readable;
use crate::costs::EarlierUsage;
use crate::gate_codec::read_rules;
use crate::tx::{Snapshot, Tx, one};
use crate::value::{Row, Unreadable};
use crate::{budgets, chunks, costs, params};

/// The version of the stored format. Rows without one are of the format before: one text, by kind.
const VERSION: i64 = 1;

/// An event as its row has it.
#[derive(Debug)]
pub struct StoredEvent {
    pub kind: i16,
    pub version: i16,
    /// JSON: what the event says beside its text.
    pub data: String,
    /// A short text, in the row itself.
    pub text: Option<String>,
    /// The full size of a long text.
    pub size: usize,
    /// The parts of a long text.
    pub chunks: Vec<Vec<u8>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Data {
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct UsageRow {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    model: Option<String>,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    cost_nanos: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    estimated: bool,
}

impl From<&Usage> for UsageRow {
    fn from(usage: &Usage) -> Self {
        Self {
            model: usage.model.clone(),
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_read: usage.cache_read_tokens,
            cache_write: usage.cache_write_tokens,
            reasoning: usage.reasoning_tokens,
            cost_nanos: usage.cost.map(Cost::nanos),
            estimated: usage.source.is_estimated(),
        }
    }
}

impl From<UsageRow> for Usage {
    fn from(row: UsageRow) -> Self {
        Self {
            model: row.model,
            input_tokens: row.input,
            output_tokens: row.output,
            cache_read_tokens: row.cache_read,
            cache_write_tokens: row.cache_write,
            reasoning_tokens: row.reasoning,
            cost: row.cost_nanos.map(Cost::from_nanos),
            source: UsageSource::from_estimated(row.estimated),
        }
    }
}

/// An event as it is stored. Long texts are compressed here, before a transaction begins.
#[must_use]
pub fn stored(body: &EventBody) -> StoredEvent {
    let data = match body {
        EventBody::Log { level, stream, .. } => {
            Data { level: Some(level.name().into()), stream: Some(stream.name().into()), ..Data::default() }
        }
        EventBody::Progress { done, total, note } => {
            Data { done: Some(*done), total: *total, note: note.clone(), ..Data::default() }
        }
        EventBody::Message { role, .. } => Data { role: Some(role.name().into()), ..Data::default() },
        EventBody::Continued { role, .. } => {
            Data { role: role.map(|role| role.name().into()), ..Data::default() }
        }
        EventBody::ToolCall { call, tool, .. } => {
            Data { call: Some(call.clone()), tool: Some(tool.clone()), ..Data::default() }
        }
        EventBody::ToolResult { call, tool, status, .. } => Data {
            call: Some(call.clone()),
            tool: tool.clone(),
            status: Some(status.name().into()),
            ..Data::default()
        },
        EventBody::File { path, size, sha256 } => Data {
            path: Some(path.clone()),
            size: Some(*size),
            sha256: Some(sha256.clone()),
            ..Data::default()
        },
        EventBody::Usage(usage) => Data { usage: Some(usage.into()), ..Data::default() },
        EventBody::Session { id } => Data { session: Some(id.clone()), ..Data::default() },
        EventBody::Transition { state, why, run_at } => Data {
            state: Some(state.name().into()),
            why: Some(why.clone()),
            run_at_ms: run_at.map(Timestamp::millis),
            ..Data::default()
        },
        EventBody::Thinned { lines } => Data { lines: Some(*lines), ..Data::default() },
        EventBody::Prompt { .. }
        | EventBody::Thinking { .. }
        | EventBody::Warning { .. }
        | EventBody::Stdout { .. }
        | EventBody::Status { .. }
        | EventBody::Error { .. }
        | EventBody::Result { .. }
        | EventBody::Raw { .. }
        | EventBody::FormerPayload { .. } => Data::default(),
    };
    let text = body.text();
    let chunks = text.map(chunks::chunks_of).unwrap_or_default();
    StoredEvent {
        kind: body.kind().code().into(),
        version: VERSION as i16,
        data: serde_json::to_string(&data).expect("an event has only texts and numbers"),
        text: text.filter(|_| chunks.is_empty()).map(str::to_owned),
        size: text.map_or(0, str::len),
        chunks,
    }
}

/// An event from the columns of its row and its text.
///
/// # Errors
/// When a column holds what Ostler never writes.
pub fn body_from(kind: i64, version: i64, data: String, text: String) -> Readable<EventBody> {
    let kind = usize::try_from(kind).ok().and_then(|at| EventKind::ALL.get(at).copied());
    if version == 0 {
        return former(kind.unwrap_or(EventKind::Log), data);
    }
    // A kind of a later version reads as a line of its data.
    let Some(kind) = kind else { return Ok(EventBody::line(format!("{data} {text}"))) };
    let data: Data = serde_json::from_str(&data).map_err(|error| Unreadable(error.to_string()))?;
    Ok(match kind {
        EventKind::Log => EventBody::Log {
            level: data.level.as_deref().and_then(Level::named).unwrap_or(Level::Info),
            stream: data.stream.as_deref().and_then(LogStream::named).unwrap_or(LogStream::Log),
            text,
        },
        EventKind::Progress => {
            EventBody::Progress { done: data.done.unwrap_or(0), total: data.total, note: data.note }
        }
        EventKind::Prompt => EventBody::Prompt { text },
        EventKind::Message => {
            let role = data.role.as_deref().and_then(Role::named).unwrap_or(Role::Assistant);
            EventBody::Message { role, text }
        }
        EventKind::Thinking => EventBody::Thinking { text },
        EventKind::ToolCall => EventBody::ToolCall {
            call: data.call.unwrap_or_default(),
            tool: data.tool.unwrap_or_default(),
            input: text,
        },
        EventKind::ToolResult => EventBody::ToolResult {
            call: data.call.unwrap_or_default(),
            tool: data.tool,
            status: data.status.as_deref().and_then(ToolStatus::named).unwrap_or(ToolStatus::Ok),
            output: text,
        },
        EventKind::File => EventBody::File {
            path: data.path.unwrap_or_default(),
            size: data.size.unwrap_or(0),
            sha256: data.sha256.unwrap_or_default(),
        },
        EventKind::Usage => EventBody::Usage(data.usage.map(Usage::from).unwrap_or_default()),
        EventKind::Session => EventBody::Session { id: data.session.unwrap_or_default() },
        EventKind::Warning => EventBody::Warning { text },
        EventKind::Stdout => EventBody::Stdout { text },
        EventKind::Transition => EventBody::Transition {
            state: data.state.as_deref().and_then(StateName::named).unwrap_or(StateName::Queued),
            why: data.why.unwrap_or_default(),
            run_at: data.run_at_ms.map(Timestamp::from_millis),
        },
        EventKind::Thinned => EventBody::Thinned { lines: data.lines.unwrap_or(0) },
        EventKind::Status => EventBody::Status { text },
        EventKind::Error => EventBody::Error { text },
        EventKind::Result => EventBody::Result { text },
        EventKind::Raw => EventBody::Raw { text },
        EventKind::FormerPayload => EventBody::FormerPayload { text },
        EventKind::Continued => {
            EventBody::Continued { role: data.role.as_deref().and_then(Role::named), text }
        }
    })
}

/// An event of the format before versions: one text, written for people.
fn former(kind: EventKind, data: String) -> Readable<EventBody> {
    Ok(match kind {
        EventKind::Log => {
            let (level, text) = data.split_once(' ').unwrap_or(("", &data));
            match Level::named(level) {
                Some(level) => EventBody::Log { level, stream: LogStream::Log, text: text.to_owned() },
                None => EventBody::line(data),
            }
        }
        EventKind::Progress => {
            let (count, note) =
                data.split_once(' ').map_or((&*data, None), |(count, note)| (count, Some(note)));
            let (done, total) = count.split_once('/').unwrap_or((count, ""));
            EventBody::Progress {
                done: done.parse().unwrap_or(0),
                total: total.parse().ok(),
                note: note.map(str::to_owned),
            }
        }
        EventKind::File => return body_from(EventKind::File.code().into(), VERSION, data, String::new()),
        EventKind::Stdout => EventBody::Stdout { text: data },
        EventKind::Warning
        | EventKind::Message
        | EventKind::ToolCall
        | EventKind::Prompt
        | EventKind::Thinking
        | EventKind::ToolResult
        | EventKind::Usage
        | EventKind::Session
        | EventKind::Transition
        | EventKind::Thinned
        | EventKind::Status
        | EventKind::Error
        | EventKind::Result
        | EventKind::Raw
        | EventKind::FormerPayload
        | EventKind::Continued => EventBody::Warning { text: data },
    })
}

// ---- writing ------------------------------------------------------------------------------------------

/// Appends an event to a locked task, whatever its state.
///
/// # Errors
/// When a statement fails.
pub async fn append_one<T: Tx>(tx: &mut T, slot: i64, body: &EventBody) -> Result<(), T::Error> {
    let event = stored(body);
    let row = one(
        tx,
        "INSERT INTO ostler.event(task, number, at, token, kind, version, data, text)
         SELECT id, (SELECT coalesce(max(number), 0) + 1 FROM ostler.event WHERE task = $1), $2, token, $3, $4, $5, $6
         FROM ostler.task WHERE id = $1 RETURNING number",
        params![slot, tx.now().millis(), event.kind, event.version, event.data, event.text],
    )
    .await?;
    chunks::put(tx, slot, row.get(0)?, event.size, &event.chunks).await?;
    tx.changed();
    Ok(())
}

/// Records prompt, session and usage of an attempt. The first of these events has the number `first`.
///
/// # Errors
/// When a statement fails.
pub async fn record_conversation<T: Tx>(
    tx: &mut T,
    slot: i64,
    token: u64,
    first: u64,
    events: &[EventBody],
) -> Result<(), T::Error> {
    let is_recorded =
        |event: &EventBody| matches!(event.kind(), EventKind::Prompt | EventKind::Session | EventKind::Usage);
    if !events.iter().any(is_recorded) {
        return Ok(());
    }
    let sql = "SELECT c.session, c.prompt, c.usage, q.name, q.rules, q.pool
         FROM ostler.task t JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
            LEFT JOIN ostler.conversation c ON c.task = t.id AND c.token = $2 WHERE t.id = $1";
    let row = one(tx, sql, params![slot, token]).await?;
    let (mut session, mut prompt): (Option<String>, Option<u64>) = (row.get(0)?, row.get(1)?);
    let mut usage = row.get::<Option<String>>(2)?.map_or(Ok(Vec::new()), |text| usage_from::<T>(&text))?;
    let earlier = if usage.is_empty() { EarlierUsage::None } else { EarlierUsage::Some };
    for (number, event) in (first..).zip(events) {
        if let EventBody::Usage(new) = event {
            add_usage(&mut usage, new);
        } else if let EventBody::Session { id } = event {
            session = Some(id.clone());
        } else if event.kind() == EventKind::Prompt {
            prompt = Some(number);
        }
    }
    let usage = serde_json::to_string(&usage.iter().map(UsageRow::from).collect::<Vec<_>>())
        .expect("usage has only texts and numbers");
    tx.exec(
        "INSERT INTO ostler.conversation(task, token, session, prompt, usage) VALUES($1, $2, $3, $4, $5)
         ON CONFLICT(task, token) DO UPDATE SET session = excluded.session, prompt = excluded.prompt, usage = excluded.usage",
        params![slot, token, session, prompt, usage],
    )
    .await?;
    let spent: Vec<&Usage> = events.iter().filter_map(usage_of).collect();
    if spent.is_empty() {
        return Ok(());
    }
    let queue: String = row.get(3)?;
    let mut settings = QueueSettings { pool: row.get(5)?, ..QueueSettings::default() };
    read_rules(row.get(4)?, &mut settings).map_err(T::unreadable)?;
    costs::add(tx, &queue, &settings, spent.iter().copied(), earlier).await?;
    if settings.is_charged() {
        let cost = spent.iter().filter_map(|usage| usage.cost).sum();
        budgets::spend(tx, slot, token, cost).await?;
    }
    Ok(())
}

const fn usage_of(event: &EventBody) -> Option<&Usage> {
    if let EventBody::Usage(usage) = event { Some(usage) } else { None }
}

pub(crate) fn usage_from<S: Snapshot>(text: &str) -> Result<Vec<Usage>, S::Error> {
    let rows: Vec<UsageRow> =
        serde_json::from_str(text).map_err(|error| S::unreadable(Unreadable(error.to_string())))?;
    Ok(rows.into_iter().map(Usage::from).collect())
}

// ---- reading ------------------------------------------------------------------------------------------

/// The conversations of a task's attempts, by token.
///
/// # Errors
/// When a statement fails.
pub async fn conversations<S: Snapshot>(
    snapshot: &S,
    slot: i64,
) -> Result<HashMap<u64, Conversation>, S::Error> {
    let sql = "SELECT token, session, prompt, usage FROM ostler.conversation WHERE task = $1 ORDER BY token";
    let mut found = HashMap::new();
    for row in snapshot.rows(sql, params![slot]).await? {
        let prompt = match row.get::<Option<u64>>(2)? {
            Some(event) => read_prompt(snapshot, slot, event).await?,
            None => None,
        };
        let usage = usage_from::<S>(&row.get::<String>(3)?)?;
        found.insert(row.get(0)?, Conversation { session: row.get(1)?, prompt, usage });
    }
    Ok(found)
}

async fn read_prompt<S: Snapshot>(
    snapshot: &S,
    slot: i64,
    event: u64,
) -> Result<Option<PromptRef>, S::Error> {
    let sql = "SELECT text FROM ostler.event WHERE task = $1 AND number = $2";
    let Some(row) = snapshot.row(sql, params![slot, event]).await? else { return Ok(None) };
    let (text, bytes) = match row.get::<Option<String>>(0)? {
        Some(text) => {
            let bytes = text.len() as u64;
            (text, bytes)
        }
        None => chunks::read_str(snapshot, slot, event, PROMPT_SHOWN).await?.unwrap_or_default(),
    };
    Ok(Some(PromptRef { event, bytes, text }))
}

const EVENTS: &str =
    "SELECT e.number, e.at, e.token, e.kind, e.version, e.data, e.text, e.task FROM ostler.event e
    WHERE e.task = (SELECT id FROM ostler.task WHERE uid = $1) AND e.number > $2 AND (1 << e.kind) & $4 <> 0
    ORDER BY e.number LIMIT $3";
/// The same by an index without log lines and progress.
const LOSSLESS: &str = "SELECT e.number, e.at, e.token, e.kind, e.version, e.data, e.text, e.task FROM ostler.event e /*by lossless*/
    WHERE e.task = (SELECT id FROM ostler.task WHERE uid = $1) AND e.number > $2 AND (1 << e.kind) & $4 <> 0
        AND e.kind <> 0 AND e.kind <> 3
    ORDER BY e.number LIMIT $3";

/// A page of a task's events.
///
/// # Errors
/// When a statement fails.
pub async fn read<S: Snapshot>(
    snapshot: &S,
    task: TaskId,
    query: EventQuery,
) -> Result<Vec<Event>, S::Error> {
    let sql = if query.kinds.is_lossless() { LOSSLESS } else { EVENTS };
    let rows = snapshot.rows(sql, params![task, query.after, query.limit, query.kinds.bits()]).await?;
    let (mut events, mut bytes) = (Vec::with_capacity(rows.len()), 0);
    for row in &rows {
        let number = row.get(0)?;
        let (mut text, size) = match row.get::<Option<String>>(6)? {
            Some(text) => {
                let size = text.len() as u64;
                (text, size)
            }
            None => {
                // The first one is read whatever its length.
                let most = if events.is_empty() { usize::MAX } else { MAX_READ_BYTES - bytes };
                match long_text(snapshot, row.get(7)?, number, query.text_bytes, most).await? {
                    Some(found) => found,
                    None => break,
                }
            }
        };
        let wanted = usize::try_from(size).unwrap_or(usize::MAX).min(query.text_bytes);
        if !events.is_empty() && bytes + wanted > MAX_READ_BYTES {
            break;
        }
        text.truncate(beginning(&text, query.text_bytes).len());
        bytes += text.len();
        let cut = ((text.len() as u64) < size).then_some(size);
        let body = body_from(row.get(3)?, row.get(4)?, row.get(5)?, text).map_err(S::unreadable)?;
        events.push(Event { number, at: Timestamp::from_millis(row.get(1)?), token: row.get(2)?, body, cut });
    }
    Ok(events)
}

/// The text of an event that is not in its row, and its size; empty for an event without one. `None`: what is wanted of it
/// is more than `most` bytes.
async fn long_text<S: Snapshot>(
    snapshot: &S,
    slot: i64,
    number: u64,
    wanted: usize,
    most: usize,
) -> Result<Option<(String, u64)>, S::Error> {
    let Some(size) = chunks::size(snapshot, slot, number).await? else { return Ok(Some((String::new(), 0))) };
    if usize::try_from(size).unwrap_or(usize::MAX).min(wanted) > most {
        return Ok(None);
    }
    chunks::read_str(snapshot, slot, number, wanted).await
}

/// A part of a long text.
///
/// # Errors
/// When a statement fails.
pub async fn read_text<S: Snapshot>(
    snapshot: &S,
    task: TaskId,
    which: TextRef,
    from: u64,
    most: usize,
) -> Result<Option<TextPart>, S::Error> {
    let (sql, owner) = match which {
        TextRef::Event(number) => (
            "SELECT t.id, e.text FROM ostler.task t JOIN ostler.event e ON e.task = t.id WHERE t.uid = $1 AND e.number = $2",
            number,
        ),
        TextRef::Output => ("SELECT id, output FROM ostler.task WHERE uid = $1 AND $2 = 0", chunks::OUTPUT),
    };
    let Some(row) = snapshot.row(sql, params![task, owner]).await? else { return Ok(None) };
    match row.get::<Option<String>>(1)? {
        Some(text) => {
            let start = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
            let end = start.saturating_add(most).min(text.len());
            Ok(Some(TextPart { bytes: text.as_bytes()[start..end].to_vec(), size: text.len() as u64 }))
        }
        None => chunks::read(snapshot, row.get(0)?, owner, from, most).await,
    }
}
