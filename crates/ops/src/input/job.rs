//! A job over a pool, and more of its items, from JSON.

use std::time::Duration;

use ostler_core::Cost;
use ostler_wire::input::{ItemsInput, JobInput};
use ostler_wire::{limit_syntax, value};
use serde_json::Value;

use super::{BadField, field, folder, read};
use crate::jobs::plan::{ItemWork, PlanRequest, PoolWork};
use crate::jobs::{Item, ItemForm, JobPool, JobSpec};

/// The maximum number of items in one request.
const MAX_ITEMS: usize = 100_000;

/// A job to create.
pub struct JobRequest {
    pub plan: PlanRequest,
    /// How many items run at once; `None`: as many as the pool has workers.
    pub concurrency: Option<u32>,
    pub attempts: Option<u32>,
    /// What it may cost.
    pub max_cost: Option<Cost>,
}

/// The input for a job over a pool with this spec, for a node that creates it.
#[must_use]
pub fn job_input(spec: JobSpec, name: Option<String>, items: Vec<Value>, max_cost: Option<Cost>) -> JobInput {
    let pool = spec.pool.unwrap_or_default();
    JobInput {
        pool: pool.name,
        kind: Some(pool.kind),
        name,
        items,
        options: pool.options,
        pilot: spec.pilot,
        concurrency: spec.jobs.map(u64::from),
        attempts: spec.attempts.map(u64::from),
        timeout: spec.timeout_ms.map(|ms| format!("{ms}ms")),
        max_cost: max_cost.map(|cost| cost.to_string()),
        folder: Some(spec.folder),
    }
}

/// The job that the input describes. A payload has at most `payload_bytes`.
///
/// # Errors
/// A sentence with the field.
pub fn job(input: JobInput, payload_bytes: usize) -> Result<JobRequest, BadField> {
    let pool = field("pool", &input.pool, |text| value::named("pool", text))?;
    let kind = match input.kind {
        Some(kind) => field("kind", &kind, value::kind)?,
        None => pool.clone(),
    };
    let items = items(ItemsInput { items: input.items })?;
    if input.pilot == Some(0) {
        return Err(BadField::of("pilot", "expected a whole number from 1"));
    }
    let timeout: Option<Duration> = read("timeout", input.timeout, value::duration)?;
    let columns = columns(&items);
    let plan = PlanRequest {
        name: match input.name {
            Some(name) => field("name", &name, |text| value::named("name", text))?,
            None => pool.clone(),
        },
        work: ItemWork::Pool(PoolWork {
            pool: JobPool {
                name: pool,
                section: None,
                kind,
                prompt: None,
                options: input.options,
                question: None,
                synthesis: None,
            },
            prompt: None,
            payload_bytes,
        }),
        items,
        columns,
        folder: folder(input.folder)?.unwrap_or_else(|| "/".to_owned()),
        item_folders: None,
        shell: None,
        timeout_ms: timeout.map(|timeout| timeout.as_millis()),
        pilot: input.pilot,
        before: 0,
    };
    Ok(JobRequest {
        plan,
        concurrency: read("concurrency", input.concurrency, limit_syntax::count)?,
        attempts: read("attempts", input.attempts, value::attempts)?,
        max_cost: read("max_cost", input.max_cost, ostler_core::parse_usd)?,
    })
}

/// Items: texts, or objects.
///
/// # Errors
/// A sentence with the number of the item that is neither.
pub fn items(input: ItemsInput) -> Result<Vec<Item>, BadField> {
    if input.items.is_empty() || input.items.len() > MAX_ITEMS {
        return Err(BadField::of("items", &format!("expected from 1 to {MAX_ITEMS} items")));
    }
    let item = |(number, item): (usize, Value)| match item {
        Value::String(text) => Ok(Item::plain(text)),
        Value::Object(row) => {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Ok(Item {
                fields: row.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
                form: ItemForm::Row,
                bytes: Value::Object(row).to_string().into_bytes(),
                parts: Vec::new(),
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err(BadField::of("items", &format!("item {number} is neither a text nor an object")))
        }
    };
    (1..).zip(input.items).map(item).collect()
}

fn columns(items: &[Item]) -> Vec<String> {
    items.first().map(|item| item.fields.iter().map(|(name, _)| name.clone()).collect()).unwrap_or_default()
}
