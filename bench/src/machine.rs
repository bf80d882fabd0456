//! The machine that the benchmarks ran on.

use std::path::{Path, PathBuf};

use ostler_core::Timestamp;
use ostler_store::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::Error;
use crate::ceiling::{Bare, Synchronous};

/// Facts about the machine and the program that affect results.
pub(crate) struct Machine {
    facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Collects the facts; `unknown` where one cannot be found.
    pub(crate) fn look(dir: &Path) -> Self {
        let sqlite = vec![
            ("SQLite", rusqlite::version().to_owned()),
            ("store's settings", store_settings()),
            ("ceiling's settings", ceiling_settings(dir).unwrap_or_else(|_| "unknown".into())),
        ];
        Self::with(dir, sqlite)
    }

    /// Like [`look`](Self::look), with these facts about the database.
    pub(crate) fn with(dir: &Path, database: Vec<(&'static str, String)>) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let profile = if cfg!(debug_assertions) { "debug: the figures mean nothing" } else { "release" };
        let mut facts = vec![
            ("date", date(SystemClock.now())),
            ("commit, when it ran", commit()),
            ("build", profile.to_owned()),
            ("cores", cores.to_string()),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("load at the start", load()),
            ("folder", from_here(dir)),
            ("file system", file_system(dir)),
        ];
        facts.extend(database);
        Self { facts }
    }

    /// Adds a fact known only at the end.
    pub(crate) fn add(&mut self, name: &'static str, what: String) {
        self.facts.push((name, what));
    }

    /// Name and value, in order.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.facts.iter().map(|(name, what)| (*name, what.as_str()))
    }

    /// The facts as a JSON object.
    pub(crate) fn json(&self) -> Value {
        self.facts()
            .map(|(name, what)| (name.replace(['\'', ','], "").replace(' ', "_"), json!(what)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// The target folder if there is one: it is on the same disk as the sources. Otherwise the system's temporary folder.
pub(crate) fn default_dir() -> PathBuf {
    let target = Path::new("target");
    if target.is_dir() { target.to_owned() } else { std::env::temp_dir() }
}

/// The load average over one, five and fifteen minutes.
pub(crate) fn load() -> String {
    read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// The settings of the store's writer. They belong to a private connection that cannot be queried, so they are read from its source.
fn store_settings() -> String {
    const SOURCE: &str = include_str!("../../crates/sqlite/src/open.rs");
    let constant = |name: &str| {
        let line = SOURCE.lines().find_map(|line| line.strip_prefix(&format!("const {name}: i64 = ")));
        line.map_or("unknown", |value| value.trim_end_matches(';')).to_owned()
    };
    format!(
        "journal_mode=wal, synchronous=full, wal_autocheckpoint={}, journal_size_limit={}, cache_size=-({})",
        constant("CHECKPOINT_PAGES"),
        constant("LOG_BYTES"),
        constant("CACHE_KIB"),
    )
}

fn ceiling_settings(dir: &Path) -> Result<String, Error> {
    let path = dir.join("settings.db");
    let settings = Bare::open(&path, Synchronous::Full)?.settings()?;
    std::fs::remove_file(path)?;
    Ok(settings)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

fn commit() -> String {
    let asked = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    match asked {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout).trim().to_owned(),
        Ok(_) | Err(_) => "unknown".into(),
    }
}

/// The folder relative to the current one, where it lies below.
fn from_here(dir: &Path) -> String {
    let below = std::env::current_dir().ok().and_then(|here| dir.strip_prefix(here).ok().map(Path::to_owned));
    below.as_deref().unwrap_or(dir).display().to_string()
}

/// The resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> Result<u64, Error> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The type and device of a folder's mount: the longest mount point that is a prefix.
pub(crate) fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = read("/proc/mounts");
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, Path::new(words.next()?), words.next()?))
        })
        .filter(|(_, point, _)| dir.starts_with(point))
        .max_by_key(|(_, point, _)| point.components().count());
    mount.map_or_else(|| "unknown".into(), |(device, _, kind)| format!("{kind} on {device}"))
}

/// The Gregorian date of a timestamp (Howard Hinnant's `civil_from_days`).
fn date(now: Timestamp) -> String {
    let days = now.millis().div_euclid(86_400_000) + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
        ] {
            assert_eq!(date(Timestamp::from_millis(seconds * 1_000)), day);
        }
    }

    #[test]
    fn the_settings_of_both_sides_are_known() {
        assert!(!store_settings().contains("unknown"), "{}", store_settings());
        let dir = tempfile::tempdir().unwrap();
        let settings = ceiling_settings(dir.path()).unwrap();
        assert!(
            settings.starts_with("journal_mode=wal, synchronous=2, wal_autocheckpoint=1000"),
            "{settings}"
        );
    }

    #[test]
    fn a_folder_is_on_some_file_system() {
        assert!(file_system(Path::new("/")).contains(" on "));
    }
}
