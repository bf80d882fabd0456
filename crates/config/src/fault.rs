//! Config errors: one sentence for each broken rule, reported all at once.

use std::fmt;

/// The maximum number of faults reported for one file.
const MAX_FAULTS: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The line, counted from 1, if the fault is about something in the file.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub sentence: String,
}

/// All faults of one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The source of the config: the path of the file.
    pub origin: String,
    /// The faults by line. Never empty.
    pub faults: Vec<ConfigFault>,
    /// The number of faults left out.
    pub left_out: usize,
}

impl ConfigErrors {
    /// Sorts the faults by line.
    #[must_use]
    pub fn new(origin: &str, mut faults: Vec<ConfigFault>) -> Self {
        faults.sort_by_key(|fault| fault.line);
        let left_out = faults.len().saturating_sub(MAX_FAULTS);
        faults.truncate(MAX_FAULTS);
        Self { origin: origin.to_owned(), faults, left_out }
    }
}

impl std::error::Error for ConfigErrors {}

/// One line per fault: `ostler.toml:12: pool.shell.max_worker: unknown key; …`.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.origin)?;
            if let Some(line) = fault.line {
                write!(f, "{line}:")?;
            }
            write!(f, " {}", fault.sentence)?;
        }
        if self.left_out > 0 {
            write!(f, "\n{}: and {} more", self.origin, self.left_out)?;
        }
        Ok(())
    }
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {why}")]
    Unreadable { path: String, why: String },
    /// The file was read, and is invalid.
    #[error(transparent)]
    Broken(#[from] ConfigErrors),
}
