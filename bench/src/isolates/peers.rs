//! Other runtimes: programs of Node, and workerd, which is installed by its name and kept for the next run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{FIB, Row, SMALL, programs};
use crate::Error;
use crate::workers::{carry_out, npm_package};

const WORKERD: &str = "workerd";

/// What can be measured.
#[derive(Default)]
pub(super) struct Peers {
    node: bool,
    /// The folder that has workerd.
    workerd: Option<PathBuf>,
}

impl Peers {
    /// Installs what is missing. Prints and leaves out what cannot be installed.
    pub(super) fn set_up(under: &Path) -> Self {
        let left_out = |what: &str, error: Error| eprintln!("bench: {what} is left out: {error}");
        let node = carry_out(Command::new("node").arg("--version"));
        let node = node.map_err(|error| left_out("node", error)).is_ok();
        let folder = npm_package(&under.join("bench-peers"), WORKERD);
        Self { node, workerd: folder.map_err(|error| left_out(WORKERD, error)).ok() }
    }

    /// Contexts on one thread.
    pub(super) fn contexts(&self, time: Duration) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for (mode, who) in [("new", "node vm, a context for each call"), ("one", "node vm, one context")] {
            for function in [SMALL, FIB] {
                rows.extend(self.node("vm.mjs", mode, function, time, (who, "timeout"))?);
            }
        }
        Ok(rows)
    }

    /// Threads and processes.
    pub(super) fn programs(&self, time: Duration) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for (mode, who) in
            [("new", "node, a worker thread for each call"), ("one", "node, one worker thread")]
        {
            rows.extend(self.node("threads.mjs", mode, SMALL, time, (who, "memory"))?);
        }
        let Some(folder) = &self.workerd else { return Ok(rows) };
        for function in [SMALL, FIB] {
            let mut command = Command::new("node");
            command.arg(programs().join("workerd.mjs")).arg(folder).arg(function);
            let row = row(command, time, ("workerd over HTTP, one isolate", "none"), function)?;
            rows.push(Row { per_cpu_second: None, ..row });
        }
        Ok(rows)
    }

    fn node(
        &self,
        program: &str,
        mode: &str,
        function: &str,
        time: Duration,
        (who, limits): (&str, &'static str),
    ) -> Result<Option<Row>, Error> {
        if !self.node {
            return Ok(None);
        }
        let mut command = Command::new("node");
        command.arg(programs().join(program)).arg(mode).arg(function);
        row(command, time, (who, limits), function).map(Some)
    }
}

fn row(
    mut command: Command,
    time: Duration,
    (who, limits): (&str, &'static str),
    function: &str,
) -> Result<Row, Error> {
    let said: Value = serde_json::from_str(&carry_out(command.arg(time.as_millis().to_string()))?)?;
    let number = |name: &str| said[name].as_f64().ok_or_else(|| format!("{who} did not say {name}"));
    Ok(Row {
        who: format!("{who} ({})", said["version"].as_str().unwrap_or_default()),
        function: function.to_owned(),
        limits,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        per_second: number("per_second")?,
        per_cpu_second: Some(number("per_cpu_second")?),
    })
}
