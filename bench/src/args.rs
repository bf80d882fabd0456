//! Command-line arguments, parsed by hand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::child::Role;
use crate::faults;
use crate::http;
use crate::map;
use crate::rate::Wanted;
use crate::report::Report;
use crate::scale::Scale;
use crate::{isolates, threads, turns, workers};

/// The help text.
pub(crate) const USAGE: &str = "\
Usage: bench sqlite [--quick | --tiny] [--markdown] [--json FILE] [--dir DIR] [--only TEXT]
       bench postgres [the same]
       bench node   [the same]
       bench rate   [--seconds N] [--per-second N] [--dir DIR]
       bench map    [--items N] [--at-once N] [--rounds N] [--ostler PATH] [--dir DIR]
       bench http   [--rows N] [--requests N] [--ostler PATH] [--dir DIR]
       bench workers [--calls N] [--rounds N] [--workers N] [--ours] [--dir DIR]
       bench isolates [--millis N] [--ours] [--dir DIR]
       bench threads [--calls N] [--rounds N]
       bench turns --before PROGRAM [--after PROGRAM] [--slices N] [--millis N] [--only TEXT] [--dir DIR]
       bench faults [--faults N] [--tasks N] [--seed N] [--only TEXT] [--ostler PATH] [--dir DIR]

sqlite measures the SQLite store beside bare SQLite statements. postgres starts a server of its own and measures the shared
store beside bare statements and beside graphile-worker and pg-boss, which it installs with npm into bench/peers. node measures a whole node on it: handlers that do
nothing, pick-up, commands, failover, and what it costs when idle. All print tables, then JSON. rate lets two nodes share
one rate, for 30 seconds at 100 a second, and prints how many tasks began and how far that is off.
map runs `true` for many items by ostler map, xargs and GNU parallel in turns, and prints how long each takes.
http fills both stores with a million tasks, serves them by a node, and prints the time to the first byte of lists and of the overview.
workers sends tasks that do nothing to long-lived workers, and to ProcessPoolExecutor, loky and piscina, which it
installs (--ours: leaves out).
isolates calls JavaScript functions in every engine and isolation, and beside them Node's vm and worker threads, and workerd, which it
installs (--ours: leaves out).
threads runs closures that do nothing on the pool of threads, and on bare threads with a channel.
turns compares two builds of this program, such as those before and after a change: both work in turns, slice by slice, on every row of
sqlite and postgres.
faults kills, stops and starves nodes of the real program while they work, crashes their server and fills their disk; it prints what
was lost, completed twice, run twice at once and left behind, and fails if anything was.

  --quick      under a minute: short rounds, backlogs of 100,000 rows
  --tiny       a second or two: only shows that everything runs
  --markdown   prints the tables alone, ready for docs/benchmarks.md
  --json FILE  writes the JSON to a file too
  --dir DIR    where the files are put (default: ./target if it is there, else the system's folder for such)
  --only TEXT  only rows with this text in their name, such as \"tmpfs: batch 128\"";

/// The maximum seconds of a rate, and the maximum tasks per second.
const MOST: u64 = 10_000;

/// A parsed command.
pub(crate) enum Asked {
    /// Measures the SQLite store.
    Sqlite { scale: Scale, output: Output, dir: Option<PathBuf>, only: Option<String> },
    /// Measures the PostgreSQL store.
    Postgres { scale: Scale, output: Output, dir: Option<PathBuf>, only: Option<String> },
    /// Measures a node.
    Node { scale: Scale, output: Output, dir: Option<PathBuf>, only: Option<String> },
    /// Measures how closely nodes keep to a rate.
    Rate { wanted: Wanted, dir: Option<PathBuf> },
    /// Measures `ostler map` against its peers.
    Map { wanted: map::Wanted, dir: Option<PathBuf> },
    /// Measures the HTTP API.
    Http { wanted: http::Wanted, dir: Option<PathBuf> },
    /// Measures long-lived workers against their peers.
    Workers { wanted: workers::Wanted, dir: Option<PathBuf> },
    /// Measures functions against other runtimes.
    Isolates { wanted: isolates::Wanted, dir: Option<PathBuf> },
    /// Measures closures on threads.
    Threads(threads::Wanted),
    /// Compares two builds.
    Turns { wanted: turns::Wanted, dir: Option<PathBuf> },
    /// Runs slices for such a comparison.
    Slices(Vec<String>),
    /// Injects faults.
    Faults { wanted: faults::Wanted, dir: Option<PathBuf> },
    /// Runs the work of one task in a fault run.
    Effect { folder: PathBuf, id: String, time: Duration },
    /// Runs as the other process of a measurement.
    Child { role: Role, path: PathBuf },
    /// Prints the help text.
    Usage,
}

/// Where the results go.
#[derive(Default)]
pub(crate) struct Output {
    form: Form,
    json: Option<PathBuf>,
}

#[derive(Default)]
enum Form {
    #[default]
    TablesAndJson,
    Tables,
}

impl Output {
    /// Prints the report, and saves it as JSON if requested.
    pub(crate) fn write(&self, report: &Report) -> Result<(), Error> {
        let json = serde_json::to_string_pretty(&report.json())?;
        print!("{}", report.tables());
        match self.form {
            Form::TablesAndJson => println!("\n{json}"),
            Form::Tables => {}
        }
        if let Some(file) = &self.json {
            std::fs::write(file, json + "\n")?;
        }
        Ok(())
    }
}

/// Parses the arguments, without the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let mut args = args.into_iter();
    match args.next().as_deref() {
        Some("sqlite") => {
            measured(args, |scale, output, dir, only| Asked::Sqlite { scale, output, dir, only })
        }
        Some("postgres") => {
            measured(args, |scale, output, dir, only| Asked::Postgres { scale, output, dir, only })
        }
        Some("node") => measured(args, |scale, output, dir, only| Asked::Node { scale, output, dir, only }),
        Some("rate") => rate(args),
        Some("map") => mapped(args),
        Some("http") => served(args),
        Some("workers") => workers(args),
        Some("isolates") => isolated(args),
        Some("threads") => threads(args),
        Some("turns") => in_turns(args),
        Some(turns::WORD) => Ok(Asked::Slices(args.collect())),
        Some("faults") => faulty(args),
        Some(faults::effect::WORD) => effect(args),
        Some("child") => child(args),
        Some("help" | "--help" | "-h") => Ok(Asked::Usage),
        Some(other) => Err(format!("there is no benchmark \"{other}\"")),
        None => Err("which benchmark?".into()),
    }
}

