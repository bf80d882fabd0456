//! Node commands: requests to one running node. A node receives them when it renews, and replies to some of them.

use ostler_core::WorkerId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// Claim nothing new, finish the running attempts, and exit.
    Drain,
    /// Take a drain back and claim again. The node replies.
    Resume,
    /// Resize one of its pools, until the node exits.
    Resize {
        pool: String,
        /// The minimum number of workers.
        min: u32,
        /// The maximum number of workers.
        max: u32,
    },
    /// Stop idle workers of one of its pools and replace them. The node replies.
    Recycle { pool: String, who: WorkerChoice },
}

/// Which workers of a pool to recycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerChoice {
    One(WorkerId),
    /// Any one idle worker.
    Any,
    /// All idle workers.
    All,
}

/// A node's reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the command.
    pub number: u64,
    pub answer: NodeAnswer,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    Recycle(RecycleAnswer),
    Resume(ResumeAnswer),
}

/// What became of a drain that was to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeAnswer {
    /// It is taken back: the node claims tasks again.
    Resumed,
    /// There was none.
    NotDraining,
    /// It is final: the node was about to end, or its program was asked to exit.
    Stopping,
}

/// What became of the workers that were to be recycled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecycleAnswer {
    /// Workers that are stopped and replaced.
    pub recycled: Vec<WorkerId>,
    /// Selected workers that are busy, and stay.
    pub busy: Vec<WorkerId>,
}

/// The answer to sending a node command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandAnswer {
    /// Kept for as long as the node's session, and sent with every renewal.
    Given {
        /// The number of the command, which its reply names.
        number: u64,
    },
    /// There is no such session, or it has ended.
    NoSuchNode,
}

/// A node command as a node receives it. It is sent again with every renewal, so a node ignores the numbers that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedCommand {
    /// Rises with every command to the session.
    pub number: u64,
    pub command: NodeCommand,
}
