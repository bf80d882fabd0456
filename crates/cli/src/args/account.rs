//! `ostler account`.

use std::time::Duration;

use clap::{Args, Subcommand};
use ostler_core::Timestamp;
use ostler_ops::accounts::HoldEnd;

use super::values;

#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// List accounts, with what holds them
    #[command(after_help = "Example: ostler account ls")]
    Ls,
    /// Show an account in detail
    #[command(after_help = "Example: ostler account show claude")]
    Show {
        /// The account
        #[arg(value_parser = values::account)]
        name: String,
    },
    /// Hold an account: none of its tasks starts, in any queue
    #[command(after_help = "Example: ostler account hold claude --for 2h --reason \"close to the limit\"")]
    Hold(HoldArgs),
    /// End the hold of an account
    #[command(after_help = "Example: ostler account release claude")]
    Release {
        /// The account
        #[arg(value_parser = values::account)]
        name: String,
    },
    /// Set how many tasks of an account may run at once, over all queues and nodes
    #[command(after_help = "Example: ostler account cap claude 8")]
    Cap {
        /// The account
        #[arg(value_parser = values::account)]
        name: String,
        /// The number of tasks, or none for no limit
        #[arg(value_parser = values::count_or_none)]
        most: values::CountOrNone,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// The account
    #[arg(value_parser = values::account)]
    pub(crate) name: String,
    /// For how long [default: until it is released]
    #[arg(long = "for", value_name = "D", value_parser = values::duration, conflicts_with = "until")]
    span: Option<Duration>,
    /// Until when, such as 2030-01-01T00:00:00Z
    #[arg(long, value_name = "T", value_parser = values::moment)]
    until: Option<Timestamp>,
    /// Why, for others who find it held
    #[arg(long, default_value = "held by hand")]
    pub(crate) reason: String,
}

impl HoldArgs {
    pub(crate) fn end(&self) -> HoldEnd {
        match (self.until, self.span) {
            (Some(until), _) => HoldEnd::At(until),
            (None, Some(span)) => HoldEnd::After(span),
            (None, None) => HoldEnd::ByHand,
        }
    }
}