fn measured(
    mut args: impl Iterator<Item = String>,
    asked: fn(Scale, Output, Option<PathBuf>, Option<String>) -> Asked,
) -> Result<Asked, String> {
    let (mut scale, mut output, mut dir, mut only) = (Scale::FULL, Output::default(), None, None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--quick" => scale = Scale::QUICK,
            "--tiny" => scale = Scale::TINY,
            "--markdown" => output.form = Form::Tables,
            "--json" => output.json = Some(value()?.into()),
            "--dir" => dir = Some(value()?.into()),
            "--only" => only = Some(value()?),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(asked(scale, output, dir, only))
}

fn rate(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (Wanted::default(), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (1..=MOST).contains(number));
        let number = |text| number(text).ok_or_else(|| format!("{word} is a whole number from 1 to {MOST}"));
        match word.as_str() {
            "--seconds" => wanted.seconds = number(value()?)?,
            "--per-second" => wanted.per_second = number(value()?)?,
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Rate { wanted, dir })
}

fn mapped(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (map::Wanted::default(), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
        let number = |text| number(text).ok_or_else(|| format!("{word} is a whole number from 1 to 1000000"));
        match word.as_str() {
            "--items" => wanted.items = number(value()?)?,
            "--at-once" => wanted.at_once = number(value()?)?,
            "--rounds" => wanted.rounds = number(value()?)?,
            "--ostler" => wanted.ostler = Some(value()?.into()),
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Map { wanted, dir })
}

fn served(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (http::Wanted::default(), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (1..=10_000_000).contains(number));
        let number =
            |text| number(text).ok_or_else(|| format!("{word} is a whole number from 1 to 10000000"));
        match word.as_str() {
            "--rows" => wanted.rows = number(value()?)?,
            "--requests" => wanted.requests = number(value()?)?,
            "--ostler" => wanted.ostler = Some(value()?.into()),
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Http { wanted, dir })
}

fn workers(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (workers::Wanted::default(), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
        let number = |text| number(text).ok_or_else(|| format!("{word} is a whole number from 1 to 1000000"));
        match word.as_str() {
            "--ours" => wanted.peers = workers::Beside::None,
            "--calls" => wanted.calls = number(value()?)?,
            "--rounds" => wanted.rounds = number(value()?)?,
            "--workers" => wanted.workers = vec![number(value()?)?],
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Workers { wanted, dir })
}

fn isolated(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (isolates::Wanted::default(), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--millis" => {
                let millis = value()?.parse().ok().filter(|millis| *millis > 0);
                wanted.millis = millis.ok_or("--millis is a whole number above zero")?;
            }
            "--ours" => wanted.peers = workers::Beside::None,
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Isolates { wanted, dir })
}

fn threads(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut wanted = threads::Wanted::default();
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (1..=10_000_000).contains(number));
        let number =
            |text| number(text).ok_or_else(|| format!("{word} is a whole number from 1 to 10000000"));
        match word.as_str() {
            "--calls" => wanted.calls = number(value()?)?,
            "--rounds" => wanted.rounds = number(value()?)?,
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Threads(wanted))
}

fn in_turns(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (turns::Wanted::new(PathBuf::new()), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (2..=MOST).contains(number));
        let number = |text| number(text).ok_or_else(|| format!("{word} is a whole number from 2 to {MOST}"));
        match word.as_str() {
            "--before" => wanted.before = value()?.into(),
            "--after" => wanted.after = Some(value()?.into()),
            "--slices" => wanted.slices = usize::try_from(number(value()?)?).unwrap_or(usize::MAX),
            "--millis" => wanted.millis = number(value()?)?,
            "--only" => wanted.only = Some(value()?),
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    if wanted.before.as_os_str().is_empty() {
        return Err("--before is missing: the program to compare with".into());
    }
    Ok(Asked::Turns { wanted, dir })
}

fn faulty(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut wanted, mut dir) = (faults::Wanted::default(), None);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
        let number = |text| number(text).ok_or_else(|| format!("{word} is a whole number from 1 to 1000000"));
        match word.as_str() {
            "--faults" => wanted.faults = number(value()?)?,
            "--tasks" => wanted.tasks = number(value()?)?,
            "--seed" => wanted.seed = number(value()?)?,
            "--only" => wanted.only = Some(value()?),
            "--ostler" => wanted.ostler = Some(value()?.into()),
            faults::INSIDE => wanted.place = faults::Namespace::Own,
            "--dir" => dir = Some(value()?.into()),
            "--help" | "-h" => return Ok(Asked::Usage),
            other => return Err(format!("\"{other}\" is not understood")),
        }
    }
    Ok(Asked::Faults { wanted, dir })
}

