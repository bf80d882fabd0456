//! Two builds of this program in turns, slice by slice: what a change cost or gained.
//!
//! Whole runs one after the other differ by more than most changes, because the machine differs from minute to minute. Here both programs
//! are open at once, each with its own store, and work in turns of some milliseconds: before, after, after, before. Each such block gives
//! one ratio; the result is their median, with a 95 % interval. `slices.rs` is the child that works; its arguments and lines must stay as
//! they are, since the other build has them too.

mod slices;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ostler_core::Seed;

use crate::postgres::server::Server;
use crate::stats::median;
use crate::{Error, MEMORY, Place, machine};
pub(crate) use slices::{WORD, run as run_slices};

/// Slices of each program before the measurement.
const WARM_UP: usize = 5;
/// Resamples for the interval.
const RESAMPLES: usize = 1_000;
/// The share of resamples outside of the interval, on each side: one in this many.
const OUTSIDE: usize = 40;

/// Rows on an empty SQLite store.
const PLAIN: [&str; 9] = [
    "batch 1",
    "batch 32",
    "batch 128",
    "batch 1000",
    "callers 1",
    "callers 8",
    "callers 64",
    "pipelined 128",
    "keys 128",
];
/// Rows with a backlog, and that.
const BACKLOGS: [(&str, &[&str]); 4] = [
    ("rows", &["batch 128", "callers 64"]),
    ("waiting", &["batch 128", "callers 64"]),
    ("saturated", &["batch 128", "callers 64", "keys 128"]),
    ("limited", &["batch 128", "callers 64", "keys 128"]),
];
/// Rows on PostgreSQL.
const SHARED: [&str; 12] = [
    "drain 1",
    "drain 32",
    "drain 128",
    "drain 500",
    "drain 1000",
    "cycle 1",
    "cycle 32",
    "cycle 128",
    "cycle 500",
    "cycle 1000",
    "calls 8",
    "calls 64",
];

/// The requested comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The `bench` of the build to compare with.
    pub(crate) before: PathBuf,
    /// That of the other one; `None`: this program.
    pub(crate) after: Option<PathBuf>,
    /// Slices of each program.
    pub(crate) slices: usize,
    /// The length of a slice.
    pub(crate) millis: u64,
    /// Rows with this text in their name.
    pub(crate) only: Option<String>,
}

impl Wanted {
    pub(crate) fn new(before: PathBuf) -> Self {
        Self { before, after: None, slices: 120, millis: 60, only: None }
    }
}

/// Compares row by row, and prints a table.
pub(crate) fn run(wanted: &Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let after = match &wanted.after {
        Some(after) => after.clone(),
        None => std::env::current_exe()?,
    };
    let turns = Turns { wanted, programs: [wanted.before.clone(), after] };
    println!(
        "{} slices of {} ms of each program, in turns; load {}",
        wanted.slices,
        wanted.millis,
        machine::load()
    );
    println!("| row | before, tasks/s | after, tasks/s | change | 95 % interval |");
    println!("|---|---:|---:|---:|---:|");
    let disk = Place::new(&dir.clone().unwrap_or_else(machine::default_dir))?;
    let memory = Path::new(MEMORY).is_dir().then(|| Place::new(Path::new(MEMORY))).transpose()?;
    for place in memory.iter().chain([&disk]) {
        for row in PLAIN {
            turns.file(place, "none", row)?;
        }
    }
    for (backlog, rows) in BACKLOGS {
        for row in rows {
            turns.file(&disk, backlog, row)?;
        }
    }
    turns.shared(&dir.unwrap_or_else(std::env::temp_dir))
}

struct Turns<'a> {
    wanted: &'a Wanted,
    /// Before and after.
    programs: [PathBuf; 2],
}

