//! `ostler add`, `ostler wait` and `ostler init`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ostler_core::Priority;

use super::plans::Plans;
use super::tasks::TaskOptions;
use super::values::{self, TaskName};

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// Pass this environment variable, too, with its value of now; repeat for more. Values are stored in plain text
    #[arg(long, short, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// Pass all environment variables. They are stored in plain text, also passwords; refused on PostgreSQL
    #[arg(long, conflicts_with = "env")]
    pub(crate) all_env: bool,
    /// The working folder [default: this folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Run after this delay, such as 5m
    #[arg(long = "in", visible_alias = "delay", value_name = "D", value_parser = values::duration)]
    pub(crate) delay: Option<Duration>,
    /// A unique key: while another added command has it, its id is printed and nothing is added
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,
    /// Run after these commands, by id or key:K, if they complete; repeat, or separate with commas
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = values::task)]
    pub(crate) after: Vec<TaskName>,
    /// Priority from -100 to 100; each point is a minute's head start
    #[arg(long, value_name = "N", value_parser = values::priority, allow_negative_numbers = true)]
    pub(crate) priority: Option<Priority>,
    /// Maximum number of attempts [default: 1]
    #[arg(long, value_name = "N", value_parser = values::attempts)]
    pub(crate) attempts: Option<u32>,
    /// Kill an attempt that takes longer than this [default: none]
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Wait until the command finishes, and print what it wrote
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "D", value_parser = values::duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
    /// The program and its arguments; or one quoted text, which sh runs
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) words: Vec<OsString>,
}

impl Add {
    /// The options of its task.
    pub(crate) fn options(&self) -> TaskOptions {
        let plans = Plans {
            key_for: None,
            key_until: None,
            if_taken: None,
            after: self.after.clone(),
            if_failed: None,
            deadline: None,
        };
        TaskOptions {
            payload: None,
            priority: self.priority,
            delay: self.delay,
            at: None,
            id: None,
            key: self.key.clone(),
            timeout: self.timeout,
            attempts: self.attempts,
            folder: Some(self.folder.clone().unwrap_or_else(|| PathBuf::from("."))),
            traceparent: None,
            not_after: None,
            limit_key: None,
            cost: None,
            plans,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// Task ids, or their first or last 4 or more characters, or key:K for a unique key in --queue
    #[arg(value_name = "ID", required = true, value_parser = values::task)]
    pub(crate) tasks: Vec<TaskName>,
    /// The queue in which to look up key:K
    #[arg(long, value_name = "Q", default_value = super::tasks::DEFAULT_QUEUE, value_parser = values::queue)]
    pub(crate) queue: String,
    /// Wait no longer than this for all of them
    #[arg(long, value_name = "D", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
}
