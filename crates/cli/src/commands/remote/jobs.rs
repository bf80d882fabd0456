//! Jobs by a node.

use ostler::RemoteClient;
use ostler_core::Cost;
use ostler_ops::jobs::FailedItem;

use crate::args::JobCommand;
use crate::commands::Console;
use crate::commands::job::done;
use crate::exit::Code;
use crate::map::results::{Form, print_views};
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
        JobCommand::Pause(name) => done(console, &node.job(&name.job).pause().await?)?,
        JobCommand::Resume { job: name, max_cost } => {
            let most = max_cost.map(|most: Cost| most.to_string());
            done(console, &node.job(&name.job).resume(most.as_deref()).await?)?;
        }
        JobCommand::Approve(name) => done(console, &node.job(&name.job).approve().await?)?,
        JobCommand::Reject(name) => done(console, &node.job(&name.job).reject().await?)?,
        JobCommand::Cancel(name) => done(console, &node.job(&name.job).cancel().await?)?,
        JobCommand::RetryFailed { job: name, from_scratch: false } => {
            done(console, &node.job(&name.job).retry_failed().await?)?;
        }
        JobCommand::Rm(name) => done(console, &node.job(&name.job).remove().await?)?,
        JobCommand::Export { job: name, csv, .. } => {
            let form = if csv { Form::Csv } else { Form::Jsonl };
            let results = node.job(&name.job).results().await?;
            print_views(&results, form, console.out.looks(), &mut std::io::stdout())?;
        }
        JobCommand::RetryFailed { .. } | JobCommand::Add { .. } | JobCommand::Set { .. } => {
            return Err(super::not_here("it is done on a store only, so far; the HTTP API has it"));
        }
    }
    Ok(Code::Done)
}
