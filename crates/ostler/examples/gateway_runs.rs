//! Runs through a gateway. A handler asks two queries in one session, with work before and after them, and streams the events of the first.
//! A run is queued under an id of its caller, in a folder, with a bound on its iterations.
//!
//! `gateway_runs FOLDER` asks a command of this machine, which stands in for an agent. `gateway_runs FOLDER http://127.0.0.1:8900` asks a
//! server, such as `examples/gateway.py`. For the real claude, take `Dialect::Claude`, and no command.

use std::path::Path;
use std::time::Duration;

use ostler::agent::{AgentPolicy, Dialect, GatewayPolicy, GatewaySettings};
use ostler::process::SupervisorProgram;
use ostler::{Context, EventBody, GatewayQuery, Overrides, Pool, SessionRequest, TaskError};
use serde::{Deserialize, Serialize};

/// The payload of a run.
#[derive(Deserialize)]
struct RunPayload {
    prompt: String,
    max_iterations: Option<u32>,
}

/// The output of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunReport {
    pub(crate) key: Option<String>,
    pub(crate) plan: String,
    pub(crate) report: String,
}

/// A run handler: it prepares the prompt, asks twice in one session, and keeps the report.
async fn handle(run: RunPayload, ctx: Context) -> Result<RunReport, TaskError> {
    let record = ctx.record_of_task().await?;
    ctx.log(format!("attempt {} of {}", record.runs, record.key.as_deref().unwrap_or("a run")));
    let session = ctx.gateway()?.create_session(SessionRequest::default()).await?;
    let prepared = GatewayQuery::new(format!("plan: {}", run.prompt.trim()));
    let prepared = match run.max_iterations {
        Some(most) => prepared.with("max_iterations", most),
        None => prepared,
    };
    // What the agent says and does is in the transcript in any case.
    let mut stream = session.stream(prepared).await?;
    while let Some(event) = stream.next().await? {
        if let EventBody::Message { text, .. } = event {
            ctx.log(format!("it says: {text}"));
        } else if let EventBody::ToolCall { tool, .. } = event {
            ctx.log(format!("it uses {tool}"));
        }
    }
    let plan = stream.answer().await?.text();
    let report = session.run_query("report").await?.text();
    ctx.write_file("report.md", report.as_str()).await?;
    Ok(RunReport { key: record.key, plan, report })
}

/// A pool whose handler asks this gateway.
pub(crate) async fn pool(
    folder: &Path,
    gateway: impl Into<GatewaySettings>,
    supervisor: Option<SupervisorProgram>,
) -> Result<Pool, Box<dyn std::error::Error>> {
    let builder = ostler::open(folder.join("runs.db"))?
        .queue("runs")
        .handle("run", handle)
        .gateway(gateway)
        .workers_between(1, 4)
        .scale_up_at(5)
        .defaults(Overrides { timeout: Some(Duration::from_secs(600)), ..Overrides::NONE });
    let builder = match supervisor {
        Some(program) => builder.supervisor(program),
        None => builder,
    };
    Ok(builder.start().await?)
}

/// Queues a run, and waits for its report.
pub(crate) async fn run(
    pool: &Pool,
    folder: &Path,
    prompt: &str,
) -> Result<RunReport, Box<dyn std::error::Error>> {
    let id = pool.run(prompt).id("job_abc123").folder(folder).max_iterations(50).await?;
    Ok(pool.wait_as(id).await?)
}

/// A command that stands in for an agent.
pub(crate) fn stand_in() -> AgentPolicy {
    AgentPolicy {
        command: vec!["tr".into(), "a-z".into(), "A-Z".into()],
        ..AgentPolicy::new("runs", Dialect::Command)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First: the program is also the supervisor of its children.
    ostler::process::init();
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "/tmp/ostler-gateway-runs".to_owned());
    let gateway: GatewaySettings = match args.next() {
        Some(address) => GatewayPolicy::new(address.parse()?).into(),
        None => stand_in().into(),
    };
    std::fs::create_dir_all(&folder)?;
    let folder = Path::new(&folder);
    tokio::runtime::Runtime::new()?.block_on(async {
        let pool = pool(folder, gateway, None).await?;
        let report = run(&pool, folder, "Analyze the codebase and generate a report").await?;
        println!("{}\n{}", report.plan, report.report);
        pool.drain(Duration::from_secs(30)).await;
        Ok(())
    })
}
