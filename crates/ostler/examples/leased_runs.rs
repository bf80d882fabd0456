//! Leased runs: workers that come and go with the load, a run under a name of its own in a folder of its own, which resumes at its
//! last step in any process, and which can be cancelled.

use std::path::Path;
use std::time::Duration;

use ostler::{Client, Context, LeaseTimes, StateName, Submission, TaskError};
use serde::{Deserialize, Serialize};

/// More than wait before another worker is added.
const RUNS: usize = 12;

#[derive(Clone, Serialize, Deserialize)]
struct Run {
    prompt: String,
    max_iterations: u32,
}

async fn run_in_folder(run: Run, ctx: Context) -> Result<u32, TaskError> {
    let folder = ctx.folder().ok_or_else(|| TaskError::permanent("a run needs a folder"))?.to_owned();
    let mut iterations = 0;
    while iterations < run.max_iterations {
        if ctx.is_cancelled() {
            return Err(TaskError::transient("cancelled"));
        }
        let name = format!("iteration {iterations}");
        let note = Path::new(&folder).join(format!("{}.{iterations}", ctx.task()));
        iterations = ctx
            .step(&name, || async {
                std::fs::write(note, &run.prompt)?;
                Ok(iterations + 1)
            })
            .await?;
        tokio::task::yield_now().await;
    }
    Ok(iterations)
}

/// What became of the runs: how many completed, and the state of the one that was cancelled.
pub(crate) async fn run(folder: &Path) -> Result<(u64, StateName), Box<dyn std::error::Error>> {
    let store = folder.join("runs.db");
    let pool = ostler::open(&store)?
        .name("worker_1")
        .queue("runs")
        .handle("run", run_in_folder)
        .workers_between(1, 4)
        .scale_up_at(5)
        .idle_timeout(Duration::from_secs(300))
        .lease(LeaseTimes {
            ttl: Duration::from_secs(60),
            heartbeat: Duration::from_secs(15),
            poll: Duration::from_secs(5),
        })
        .start()
        .await?;
    // Another program would only submit and look.
    let client = Client::open(&store).await?.on("runs");
    let run = Run { prompt: "tidy up".to_owned(), max_iterations: 3 };
    let mut ids = Vec::new();
    for number in 0..RUNS {
        let about = Submission {
            key: Some(format!("run_{number}")),
            folder: Some(folder.display().to_string()),
            ..Submission::default()
        };
        ids.push(client.submit_with("run", &run, about).await?);
    }
    for id in ids {
        assert_eq!(client.wait_as::<u32>(id).await?, 3);
    }
    let endless = Run { max_iterations: u32::MAX, ..run };
    let own = folder.join("endless");
    std::fs::create_dir_all(&own)?;
    let about = Submission { folder: Some(own.display().to_string()), ..Submission::default() };
    let cancelled = client.submit_with("run", &endless, about).await?;
    client.cancel(cancelled).await?;
    let state = client.wait(cancelled).await?.state.name();
    for record in client.workers().await? {
        println!("{}: {} done", record.worker.id, record.worker.done);
    }
    pool.drain(Duration::from_secs(30)).await;
    Ok((client.stats().await?.tasks.completed, state))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    std::fs::create_dir_all(&folder)?;
    println!("{:?}", run(&folder).await?);
    Ok(())
}
