//! The table of over-runs, `overruns.md`: how long after its limit each cause ended a task, by engine, in host processes.
//!
//! It is made by a run of the whole corpus in every position: `OSTLER_UPDATE=1 ./test -p ostler-isolate -- overruns --nocapture`, with V8's
//! library, on a quiet machine: a run in which a task ends later than [`MAX_OVERRUN`], or a host crashes, makes none. Its figures are those of
//! that run; other runs check that no cause is missing.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest time between a limit and the end of a task, on a quiet machine.
const MAX_OVERRUN: Duration = Duration::from_secs(1);

const CAUSES: [&str; 10] = [
    "cpu",
    "wall",
    "memory",
    "stack",
    "output",
    "log lines",
    "timers",
    "never settles",
    "unhandled rejection",
    "thrown",
];

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/isolate/overruns.md")
}

#[cfg(feature = "v8")]
mod update {
    use std::fmt::Write as _;
    use std::time::Duration;

    use super::{CAUSES, MAX_OVERRUN};
    use crate::bombs::limits;
    use crate::engines::{Tested, on_async};
    use crate::host_bombs::{HostBlast, Positions, explode};

    /// The lowest value that so many in a hundred do not exceed.
    fn percentile(sorted: &[&HostBlast], percent: usize) -> Duration {
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted[rank - 1].overrun
    }

    fn rows(engine: Tested, blasts: &[HostBlast], table: &mut String) {
        for cause in CAUSES {
            let mut of: Vec<&HostBlast> = blasts.iter().filter(|blast| blast.cause == cause).collect();
            of.sort_by_key(|blast| blast.overrun);
            let Some(worst) = of.last() else { continue };
            let _ = writeln!(
                table,
                "| {} | {cause} | {} | {} | {} | {} | {} ({}) |",
                engine.name(),
                of.len(),
                percentile(&of, 50).as_millis(),
                percentile(&of, 99).as_millis(),
                worst.overrun.as_millis(),
                worst.name,
                worst.position
            );
        }
    }

    /// What is no table.
    fn refuse(engine: Tested, blasts: &[HostBlast]) {
        let is_wrong = |blast: &&HostBlast| blast.overrun > MAX_OVERRUN || blast.cause == "crash";
        let wrong: Vec<String> = blasts
            .iter()
            .filter(is_wrong)
            .map(|blast| {
                let HostBlast { name, position, cause, overrun, ended, .. } = blast;
                format!("{name} ({position}): {cause} after {overrun:?}: {:?}", ended.outcome)
            })
            .collect();
        assert!(wrong.is_empty(), "{}: {}", engine.name(), wrong.join("\n"));
    }

    pub(super) fn table() -> String {
        let mut table = format!(
            "# Over-runs in host processes\n\nMade by `overruns.rs`: every script of the corpus in every position, one host at a time beside a host of harmless \
             tasks. Milliseconds between the limit and the result, by the clock of the test: a CPU limit of {} ms for all causes but `wall`, whose limit \
             is the timeout. The way to the host and back is in it. All scripts ended, and no task of the other host failed.\n\n\
             | engine | cause | runs | p50 | p99 | worst | script of the worst |\n|---|---|---:|---:|---:|---:|---|\n",
            limits().cpu.as_millis()
        );
        let mut others = Vec::new();
        for engine in Tested::ALL {
            on_async(*engine, async {
                let blasts = explode(Positions::All, 1).await;
                refuse(*engine, &blasts);
                rows(*engine, &blasts, &mut table);
                let count = |cause| blasts.iter().filter(|blast| blast.cause == cause).count();
                others.push(format!(
                    "In {}, {} of {} runs ended in time, with an output, and no host crashed.",
                    engine.name(),
                    count("success"),
                    blasts.len(),
                ));
            });
        }
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let others = others.join(" ");
        let _ = writeln!(table, "\n{others} The machine had {cores} cores and a load of {load} at the end.");
        table
    }
}

#[test]
fn overruns_are_known_for_every_cause_and_engine() {
    #[cfg(feature = "v8")]
    if std::env::var_os("OSTLER_UPDATE").is_some() {
        std::fs::write(path(), update::table()).expect("the file can be written");
    }
    let table = std::fs::read_to_string(path()).expect("the file is there");
    for engine in ["quickjs", "v8"] {
        for cause in CAUSES {
            let row = table.lines().find(|line| line.starts_with(&format!("| {engine} | {cause} | ")));
            let row = row.unwrap_or_else(|| panic!("overruns.md has no row for {cause} in {engine}"));
            let figures: Vec<u64> =
                row.split(" | ").skip(2).take(4).filter_map(|cell| cell.parse().ok()).collect();
            assert!(figures.len() == 4 && figures[1] <= figures[2] && figures[2] <= figures[3], "{row}");
            assert!(cause != "wall" || figures[0] > 10, "several scripts wait: {row}");
            assert!(u128::from(figures[3]) <= MAX_OVERRUN.as_millis(), "{row}");
        }
    }
}
