//! `ostler job`: lists, shows, pauses, cancels, retries, removes and exports jobs of `ostler map`.

use ostler_core::JobId;
use ostler_ops::jobs::{self, JobRunner, manage};
use ostler_store::Store;
use ostler_wire::job::JobActionView;

use super::Console;
use crate::args::JobCommand;
use crate::exit::{Code, say};
use crate::map::results::{Form, print as print_results};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, what: JobCommand) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
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
        JobCommand::Pause(name) => done(console, &manage::pause(store, &name.job).await?)?,
        JobCommand::Resume(name) => {
            done(console, &manage::resume(store, &name.job).await?)?;
            hint(store, jobs::find(store, &name.job).await?.job.id).await?;
        }
        JobCommand::Cancel(name) => done(console, &manage::cancel(store, &name.job).await?)?,
        JobCommand::RetryFailed(name) => {
            let answer = manage::retry_failed(store, &name.job).await?;
            done(console, &answer)?;
            if answer.tasks > 0 {
                hint(store, jobs::find(store, &name.job).await?.job.id).await?;
            }
        }
        JobCommand::Rm(name) => done(console, &manage::remove(store, &name.job).await?)?,
        JobCommand::Export { job: name, csv, .. } => {
            let id = jobs::find(store, &name.job).await?.job.id;
            let form = if csv { Form::Csv } else { Form::Jsonl };
            print_results(store, id, form, console.out.looks(), &mut std::io::stdout()).await?;
        }
    }
    Ok(Code::Done)
}

/// Tells the user who would run the remaining items of a job, if no process is running it.
async fn hint(store: &dyn Store, id: JobId) -> anyhow::Result<()> {
    match JobRunner::awaited(store, id).await? {
        None => {}
        Some(JobRunner::Node) => say("a node with serve_jobs = true in its config will run them"),
        Some(JobRunner::Mapper { folder }) => {
            let folder = folder.map(|folder| format!(", in {}", visible(&folder))).unwrap_or_default();
            say(&format!(
                "no process is running this job; to run them, repeat the same \"ostler map\" command{folder}"
            ));
        }
    }
    Ok(())
}

fn done(console: &Console, answer: &JobActionView) -> anyhow::Result<()> {
    console.out.answer(answer, |_| {
        let what = if answer.tasks == 1 { "task" } else { "tasks" };
        format!("{}: {} {what} of {}\n", answer.done.name(), answer.tasks, answer.id)
    })?;
    Ok(())
}
