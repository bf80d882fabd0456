//! What is wrong with a config: a sentence for each broken rule, all of them at once.

use std::fmt;

/// Faults that are told of one file. Whoever has more will come back anyway.
const MAX_FAULTS: usize = 100;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFault {
    /// The line, counted from one, if it is about something that stands in the file.
    pub(crate) line: Option<usize>,
    /// What is wrong, and what would be right.
    pub(crate) sentence: String,
}

/// All that is wrong with one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigErrors {
    /// Where it came from, as people know it: the path of the file.
    pub(crate) origin: String,
    /// The faults, by line. Never empty.
    pub(crate) faults: Vec<ConfigFault>,
    /// How many more there are.
    pub(crate) left_out: usize,
}

impl ConfigErrors {
    /// These faults, in the order of the file.
    pub(super) fn new(origin: &str, mut faults: Vec<ConfigFault>) -> Self {
        faults.sort_by_key(|fault| fault.line);
        let left_out = faults.len().saturating_sub(MAX_FAULTS);
        faults.truncate(MAX_FAULTS);
        Self { origin: origin.to_owned(), faults, left_out }
    }
}

impl std::error::Error for ConfigErrors {}

/// A line for each fault: `ostler.toml:12: pool.shell.max_worker: there is no such key`.
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
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// A sentence.
        why: String,
    },
    /// It was read, and cannot work.
    #[error(transparent)]
    Broken(#[from] ConfigErrors),
}
