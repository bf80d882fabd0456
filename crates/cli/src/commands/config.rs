//! `ostler config`: prints the default config with all settings, or checks a file.

use std::path::{Path, PathBuf};

use ostler_config::SecretValues;

use super::Console;
use crate::args;
use crate::config::{self, Config, ConfigError, StoreUrl};
use crate::config_search::FoundConfig;
use crate::exit::{Code, refused, say};
use crate::pool_kinds::POOL_KINDS;
use crate::print::Format;
use crate::store_location::CONFIG_FILE;

pub(super) fn run(console: &Console, what: args::Config) -> anyhow::Result<Code> {
    let Some(file) = what.check else {
        console.out.text(&config::reference(POOL_KINDS))?;
        return Ok(Code::Done);
    };
    let file = file.or_else(|| console.config_file()).unwrap_or_else(|| CONFIG_FILE.into());
    let config = required(&file)?;
    let pools: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    let schedules: Vec<&str> = config.schedules.iter().map(|plan| plan.name.as_str()).collect();
    let mut names = format!("pools: {}", none_or(&pools.join(", ")));
    if !schedules.is_empty() {
        names.push_str(&format!("; schedules: {}", schedules.join(", ")));
    }
    let warnings: Vec<String> =
        config.findings().iter().map(|finding| format!("{}. {}", finding.sentence, finding.advice)).collect();
    let view =
        serde_json::json!({ "ok": true, "pools": pools, "schedules": schedules, "warnings": warnings });
    console.out.answer(&view, |_| format!("{}: OK ({names})\n", file.display()))?;
    if console.out.format() == Format::People {
        warnings.iter().for_each(|warning| say(&format!("warning: {}: {warning}", file.display())));
    }
    Ok(Code::Done)
}

/// Reads a config file, with the variables of this process.
pub(super) fn read(path: &Path) -> Result<Config, ConfigError> {
    with_secrets(path, SecretValues::Read)
}

/// Reads a config file for where its store is. The variables of its secrets need not be set.
pub(super) fn of_store(path: &Path) -> anyhow::Result<Config> {
    with_secrets(path, SecretValues::LeftOut).map_err(|error| refused(Code::BadInput, error.to_string()))
}

fn with_secrets(path: &Path, secrets: SecretValues) -> Result<Config, ConfigError> {
    config::read(path, &|name| std::env::var(name).ok(), POOL_KINDS, secrets)
}

/// Reads a config file, which must be valid.
pub(super) fn required(path: &Path) -> anyhow::Result<Config> {
    read(path).map_err(|error| refused(Code::BadInput, error.to_string()))
}

/// The config file of this folder, or of the nearest one above it that has one.
pub(super) fn here() -> Option<PathBuf> {
    FoundConfig::search().and_then(FoundConfig::file)
}

/// Goes to the folder of a config that was found above this one, as if the node were started there: the commands of its pools may be
/// relative. A store that was named relative to this folder stays that one.
pub(super) fn enter_folder(file: &Path, store: &mut StoreUrl) -> anyhow::Result<()> {
    let Some(folder) = file.parent().filter(|folder| folder.is_absolute()) else { return Ok(()) };
    *store = store.clone().beside(&std::env::current_dir()?);
    Ok(std::env::set_current_dir(folder)?)
}

fn none_or(list: &str) -> &str {
    if list.is_empty() { "none" } else { list }
}
