//! The tasks of the demo.

use std::path::Path;

use anyhow::Context as _;
use ostler_core::TaskId;
use ostler_store::calls::NewTask;

/// The environment variable that tells a command which node started it.
pub(super) const NAME: &str = "OSTLER_DEMO_NODE";
/// The file in which commands record their pids.
const PIDS: &str = "pids";

/// The tasks for one executor.
pub(super) struct DemoShare {
    pub(super) queue: &'static str,
    pub(super) kind: &'static str,
    pub(super) executor: &'static str,
    pub(super) count: usize,
    pub(super) what: &'static str,
}

pub(super) const DOCUMENTS: DemoShare = DemoShare {
    queue: "documents",
    kind: "count",
    executor: "inline",
    count: 160,
    what: "async Rust handlers; five will fail at first, one can never work",
};
pub(super) const SUMS: DemoShare = DemoShare {
    queue: "sums",
    kind: "sum",
    executor: "thread",
    count: 60,
    what: "Rust handlers that are not Send, on threads of their own",
};
pub(super) const SHELL: DemoShare = DemoShare {
    queue: "shell",
    kind: "run",
    executor: "command",
    count: 60,
    what: "shell commands, each a child that cannot outlive its node",
};
pub(super) const FUNCTIONS: DemoShare = DemoShare {
    queue: "functions",
    kind: "shout",
    executor: "isolate",
    count: 60,
    what: "a JavaScript function in sandboxed host processes",
};
pub(super) const LANES: [DemoShare; 4] = [DOCUMENTS, SUMS, SHELL, FUNCTIONS];

/// The file of the function, in the folder of its queue.
const FUNCTION: &str = r#"export default async function ({ text }, ctx) {
  const words = await ctx.step("words", () => text.split(" "));
  await new Promise((resolve) => setTimeout(resolve, 15)); // long enough for a kill to hit it
  return words.map((word) => word.toUpperCase());
}
"#;

/// Documents that fail at first.
const FLAKY: usize = 5;

pub(super) struct Tasks {
    pub(super) all: Vec<NewTask>,
    /// The one that can never succeed.
    pub(super) broken: TaskId,
}

impl Tasks {
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let ids = ostler::ids().context("cannot get random bytes from the system")?;
        let task =
            |lane: &DemoShare, payload: String| NewTask::new(TaskId(ids()), lane.queue, lane.kind, payload);
        let broken = task(&DOCUMENTS, r#"{"title":"empty"}"#.to_owned());
        let id = broken.id;
        let documents = (2..=DOCUMENTS.count).map(|number| match number {
            flaky if flaky <= FLAKY + 1 => r#"{"text":"hard to get","flaky":true}"#.to_owned(),
            number => format!(r#"{{"text":"document number {number} of the demo"}}"#),
        });
        let sums = (1..=SUMS.count).map(|number| format!("[{number},2,3]"));
        let pids = folder.join(PIDS);
        let script = format!("echo $OSTLER_DEMO_NODE $$ >> '{}'; sleep 0.05; echo done", pids.display());
        let script = serde_json::json!({ "script": script }).to_string();
        let functions = folder.join(FUNCTIONS.queue);
        std::fs::create_dir(&functions).context("no folder for functions")?;
        std::fs::write(functions.join(format!("{}.js", FUNCTIONS.kind)), FUNCTION)?;
        let texts = (1..=FUNCTIONS.count).map(|number| format!(r#"{{"text":"text number {number}"}}"#));
        let all = [broken]
            .into_iter()
            .chain(documents.map(|payload| task(&DOCUMENTS, payload)))
            .chain(sums.map(|payload| task(&SUMS, payload)))
            .chain((0..SHELL.count).map(|_| task(&SHELL, script.clone())))
            .chain(texts.map(|payload| task(&FUNCTIONS, payload)))
            .collect();
        Ok(Self { all, broken: id })
    }
}

/// The pids of all children started by this node.
pub(super) fn children_of(folder: &Path, node: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(PIDS)).unwrap_or_default();
    let of = |line: &str| line.strip_prefix(node)?.strip_prefix(' ').map(str::to_owned);
    text.lines().filter_map(of).collect()
}
