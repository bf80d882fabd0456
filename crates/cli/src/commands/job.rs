//! `ostler job`: lists, shows, pauses, cancels, retries, removes and exports jobs of `ostler map`.

use ostler_core::{JobId, StateName};
use ostler_store::Store;
use ostler_store::calls::QueueChange;
use ostler_store::jobs::{JobChange, JobFilter, JobRecord, queue_of};
use ostler_store::views::Filter;
use ostler_wire::job::{JobActionView, JobView};
use ostler_wire::system::TaskCounts;

use super::Console;
use crate::args::{JobCommand, JobName};
use crate::exit::{Code, say};
use crate::map::job;
use crate::map::plan::{Payload, ServedBy, Spec};
use crate::map::results::{Form, print as print_results};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

/// The number of failed items shown.
const SHOWN: usize = 20;

pub(super) async fn run(console: &Console, what: JobCommand) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    match what {
        JobCommand::Ls { limit } => list(console, store.as_ref(), usize::from(limit)).await,
        JobCommand::Show(name) => show(console, store.as_ref(), &name).await,
        JobCommand::Pause(name) => {
            let pause = QueueChange::Pause("paused by hand".to_owned());
            configure(console, store.as_ref(), &name, pause, "paused").await
        }
        JobCommand::Resume(name) => {
            let code = configure(console, store.as_ref(), &name, QueueChange::Resume, "resumed").await?;
            hint(store.as_ref(), job::find(store.as_ref(), &name.job).await?.job.id).await?;
            Ok(code)
        }
        JobCommand::Cancel(name) => {
            let id = job::find(store.as_ref(), &name.job).await?.job.id;
            let tasks = job::cancel(store.as_ref(), id).await?;
            done(console, id.to_string(), "cancelled", tasks)
        }
        JobCommand::RetryFailed(name) => {
            let id = job::find(store.as_ref(), &name.job).await?.job.id;
            store.change_job(id, JobChange::Reopen).await?;
            let tasks = job::replay(store.as_ref(), id, &[StateName::Failed]).await?;
            let code = done(console, id.to_string(), "retried", tasks)?;
            if tasks > 0 {
                hint(store.as_ref(), id).await?;
            }
            Ok(code)
        }
        JobCommand::Rm(name) => {
            let found = job::find(store.as_ref(), &name.job).await?;
            let tasks = job::remove(store.as_ref(), &found).await?;
            done(console, found.job.id.to_string(), "removed", tasks)
        }
        JobCommand::Export { job: name, csv, .. } => {
            let id = job::find(store.as_ref(), &name.job).await?.job.id;
            let form = if csv { Form::Csv } else { Form::Jsonl };
            print_results(store.as_ref(), id, form, console.out.looks(), &mut std::io::stdout()).await?;
            Ok(Code::Done)
        }
    }
}

/// Tells the user who would run the remaining items of a job, if no process is running it.
async fn hint(store: &dyn Store, id: JobId) -> anyhow::Result<()> {
    if job::server(&store.survey().await?, id).is_some() {
        return Ok(());
    }
    let Some(record) = job::by_id(store, id).await?.filter(|record| record.counts.queued > 0) else {
        return Ok(());
    };
    let spec = serde_json::from_str::<Spec>(&record.job.spec).ok();
    match spec.as_ref().map(|spec| spec.served_by) {
        Some(ServedBy::Node) => say("a node with serve_jobs = true in its config will run them"),
        Some(ServedBy::Mapper) | None => {
            let folder = spec.map(|spec| format!(", in {}", visible(&spec.folder))).unwrap_or_default();
            say(&format!(
                "no process is running this job; to run them, repeat the same \"ostler map\" command{folder}"
            ));
        }
    }
    Ok(())
}

pub(crate) fn job_view(record: &JobRecord) -> JobView {
    let spec = serde_json::from_str::<Spec>(&record.job.spec).ok();
    let counts = &record.counts;
    JobView {
        id: record.job.id.to_string(),
        name: record.job.name.clone(),
        state: job::state(record),
        items: record.job.items,
        tasks: TaskCounts {
            queued: counts.queued,
            claimed: counts.claimed,
            running: counts.running,
            completed: counts.completed,
            failed: counts.failed,
            cancelled: counts.cancelled,
        },
        created_at: record.made_at.into(),
        cancelled_at: record.cancelled_at.map(Into::into),
        paused: record.paused.clone(),
        queue: queue_of(record.job.id),
        command: spec.iter().flat_map(|spec| &spec.command).map(ostler_process::Argument::shown).collect(),
        folder: spec.map(|spec| spec.folder),
    }
}

async fn list(console: &Console, store: &dyn Store, limit: usize) -> anyhow::Result<Code> {
    let jobs: Vec<JobView> = store.jobs(JobFilter::default(), limit).await?.iter().map(job_view).collect();
    console.out.answer(&jobs, |looks| print::jobs(&jobs, looks))?;
    Ok(Code::Done)
}

async fn show(console: &Console, store: &dyn Store, name: &JobName) -> anyhow::Result<Code> {
    let record = job::find(store, &name.job).await?;
    let view = job_view(&record);
    let filter =
        Filter { queue: Some(view.queue.clone()), state: Some(StateName::Failed), ..Filter::default() };
    let failed = store.list(filter, None, SHOWN).await?.tasks;
    let failed: Vec<(String, String)> = failed
        .iter()
        .map(|task| {
            let item = serde_json::from_str::<Payload>(&task.payload).map(|payload| payload.item.shown());
            let why = task.last_failure.as_ref().map(|failure| failure.message.clone());
            (item.unwrap_or_else(|_| task.id.to_string()), why.unwrap_or_default())
        })
        .collect();
    console.out.answer(&view, |looks| print::job(&view, &failed, looks))?;
    Ok(Code::Done)
}

async fn configure(
    console: &Console,
    store: &dyn Store,
    name: &JobName,
    change: QueueChange,
    did: &'static str,
) -> anyhow::Result<Code> {
    let record = job::find(store, &name.job).await?;
    store.configure(&queue_of(record.job.id), vec![change]).await?;
    let counts = &record.counts;
    let open = counts.queued + counts.claimed + counts.running;
    done(console, record.job.id.to_string(), did, usize::try_from(open).unwrap_or(usize::MAX))
}

fn done(console: &Console, id: String, did: &'static str, tasks: usize) -> anyhow::Result<Code> {
    let answer = JobActionView { id, done: did, tasks: tasks as u64 };
    console.out.answer(&answer, |_| {
        let what = if tasks == 1 { "task" } else { "tasks" };
        format!("{did}: {tasks} {what} of {}\n", answer.id)
    })?;
    Ok(Code::Done)
}
