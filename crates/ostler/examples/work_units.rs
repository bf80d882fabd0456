//! LLM work units: a few at once, a submission that is refused while all workers are busy, and a record of each conversation:
//! prompt, messages, tool calls, session and cost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler::{
    Context, Cost, EventKind, EventQuery, Filter, Kind, Overrides, Role, StateName, TaskError, ToolStatus,
    Usage,
};
use serde::{Deserialize, Serialize};

/// The concurrency limit.
const MAX_WORKERS: usize = 4;
const UNITS: usize = 12;

#[derive(Serialize, Deserialize)]
struct WorkUnit {
    subject: String,
}

impl Kind for WorkUnit {
    const NAME: &'static str = "unit";
    type Output = String;

    fn overrides() -> Overrides {
        Overrides { attempts: Some(1), timeout: Some(Duration::from_secs(600)), ..Overrides::NONE }
    }
}

/// Stands in for a model: it answers at once, and knows nothing of cats.
async fn work(unit: WorkUnit, ctx: Context) -> Result<String, TaskError> {
    let prompt = format!("Describe {} in a sentence.", unit.subject);
    // Known before the work that it names begins.
    ctx.session(format!("session-{}", ctx.task())).await?;
    ctx.prompt(prompt.as_str()).await;
    ctx.message(Role::User, prompt.as_str()).await;
    ctx.tool_call("call-1", "look_up", format!("{{\"word\":\"{}\"}}", unit.subject)).await;
    ctx.tool_result("call-1", ToolStatus::Ok, "a thing").await;
    if unit.subject.contains("cat") {
        return Err(TaskError::permanent("the model knows no cats"));
    }
    let answer = format!("{} is a thing.", unit.subject);
    ctx.message(Role::Assistant, answer.as_str()).await;
    let (model, cost) = (Some("a-model".to_owned()), Cost::from_usd(0.0012));
    ctx.usage(Usage { model, input_tokens: 20, output_tokens: 8, cost, ..Usage::default() }).await;
    Ok(answer)
}

/// What became of the units.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) completed: usize,
    pub(crate) failed: usize,
    pub(crate) messages: usize,
    pub(crate) cost: Cost,
}

pub(crate) async fn run(store: &Path) -> Result<Report, Box<dyn std::error::Error>> {
    let ends = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (on_completed, on_failed) = (Arc::clone(&ends), Arc::clone(&ends));
    let pool = ostler::open(store)?
        .handle_kind(work)
        .workers(MAX_WORKERS)
        .on_completed(move |_| {
            on_completed[0].fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .on_failed(move |_| {
            on_failed[1].fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .start()
        .await?;
    for number in 0..UNITS {
        let unit = WorkUnit { subject: format!("{} {number}", if number == 5 { "cat" } else { "lamp" }) };
        // Nothing is stored while all workers are busy: another program could take the unit instead.
        while pool.submit_if_free(WorkUnit::NAME, &unit).await?.is_none() {
            pool.wait_for_slot().await?;
        }
    }
    pool.wait_for_completion().await;

    let (mut messages, mut cost) = (0, Cost::default());
    for task in pool.list(Filter::default(), None, UNITS).await?.tasks {
        messages += pool.read_events(task.id, EventQuery::of(EventKind::Message)).await?.len();
        for attempt in pool.show(task.id).await?.attempts {
            assert!(attempt.conversation.session.is_some(), "every attempt can be resumed");
            let spent = attempt.conversation.usage.iter().filter_map(|usage| usage.cost);
            cost = spent.fold(cost, |sum, one| sum + one);
        }
        if task.state.name() == StateName::Failed {
            println!(
                "{}: {}",
                task.payload,
                task.last_failure.map(|failure| failure.message).unwrap_or_default()
            );
        }
    }
    pool.drain(Duration::from_secs(30)).await;
    let [completed, failed] = [&ends[0], &ends[1]].map(|count| count.load(Ordering::Relaxed));
    Ok(Report { completed, failed, messages, cost })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "work_units.db".to_owned());
    println!("{:?}", run(Path::new(&path)).await?);
    Ok(())
}
