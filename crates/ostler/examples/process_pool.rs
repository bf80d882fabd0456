//! A process pool: long-lived workers in another language, which are started ahead, recycled, killed when they take too long, and
//! replaced when they crash; and the results of all of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler::process::{ProcessPolicy, Recycle, SupervisorProgram};
use ostler::{ErrorClass, Overrides};

/// A worker of the standard library alone; see the guide to the worker protocol.
const WORKER: &str = r#"
import json, os, socket, time
node = socket.socket(fileno=int(os.environ["OSTLER_FD"]))
lines = node.makefile("rw")
def say(frame):
    lines.write(json.dumps(frame) + "\n")
    lines.flush()
lines.readline()
say({"type": "ready", "protocol": 1, "sdk": "example"})
for line in lines:
    frame = json.loads(line)
    if frame["type"] == "stop":
        break
    if frame["type"] != "task":
        continue
    if frame["payload"] == "crash":
        os._exit(9)
    if frame["payload"] == "hang":
        time.sleep(3600)
    say({"type": "result", "id": frame["id"], "token": frame["token"], "ok": True, "output": os.getpid()})
"#;

/// What became of the executions, in the order of their ends.
pub(crate) type Ends = Vec<Result<u32, ErrorClass>>;

/// Runs the executions. `supervisor`: for programs whose `main` is not this one.
pub(crate) async fn run(
    folder: &Path,
    supervisor: Option<SupervisorProgram>,
) -> Result<Ends, Box<dyn std::error::Error>> {
    let script = folder.join("worker.py");
    std::fs::write(&script, WORKER)?;
    let policy = ProcessPolicy {
        recycle: Recycle { after_tasks: Some(100), above_memory: Some(512 << 20) },
        ..ProcessPolicy::new("executions", ["python3".to_owned(), script.display().to_string()])
    };
    let ends = Arc::new(Mutex::new(Ends::new()));
    let (completed, failed) = (Arc::clone(&ends), Arc::clone(&ends));
    let builder = ostler::open(folder.join("executions.db"))?
        .queue("executions")
        .executor(policy)
        .workers_between(2, 10)
        .grace(Duration::from_secs(5))
        .defaults(Overrides {
            attempts: Some(1),
            max_crashes: Some(1),
            timeout: Some(Duration::from_secs(300)),
            ..Overrides::NONE
        })
        .on_completed(move |ended| {
            let pid = ended.task.output.and_then(|output| output.parse().ok()).unwrap_or_default();
            completed.lock().unwrap_or_else(PoisonError::into_inner).push(Ok(pid));
            async {}
        })
        .on_failed(move |ended| {
            let class = ended.failure.map_or(ErrorClass::Transient, |failure| failure.class);
            failed.lock().unwrap_or_else(PoisonError::into_inner).push(Err(class));
            async {}
        });
    let builder = match supervisor {
        Some(program) => builder.supervisor(program),
        None => builder,
    };
    let pool = builder.start().await?;
    for number in 0..8 {
        pool.submit("execute", &number).await?;
    }
    pool.submit("execute", &"crash").await?;
    let short = Overrides { timeout: Some(Duration::from_millis(500)), ..Overrides::NONE };
    let about = ostler::Submission { overrides: short, ..ostler::Submission::default() };
    pool.submit_with("execute", &"hang", about).await?;
    pool.wait_idle().await?;
    // A crashed worker is replaced.
    let last = pool.submit("execute", &"after all").await?;
    pool.wait_as::<u32>(last).await?;
    pool.drain(Duration::from_secs(30)).await;
    Ok(std::mem::take(&mut *ends.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before anything else: the program is also the supervisor of its children.
    ostler::process::init();
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    std::fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Runtime::new()?;
    println!("{:?}", runtime.block_on(run(&folder, None))?);
    Ok(())
}
