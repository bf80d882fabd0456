//! The keeper: the process that owns all children of a node.
//!
//! The node starts its own program once more; whoever's `main` finds itself started so calls [`serve`]. The two talk over
//! a socket pair, the keeper's end is its standard input (to own an inherited descriptor by its number would take `unsafe`).
//! When the node's end closes, however that came about, the keeper kills everything it has, and exits only when
//! nothing is left. Until then it holds the descriptors it was given to hold, such as the node's lock.
//!
//! What contains a child: a process group of its own; the keeper as subreaper, so that whatever leaves the group comes
//! back as the keeper's own child when its parent dies; and a mark in the environment, by which the keeper knows whose
//! it was. A child does not get a session of its own: that needs code between fork and exec, which is `unsafe`. A
//! descendant that left the group, outlived its parents *and* cleared its environment cannot be told from
//! another child's: it is killed when no child is left, at the latest when the node ends.
//!
//! Two things it cannot do. Descriptors that the node itself was started with, without close-on-exec, go on to every
//! child: to close them by their number would take `unsafe` too. And if the keeper itself is killed, its children live on
//! as they are; the node sees it at once, and every handle says [`Gone`].

mod children;
mod client;
mod frame;
mod kin;
mod launch;
mod post;
mod serve;
mod wire;

pub use client::{Child, Gone, Keeper, KeeperProgram, Launch, SpawnError, StartError};
pub use frame::{About, Exit, Stdin};
pub use serve::{ServeError, serve};
