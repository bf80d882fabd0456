//! `ostler map` compared with `xargs -P` and GNU parallel: the same items, the same concurrency, in turns.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stats::median;
use crate::{Error, Place, machine};

/// The sampling interval of a program's memory.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes that each item writes where memory is measured.
const OUTPUT_BYTES: usize = 64 * 1024;

/// The requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) items: u32,
    /// The concurrency.
    pub(crate) at_once: u32,
    pub(crate) rounds: u32,
    /// The `ostler` program; by default the one beside this program.
    pub(crate) ostler: Option<PathBuf>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { items: 1_000, at_once: 2, rounds: 5, ostler: None }
    }
}

/// The program that runs the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ostler,
    Xargs,
    Parallel,
}

/// The result of one run.
struct Run {
    seconds: f64,
    peak_kb: u64,
}

/// Measures, and prints one line for each program, then the memory.
pub(crate) fn run(wanted: &Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let place = Place::new(&dir.unwrap_or_else(machine::default_dir))?;
    let ostler = match &wanted.ostler {
        Some(path) => path.clone(),
        None => beside_this()?,
    };
    let mut sides = vec![Side::Ostler, Side::Xargs];
    if is_there("parallel") {
        sides.push(Side::Parallel);
    } else {
        eprintln!("GNU parallel is not there, and is left out (Debian: apt-get install parallel)");
    }
    let mut seconds = vec![Vec::new(); sides.len()];
    for round in 0..wanted.rounds {
        for (side, seconds) in sides.iter().zip(&mut seconds) {
            let store = place.path().join(format!("map-{round}.db"));
            seconds.push(one(*side, &ostler, &store, wanted, &["true"])?.seconds);
        }
    }
    let of = |side: Side| {
        let at = sides.iter().position(|known| *known == side);
        at.map(|at| median(seconds[at].clone()))
    };
    let Wanted { items, at_once, rounds, .. } = wanted;
    println!("true for {items} items, {at_once} at once, medians of {rounds} rounds:");
    for (side, name) in
        [(Side::Ostler, "ostler map"), (Side::Xargs, "xargs -P"), (Side::Parallel, "GNU parallel")]
    {
        if let (Some(took), Some(ours)) = (of(side), of(Side::Ostler)) {
            println!("  {name:<12} {took:>7.2} s   {:>6.2} of ostler's time", took / ours);
        }
    }
    let script = format!("head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x #");
    let store = place.path().join("memory.db");
    let run = one(Side::Ostler, &ostler, &store, wanted, &[&script])?;
    println!(
        "{items} items that write {} KiB each: ostler map had {:.1} MB at most, in {:.2} s",
        OUTPUT_BYTES / 1024,
        run.peak_kb as f64 / 1024.0,
        run.seconds
    );
    Ok(())
}

pub(crate) fn beside_this() -> Result<PathBuf, Error> {
    let path = std::env::current_exe()?.with_file_name("ostler");
    if !path.exists() {
        return Err(
            "there is no program ostler beside this one: cargo build --release first, or --ostler PATH"
                .into(),
        );
    }
    Ok(path)
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// One run, with the items on its standard input.
fn one(side: Side, ostler: &Path, store: &Path, wanted: &Wanted, words: &[&str]) -> Result<Run, Error> {
    let at_once = wanted.at_once.to_string();
    let mut command = match side {
        Side::Ostler => {
            let mut command = Command::new(ostler);
            command.args(["map", "-q", "-j", &at_once]).args(words).env("OSTLER_STORE", store);
            command
        }
        Side::Xargs => {
            let mut command = Command::new("xargs");
            command.args(["-P", &at_once, "-n", "1"]).args(words);
            command
        }
        Side::Parallel => {
            let mut command = Command::new("parallel");
            command.args(["--will-cite", "-j", &at_once]).args(words);
            command
        }
    };
    let items: String = (1..=wanted.items).map(|item| format!("{item}\n")).collect();
    let began = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
    child.stdin.take().ok_or("no pipe")?.write_all(items.as_bytes())?;
    let peak_kb = watch(&mut child)?;
    let seconds = began.elapsed().as_secs_f64();
    if !child.wait()?.success() {
        return Err(format!("{side:?} failed").into());
    }
    Ok(Run { seconds, peak_kb })
}

/// Waits for the process to exit, and returns its peak memory.
fn watch(child: &mut Child) -> Result<u64, Error> {
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    let mut peak = 0;
    loop {
        peak = peak.max(peak_of(child.id()));
        if child.try_wait()?.is_some() {
            return Ok(peak);
        }
        let _ = nothing.recv_timeout(LOOK);
    }
}

fn peak_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