fn effect(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (folder, id) = (args.next(), args.next());
    let millis = args.next().and_then(|millis| millis.parse().ok());
    match (folder, id, millis, args.next()) {
        (Some(folder), Some(id), Some(millis), None) => {
            Ok(Asked::Effect { folder: folder.into(), id, time: Duration::from_millis(millis) })
        }
        _ => Err("\"effect\" is for the benchmark itself".into()),
    }
}

fn child(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let role = args.next().as_deref().and_then(Role::named);
    match (role, args.next(), args.next()) {
        (Some(role), Some(path), None) => Ok(Asked::Child { role, path: Path::new(&path).to_owned() }),
        _ => Err("\"child\" is for the benchmark itself".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn words_in_any_order_are_read() {
        let Ok(Asked::Sqlite { scale, output, dir, only }) =
            parsed("sqlite --dir /a --quick --json b --only c")
        else {
            panic!("it should be read");
        };
        assert_eq!((scale, dir, only), (Scale::QUICK, Some("/a".into()), Some("c".into())));
        assert_eq!(output.json, Some("b".into()));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for line in [
            "",
            "redis",
            "sqlite --fast",
            "sqlite --json",
            "rate --seconds 0",
            "map --items x",
            "workers --calls 0",
            "faults --tasks 0",
            "threads --rounds 0",
            "isolates --millis 0",
            "turns",
            "turns --before x --slices 1",
            "effect",
            "child",
            "child enqueuer",
            "child x y",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        assert!(matches!(parsed("child enqueuer a.db"), Ok(Asked::Child { .. })));
    }
}
