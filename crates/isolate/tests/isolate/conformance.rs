//! Conformance of functions: in host processes of each engine and on threads, they pass the suite of all executors.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::ErrorClass;
use ostler_exec::conformance::{Behaviour, Fixture, run};
use ostler_exec::{Executor, Work};
use ostler_isolate::{FunctionLimits, IsolatePolicy, Isolation};
use tempfile::TempDir;

use crate::bench::{executor, supervisor, work, write};
use crate::engines::tested;

/// Behaves as its payload says.
const OBEDIENT: &str = r#"
export default async function ({ what, how }, ctx) {
  const told = () => new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
  // An open timer: a promise that nothing can settle would end the call.
  const long = () => setTimeout(() => {}, 3600_000);
  switch (what) {
    case "echo":
      return how;
    case "fail":
      throw Object.assign(new Error("as requested"), how);
    case "hang":
      ctx.log("waiting");
      long();
      return new Promise(() => {});
    case "stop":
    case "finish":
      long();
      ctx.log("waiting");
      await told();
      if (what === "stop") throw new Error("stopped");
      return "finished";
    case "finish-after":
      long();
      ctx.log("waiting");
      await told();
      ctx.log("stopping");
      return new Promise((resolve) => setTimeout(resolve, how));
    case "big":
      return "x".repeat(how - 2);
    case "flood":
      for (let i = 0; i < how; i++) ctx.log(`line ${i}`);
  }
}
"#;

on_each_engine_async!(hosts_pass);

struct Obedient {
    executor: Arc<dyn Executor>,
    _folder: Arc<TempDir>,
}

impl Fixture for Obedient {
    fn executor(&self) -> Arc<dyn Executor> {
        Arc::clone(&self.executor)
    }

    fn work(&self, behaviour: &Behaviour) -> Option<Work> {
        let (what, how) = match behaviour {
            Behaviour::Echo(text) if text.is_empty() => ("echo", "null".to_owned()),
            Behaviour::Echo(text) => ("echo", text.clone()),
            Behaviour::Fail(class) => ("fail", error(*class)),
            Behaviour::FailUnclassed | Behaviour::Panic => ("fail", "{}".to_owned()),
            // What blocks a thread is a builtin of the engine: see `hosts.rs` and `threads.rs`.
            Behaviour::Block(_) => return None,
            Behaviour::Hang => ("hang", "null".to_owned()),
            Behaviour::StopWhenTold => ("stop", "null".to_owned()),
            Behaviour::FinishWhenTold => ("finish", "null".to_owned()),
            Behaviour::FinishAfter(time) => ("finish-after", time.as_millis().to_string()),
            Behaviour::BigOutput(bytes) => ("big", bytes.to_string()),
            Behaviour::Flood(lines) => ("flood", lines.to_string()),
        };
        Some(work("obey", &format!("{{\"what\":\"{what}\",\"how\":{how}}}")))
    }
}

fn error(class: ErrorClass) -> String {
    let more = match class {
        ErrorClass::Partial => ",\"step\":\"move\",\"hint\":\"look at the folder\"",
        ErrorClass::RateLimited | ErrorClass::UsageLimit => ",\"retryAfterMs\":7000",
        ErrorClass::Transient
        | ErrorClass::Permanent
        | ErrorClass::QueueStop
        | ErrorClass::Timeout
        | ErrorClass::Stuck
        | ErrorClass::Crash
        | ErrorClass::Budget => "",
    };
    format!("{{\"class\":\"{}\"{more}}}", class.name())
}

async fn passes(isolation: Isolation) {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    write(folder.path(), "obey", OBEDIENT);
    let limits = FunctionLimits {
        memory_bytes: 256 << 20,
        cpu: Duration::from_secs(60),
        output_bytes: 16 << 20,
        log_lines: 1_000_000,
        ..FunctionLimits::default()
    };
    let policy = IsolatePolicy {
        engine: tested().engine_name(),
        isolation,
        limits,
        grace: Duration::from_secs(2),
        ..IsolatePolicy::new("functions", folder.path())
    };
    let supervisor = supervisor().await;
    let report = run(|| {
        let executor = executor(&policy, &supervisor);
        Arc::new(Obedient { executor, _folder: Arc::clone(&folder) })
    })
    .await;
    assert_eq!(report.left_out, ["what_blocks_its_thread_is_given_up_and_the_next_attempt_runs"]);
}

async fn hosts_pass() {
    passes(Isolation::Process).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_pass() {
    passes(Isolation::Thread).await;
}
