//! Jobs by a node, and `ostler map --detach --pool`.

use ostler::{ApiMethod, ApiRequest, RemoteClient, RemoteErrorKind};
use ostler_core::Cost;
use ostler_ops::input::job_input;
use ostler_ops::jobs::{FailedItem, Item, ItemForm, ServedBy};
use ostler_store::Bounds;
use serde_json::{Value, json};

use super::not_here;
use crate::args::{JobCommand, Map};
use crate::commands::Console;
use crate::commands::job::{declined_cancel, done, ended_as, not_ended};
use crate::commands::map::nothing;
use crate::commands::selection::Asks;
use crate::exit::{Code, refused};
use crate::map::plan;
use crate::map::results::{Form, print_views};
use crate::map::source::ItemUse;
use crate::print;

/// Failed items that are shown with a job.
const MAX_FAILED: usize = 20;

pub(super) async fn run(console: &Console, node: &RemoteClient, what: JobCommand) -> anyhow::Result<Code> {
    match what {
        JobCommand::Ls { limit } => {
            let jobs = node.jobs(usize::from(limit)).await?;
            console.out.answer(&jobs, |looks| print::jobs(&jobs, looks))?;
        }
        JobCommand::Show(name) => {
            let job = node.job(&name.job);
            let view = job.show().await?;
            let mut failed = Vec::new();
            if view.tasks.failed > 0 {
                let results = job.results().await?.into_iter().filter(|result| result.state == "failed");
                let item = |result: ostler::view::job::JobResultView| FailedItem {
                    item: result.item,
                    error: result.error.unwrap_or_default(),
                };
                failed = results.map(item).take(MAX_FAILED).collect();
            }
            console.out.answer(&view, |looks| print::job(&view, &failed, looks))?;
        }
        JobCommand::Wait { job: name, timeout } => {
            let job = node.job(&name.job);
            let waited = match timeout {
                Some(timeout) => job.wait_within(timeout).await,
                None => job.wait().await,
            };
            return match waited {
                Ok(view) => ended_as(console, &view),
                Err(error) if error.kind == RemoteErrorKind::NotFinished => Err(not_ended(&name.job)),
                Err(error) => Err(error.into()),
            };
        }
        JobCommand::Pause(name) => done(console, &node.job(&name.job).pause().await?)?,
        JobCommand::Resume { job: name, max_cost } => {
            let most = max_cost.map(|most: Cost| most.to_string());
            done(console, &node.job(&name.job).resume(most.as_deref()).await?)?;
        }
        JobCommand::Approve(name) => done(console, &node.job(&name.job).approve().await?)?,
        JobCommand::Reject(name) => done(console, &node.job(&name.job).reject().await?)?,
        JobCommand::Cancel { job: name, yes } => {
            let view = node.job(&name.job).show().await?;
            if let Some(code) = declined_cancel(&view, if yes { Asks::Nothing } else { Asks::First }).await? {
                return Ok(code);
            }
            done(console, &node.job(&view.id).cancel().await?)?;
        }
        JobCommand::RetryFailed { job: name, from_scratch } => {
            let request = change(&name.job, "retry-failed").body(&json!({ "from_scratch": from_scratch }));
            done(console, &node.request(request).await?)?;
        }
        JobCommand::Set { job: name, concurrency } => {
            let request = change(&name.job, "concurrency").body(&json!({ "items": concurrency }));
            done(console, &node.request(request).await?)?;
        }
        JobCommand::Add { job: name, csv, jsonl, items } => {
            // A node adds items to jobs over a pool only.
            let items = plan::read_more(items, csv, jsonl, ItemUse::Payload)?;
            let items = items.all.iter().map(value).collect::<anyhow::Result<Vec<_>>>()?;
            let request = change(&name.job, "items").body(&json!({ "items": items }));
            done(console, &node.request(request).await?)?;
        }
        JobCommand::Rm(name) => done(console, &node.job(&name.job).remove().await?)?,
        JobCommand::Export { job: name, csv, .. } => {
            let form = if csv { Form::Csv } else { Form::Jsonl };
            let results = node.job(&name.job).results().await?;
            print_views(&results, form, console.out.looks(), &mut std::io::stdout())?;
        }
    }
    Ok(Code::Done)
}

/// `ostler map --server`: a new job over a pool of the node's config.
pub(super) async fn map(console: &Console, node: &RemoteClient, map: &Map) -> anyhow::Result<Code> {
    if map.dry_run || !map.detach {
        return Err(not_here(
            "it reads and runs the items here; a node runs those of \"ostler map --detach --pool POOL\"",
        ));
    }
    let templates = map.prompt.is_some() || map.prompt_file.is_some();
    let folders = map.worktree.is_some() || map.folders.is_some();
    if map.pool.is_none() || templates || folders || map.fresh || map.once || map.reserve.is_some() {
        return Err(not_here(
            "a node makes a new job over a pool of its config: with --pool and --kind, and without templates, folders, \
             --fresh, --once and --reserve",
        ));
    }
    let Some(plan) = plan::make(map, Bounds::default().payload_bytes)? else {
        return nothing(console, map);
    };
    let items = plan.items().iter().map(value).collect::<anyhow::Result<Vec<_>>>()?;
    let spec = plan.spec(ServedBy::Node, map.jobs.map(u32::from), map.retries.map(|retries| retries + 1));
    let job = job_input(spec, map.name.clone(), items, map.max_cost);
    let (_, made) = node.create_job(&job).await?;
    console.out.answer(&made, |_| format!("{}\n", made.id))?;
    Ok(Code::Done)
}

fn change(job: &str, verb: &str) -> ApiRequest {
    ApiRequest::new(ApiMethod::Post, &["jobs", job, verb])
}

/// An item as the API has it: a text, or an object.
fn value(item: &Item) -> anyhow::Result<Value> {
    match item.form {
        ItemForm::Row => Ok(serde_json::from_slice(&item.bytes)?),
        ItemForm::Text | ItemForm::File => match std::str::from_utf8(&item.bytes) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err(refused(Code::BadInput, "an item is not UTF-8 text, and a node takes only that")),
        },
    }
}
