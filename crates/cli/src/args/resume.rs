//! Arguments of `ostler resume`: a paused queue, or a node that drains.

use super::values;

/// `ostler resume`.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false, id = "resumed")]
pub(crate) struct Resume {
    /// The queue
    #[arg(group = "resumed", value_parser = values::queue)]
    pub(crate) queue: Option<String>,
    /// A node that drains, by its id or name: it claims tasks again
    #[arg(long, group = "resumed", value_name = "NODE")]
    pub(crate) node: Option<String>,
}
