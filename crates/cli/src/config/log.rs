//! The section `[log]`: the log of a node.

use ostler_config::Section;

use crate::log::{LogFormat, LogLevel, LogSettings};

/// The values of `log.format`.
const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
/// The values of `log.level`.
const LEVELS: [(&str, LogLevel); 4] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
];

pub(super) fn read(mut section: Section<'_>) -> LogSettings {
    let settings = LogSettings {
        format: section.find("format").and_then(|found| found.one_of(&FORMATS)).unwrap_or_default(),
        level: section.find("level").and_then(|found| found.one_of(&LEVELS)).unwrap_or_default(),
    };
    section.close(&[]);
    settings
}
