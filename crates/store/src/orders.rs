//! Orders: what somebody asks of one node while it runs. A node hears of them when it renews.

/// What a node is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
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
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// It is kept for as long as the node's session, and told with every renewal.
    Given,
    /// There is no such session, or it has ended.
    NoSuchNode,
}

/// An order, as a node hears it. It is told again with every renewal, so a node ignores the numbers that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedOrder {
    /// Rises with every order to the session.
    pub number: u64,
    /// The order.
    pub order: Order,
}
