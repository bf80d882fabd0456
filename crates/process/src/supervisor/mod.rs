//! The supervisor: the process that owns all children of a node.
//!
//! The node starts its own program once more; whoever's `main` finds itself started so calls [`serve`]. The two talk over
//! a socket pair, the supervisor's end is its standard input (to own an inherited descriptor by its number would take `unsafe`).
//! When the node's end closes, however that came about, the supervisor kills everything it has, and exits only when
//! nothing is left. Until then it holds the descriptors it was given to hold, such as the node's lock.
//!
//! Node and supervisor share a timer. The node sets it anew whenever it has renewed its leases; when it runs out, the supervisor kills all
//! children: a node that is stopped, or stands still, does not run work that somebody else begins anew.
//!
//! What contains a child, always: a session and a process group of its own; the supervisor as subreaper, so that whatever leaves
//! the group comes back as the supervisor's own child when its parent dies; and a mark in the environment, by which the supervisor
//! knows whose it was. A descendant that left the group, outlived its parents *and* cleared its environment cannot be
//! told from another child's: it is killed when no child is left, at the latest when the node ends.
//!
//! Where the supervisor may make control groups ([`Containment`]), each child has one of its own too, and then nobody gets away
//! who may not write to their file system. It costs little while children follow each other closely. A child that comes
//! alone is some milliseconds late: the kernel makes sure that nobody forks while it moves somebody between groups.
//!
//! If the supervisor itself is killed, the kernel kills its direct children with it, unless a child's program runs as another
//! user than the supervisor (set-user-id): the kernel forgets it then. What they have started is ended by the node, with their
//! control groups; without control groups it lives on. The node sees it at once, and every handle says [`SupervisorGone`]. If
//! both are killed at once, the next supervisor in the same control group ends what is left.

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
pub(crate) use descendants::descendants;
pub use frame::{About, Contained, Containment, Exit, SOCKET_FD, Socket, Stdin};
pub use program::{StartError, SupervisorProgram};
pub use serve::{ServeError, serve};
pub(crate) use spawn::try_call;