impl Turns<'_> {
    fn wants(&self, name: &str) -> bool {
        self.wanted.only.as_deref().is_none_or(|only| name.contains(only))
    }

    /// A row on SQLite: each program has a file of its own.
    fn file(&self, place: &Place, backlog: &str, row: &str) -> Result<(), Error> {
        let name = match backlog {
            "none" => format!("{}: {row}", place.name),
            other => format!("backlog {other}: {row}"),
        };
        if !self.wants(&name) {
            return Ok(());
        }
        let folder = place.path().join("turns");
        std::fs::create_dir(&folder)?;
        let file = |which: usize| folder.join(format!("{which}.db")).display().to_string();
        self.row(&name, |which| [row.to_owned(), backlog.to_owned(), file(which)])?;
        Ok(std::fs::remove_dir_all(&folder)?)
    }

    /// Rows on PostgreSQL: each program has a schema of its own.
    fn shared(&self, under: &Path) -> Result<(), Error> {
        let name = |row: &str| format!("postgres: {row}");
        if !SHARED.iter().any(|row| self.wants(&name(row))) {
            return Ok(());
        }
        let server = Server::start(under)?;
        for (number, row) in SHARED.iter().enumerate().filter(|(_, row)| self.wants(&name(row))) {
            self.row(&name(row), |which| {
                [(*row).to_owned(), format!("turns_{number}_{which}"), server.url()]
            })?;
        }
        Ok(())
    }

    fn row(&self, name: &str, arguments: impl Fn(usize) -> [String; 3]) -> Result<(), Error> {
        eprintln!("bench: {name}");
        let millis = self.wanted.millis.to_string();
        let start = |which: usize| SliceProgram::start(&self.programs[which], &arguments(which), &millis);
        let mut programs = [start(0)?, start(1)?];
        let mut rates: [Vec<f64>; 2] = Default::default();
        for program in &mut programs {
            for _ in 0..WARM_UP {
                program.slice()?;
            }
        }
        for turn in 0..self.wanted.slices {
            for which in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
                rates[which].push(programs[which].slice()?);
            }
        }
        let blocks = blocks(&rates[0], &rates[1]);
        let [before, after] = rates.map(median);
        let (low, high) = interval(&blocks, &mut Seed::new(1));
        println!(
            "| {name} | {before:.0} | {after:.0} | {} | {} to {} |",
            percent(median(blocks)),
            percent(low),
            percent(high)
        );
        Ok(())
    }
}

/// The ratio of each block of two turns: after to before.
pub(crate) fn blocks(before: &[f64], after: &[f64]) -> Vec<f64> {
    let sums = |rates: &[f64]| rates.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect::<Vec<_>>();
    sums(after).into_iter().zip(sums(before)).map(|(after, before)| after / before).collect()
}

/// The 95 % interval of the median, by resampling.
pub(crate) fn interval(ratios: &[f64], seed: &mut Seed) -> (f64, f64) {
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let one = |_| ratios[usize::try_from(seed.next() % ratios.len() as u64).unwrap_or(0)];
            median((0..ratios.len()).map(one).collect())
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / OUTSIDE], medians[RESAMPLES - 1 - RESAMPLES / OUTSIDE])
}

pub(crate) fn percent(ratio: f64) -> String {
    format!("{:+.1} %", ratio * 100.0 - 100.0)
}

/// A program that runs a slice when it is asked. It exits when its input is closed.
struct SliceProgram {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl SliceProgram {
    fn start(program: &Path, arguments: &[String; 3], millis: &str) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg(WORD).args(arguments).arg(millis).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        let mut started = Self { child, questions, answers };
        match started.line()?.as_str() {
            "ready" => Ok(started),
            _ => Err(format!("{} cannot run slices", program.display()).into()),
        }
    }

    /// Runs one slice. Returns its tasks per second.
    fn slice(&mut self) -> Result<f64, Error> {
        let questions = self.questions.as_mut().ok_or("it is closed")?;
        questions.write_all(b"\n")?;
        let line = self.line()?;
        let (done, seconds) = line.split_once(' ').ok_or("a slice has no figures")?;
        Ok(done.parse::<f64>()? / seconds.parse::<f64>()?)
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for SliceProgram {
    fn drop(&mut self) {
        self.questions = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_the_ratio_of_two_turns() {
        assert_eq!(blocks(&[100.0, 300.0, 50.0, 50.0, 1.0], &[150.0, 250.0, 60.0, 50.0, 9.0]), [1.0, 1.1]);
    }

    #[test]
    fn the_interval_is_around_the_median_and_narrow_if_all_agree() {
        let (low, high) = interval(&[1.0; 10], &mut Seed::new(1));
        assert_eq!((low, high), (1.0, 1.0));
        let ratios: Vec<f64> = (0..40).map(|at| 0.9 + f64::from(at) * 0.005).collect();
        let (low, high) = interval(&ratios, &mut Seed::new(1));
        assert!(low < 0.9975 && 0.9975 < high && 0.9 < low && high < 1.1, "{low} {high}");
    }
}
