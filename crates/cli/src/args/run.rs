//! Arguments of `ostler run`.

use std::path::PathBuf;
use std::time::Duration;

use super::values;

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What the agent is to do, or - to read it from standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: String,
    /// The folder in which the agent works
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Your own id of the run, any text: the same id again is the same task, and shows as key:ID
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Maximum number of model requests [default: that of the pool]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) max_iterations: Option<u32>,
    /// The model, in the words of the agent [default: that of the pool]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The pool [default: the only one in ostler.toml that takes prompts]
    #[arg(long, value_name = "POOL", value_parser = values::queue)]
    pub(crate) pool: Option<String>,
    /// Wait until the run finishes, and print its answer
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than this
    #[arg(long, value_name = "D", value_parser = values::duration, requires = "wait")]
    pub(crate) wait_timeout: Option<Duration>,
}
