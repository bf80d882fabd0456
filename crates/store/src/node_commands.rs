//! Orders: what somebody asks of one node while it runs. A node hears of them when it renews, and answers some of them.

use ostler_core::WorkerId;

/// What a node is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// Take nothing new, end what runs, and go.
    Drain,
    /// Another size for one of its pools, until the node ends.
    Resize {
        /// The pool.
        pool: String,
        /// Workers that it keeps at least.
        min: u32,
        /// Workers that it has at most.
        max: u32,
    },
    /// End workers of one of its pools that have nothing to do, and let others take their place. The node answers.
    Recycle {
        /// The pool.
        pool: String,
        /// Whom.
        who: WorkerChoice,
    },
}

/// Which workers of a pool are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerChoice {
    /// This one.
    One(WorkerId),
    /// Any that has nothing to do.
    Any,
    /// All that have nothing to do.
    All,
}

/// What a node did about an order to recycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the order.
    pub number: u64,
    /// These go, and others take their place.
    pub recycled: Vec<WorkerId>,
    /// These were meant too, and are busy: they stay.
    pub busy: Vec<WorkerId>,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// It is kept for as long as the node's session, and told with every renewal.
    Given {
        /// Its number: an answer names it.
        number: u64,
    },
    /// There is no such session, or it has ended.
    NoSuchNode,
}

/// An order, as a node hears it. It is told again with every renewal, so a node ignores the numbers that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedCommand {
    /// Rises with every order to the session.
    pub number: u64,
    /// The order.
    pub command: NodeCommand,
}
