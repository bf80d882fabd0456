//! The supervisor: the process that owns all children of a node.
//!
//! The node starts its own program once more, and the `main` of that process calls [`serve`]. The two talk over a socket pair; the
//! supervisor's end is its standard input (owning an inherited descriptor by its number would take `unsafe`). When the node's end
//! closes, for whatever reason, the supervisor kills everything it has, and exits only when nothing is left. Until then it holds
//! the descriptors it was given to hold, such as the node's lock.
//!
//! Node and supervisor share a timer. The node resets it whenever it has renewed its leases; when it expires, the supervisor kills
//! all children: a node that is stopped or stalled must not run work that another node starts again.
//!
//! Each child is always contained by a session and a process group of its own; by the supervisor as subreaper, to which
//! processes that left the group are reparented when their parent dies; and by a mark in the environment, which tells the
//! supervisor to which child they belong. A descendant that left the group, outlived its parents *and* cleared its environment
//! cannot be attributed to a child: it is killed when no child is left, at the latest when the node exits.
//!
//! Where the supervisor may create control groups ([`Containment`]), each child has one of its own too, which a process can leave
//! only if it may write to their file system. The cost is small while children follow each other closely. A child that is started
//! alone is some milliseconds late: the kernel blocks forks while it moves a process between groups.
//!
//! If the supervisor itself is killed, the kernel kills its direct children with it, unless a child's program runs as another
//! user (set-user-id), which clears the kernel's parent-death signal. The descendants of these children are killed by the node,
//! with their control groups; without control groups they survive. The node notices at once, and every handle returns
//! [`SupervisorGone`]. If both are killed at once, the next supervisor in the same control group kills what is left.

mod cgroup;
mod child;
mod children;
mod client;
mod client_io;
mod controllers;
mod descendants;
mod frame;
mod launch;
mod program;
mod serve;
mod server_io;
mod spawn;

pub(crate) use cgroup::own_folder as own_cgroup;
pub use child::{Child, Launch, SpawnError, SupervisorGone};
pub use client::Supervisor;
pub(crate) use descendants::{descendants, family};
pub use frame::{About, Contained, Containment, Exit, SOCKET_FD, Socket, Stdin, Variables};
pub use program::{StartError, SupervisorProgram};
pub use serve::{ServeError, serve};
pub(crate) use spawn::try_call;
