//! Settings of the log: its format, and which events are written.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// The targets of a node begin with this.
const OURS: &str = "ostler";
/// The environment variable with a filter.
pub(crate) const FILTER: &str = "OSTLER_LOG";

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people: time, level, sentence, fields
    #[default]
    Text,
    /// For programs: an object on each line
    Json,
}

/// The least important events that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl LogLevel {
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

/// The log, as the config has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) format: LogFormat,
    pub(crate) level: LogLevel,
}

/// What the command line says about the amount of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Nothing: the environment and the config decide.
    Unset,
    /// A line for each task.
    Verbose,
    /// Only failures.
    Quiet,
}

/// Which events are written: the command line decides, then the environment, then the config.
///
/// # Errors
/// A sentence about the environment variable.
pub(crate) fn filter(verbosity: Verbosity, env: Option<&str>, config: LogLevel) -> Result<Targets, String> {
    let level = match (verbosity, env.filter(|env| !env.trim().is_empty())) {
        (Verbosity::Verbose, _) => LogLevel::Debug,
        (Verbosity::Quiet, _) => LogLevel::Warn,
        (Verbosity::Unset, None) => config,
        (Verbosity::Unset, Some(env)) => {
            return env.parse().map_err(|error| {
                format!("{FILTER} is invalid: {error}; a valid one is ostler=info,ostler::task=debug")
            });
        }
    };
    Ok(Targets::new().with_target(OURS, level.filter()))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn allows(found: &Targets, target: &str, level: Level) -> bool {
        found.would_enable(target, &level)
    }

    #[test]
    fn the_command_line_decides_before_the_environment_and_that_before_the_config() {
        let chosen = |verbosity, env| filter(verbosity, env, LogLevel::Info).expect("it is valid");
        let env = Some("warn,ostler::task=debug");
        let plain = chosen(Verbosity::Unset, None);
        assert!(allows(&plain, "ostler::node", Level::INFO) && !allows(&plain, "ostler::task", Level::DEBUG));
        assert!(!allows(&plain, "hyper", Level::ERROR), "libraries say nothing unless they are asked");
        let by_env = chosen(Verbosity::Unset, env);
        assert!(
            allows(&by_env, "ostler::task", Level::DEBUG) && !allows(&by_env, "ostler::pool", Level::INFO)
        );
        assert!(allows(&chosen(Verbosity::Verbose, env), "ostler::pool", Level::DEBUG));
        assert!(!allows(&chosen(Verbosity::Quiet, env), "ostler::task", Level::INFO));
        assert_eq!(chosen(Verbosity::Unset, Some(" ")), plain);
        let refused =
            filter(Verbosity::Unset, Some("ostler=loud"), LogLevel::Info).expect_err("it is invalid");
        assert!(refused.starts_with("OSTLER_LOG is invalid: "), "{refused}");
    }
}
