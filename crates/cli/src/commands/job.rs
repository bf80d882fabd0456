//! `ostler job`: lists, shows, pauses, cancels, retries, removes and exports jobs of `ostler map`.

use std::time::Duration;

use ostler_core::JobId;
use ostler_ops::jobs::plan::add;
use ostler_ops::jobs::{self, JobRunner, JobSpec, manage, pilot};
use ostler_store::Store;
use ostler_store::calls::StepsOnReplay;
use ostler_wire::job::{JobAction, JobActionView, JobState, JobView};

use super::selection::{Asks, declined_job};
use super::{Console, leftovers};
use crate::args::JobCommand;
use crate::exit::{Code, refused, say};
use crate::map::plan;
use crate::map::results::{Form, print as print_results};
use crate::map::source::ItemUse;
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, what: JobCommand) -> anyhow::Result<Code> {
    let place = console.place()?;
    let store = place.open(IfMissing::Refuse).await?;
    let store = store.as_ref();
    match what {
        JobCommand::Ls { limit } => {
            let jobs = jobs::list(store, usize::from(limit)).await?;
            console.out.answer(&jobs, |looks| print::jobs(&jobs, looks))?;
        }
        JobCommand::Show(name) => {
            let (view, failed) = jobs::show(store, &name.job).await?;
            console.out.answer(&view, |looks| print::job(&view, &failed, looks))?;
        }
        JobCommand::Wait { job: name, timeout } => return wait(console, store, &name.job, timeout).await,
        JobCommand::Pause(name) => done(console, &manage::pause(store, &name.job).await?)?,
        JobCommand::Resume { job: name, max_cost } => {
            done(console, &manage::resume(store, &name.job, max_cost).await?)?;
            hint(store, jobs::find(store, &name.job).await?.job.id).await?;
        }
        JobCommand::Approve(name) => {
            let answer = pilot::approve(store, &name.job).await?;
            done(console, &answer)?;
            hint(store, jobs::find(store, &name.job).await?.job.id).await?;
        }
        JobCommand::Reject(name) => done(console, &pilot::reject(store, &name.job).await?)?,
        JobCommand::Add { job: name, csv, jsonl, items } => {
            let record = jobs::find(store, &name.job).await?;
            let of_pool = JobSpec::of(&record).is_some_and(|spec| spec.pool.is_some());
            let used = if of_pool { ItemUse::Payload } else { ItemUse::Argument };
            let items = plan::read_more(items, csv, jsonl, used)?;
            let plan = plan::more(&record, items, place.bounds().payload_bytes)?;
            let id = record.job.id;
            let added = add(store, &plan, id).await?;
            done(console, &JobActionView::new(id, JobAction::Added, added))?;
            if added > 0 {
                hint(store, id).await?;
            }
        }
        JobCommand::Set { job: name, concurrency } => {
            done(console, &manage::set_concurrency(store, &name.job, concurrency).await?)?;
        }
        JobCommand::Cancel { job: name, yes } => {
            let record = jobs::find(store, &name.job).await?;
            let view = jobs::view(&record);
            if let Some(code) = declined_cancel(&view, if yes { Asks::Nothing } else { Asks::First }).await? {
                return Ok(code);
            }
            done(console, &manage::cancel(store, &view.id).await?)?;
        }
        JobCommand::RetryFailed { job: name, from_scratch } => {
            let steps = if from_scratch { StepsOnReplay::Drop } else { StepsOnReplay::Keep };
            let answer = manage::retry_failed(store, &name.job, steps).await?;
            done(console, &answer)?;
            if answer.tasks > 0 {
                hint(store, jobs::find(store, &name.job).await?.job.id).await?;
            }
        }
        JobCommand::Rm(name) => {
            done(console, &manage::remove(store, &name.job).await?)?;
            leftovers::sweep(store, &place).await?;
        }
        JobCommand::Export { job: name, csv, .. } => {
            let id = jobs::find(store, &name.job).await?.job.id;
            let form = if csv { Form::Csv } else { Form::Jsonl };
            print_results(store, id, form, console.out.looks(), &mut std::io::stdout()).await?;
        }
    }
    Ok(Code::Done)
}

/// Waits until a job has ended. If no process runs it, that is printed first.
async fn wait(
    console: &Console,
    store: &dyn Store,
    name: &str,
    timeout: Option<Duration>,
) -> anyhow::Result<Code> {
    let id = jobs::find(store, name).await?.job.id;
    hint(store, id).await?;
    let ended = until_ended(store, id);
    let view = match timeout {
        None => ended.await?,
        Some(timeout) => {
            let in_time = tokio::time::timeout(timeout, ended).await;
            in_time.unwrap_or_else(|_| Err(not_ended(&id.to_string())))?
        }
    };
    ended_as(console, &view)
}

async fn until_ended(store: &dyn Store, id: JobId) -> anyhow::Result<JobView> {
    let mut changes = store.changes();
    loop {
        let view = jobs::show(store, &id.to_string()).await?.0;
        match view.state {
            JobState::Completed | JobState::Failed | JobState::Cancelled => return Ok(view),
            JobState::Running | JobState::Unfinished | JobState::Paused => changes.wait().await,
        };
    }
}

/// The error for a job that takes too long.
pub(super) fn not_ended(id: &str) -> anyhow::Error {
    refused(Code::WorkFailed, format!("{id} has not ended in time; see: ostler job show {id}"))
}

/// Prints how a job ended.
pub(super) fn ended_as(console: &Console, view: &JobView) -> anyhow::Result<Code> {
    let tasks = &view.tasks;
    console.out.answer(view, |_| {
        let (name, state) = (visible(&view.name), view.state.name());
        format!(
            "{name} {state}: {} completed, {} failed, {} cancelled\n",
            tasks.completed, tasks.failed, tasks.cancelled
        )
    })?;
    Ok(if view.state == JobState::Completed { Code::Done } else { Code::WorkFailed })
}

/// Asks before many items of a job are cancelled. Returns how the command ends if the user declines.
pub(super) async fn declined_cancel(job: &JobView, asks: Asks) -> anyhow::Result<Option<Code>> {
    let open = job.tasks.queued + job.tasks.claimed + job.tasks.running;
    declined_job("cancel", job, open, asks).await
}

/// Tells the user who would run the remaining items of a job, if no process is running it.
async fn hint(store: &dyn Store, id: JobId) -> anyhow::Result<()> {
    match JobRunner::awaited(store, id).await? {
        None => {}
        Some(JobRunner::Node) => {
            say("a node that has its pool, or serve_jobs = true for a command, will run them");
        }
        Some(JobRunner::Program) => say("the program that made this job has to run them"),
        Some(JobRunner::Mapper { folder }) => {
            let folder = folder.map(|folder| format!(", in {}", visible(&folder))).unwrap_or_default();
            say(&format!(
                "no process is running this job; to run them, repeat the same \"ostler map\" command{folder}"
            ));
        }
    }
    Ok(())
}

pub(super) fn done(console: &Console, answer: &JobActionView) -> anyhow::Result<()> {
    console.out.answer(answer, |_| {
        let what = if answer.tasks == 1 { "task" } else { "tasks" };
        format!("{}: {} {what} of {}\n", answer.done.name(), answer.tasks, answer.id)
    })?;
    Ok(())
}
