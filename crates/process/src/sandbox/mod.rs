//! What a child of a pool may do at most, if the pool says so.
//!
//! - [`Sandbox`]: what a pool says. It is checked before anything is started.
//! - [`Confinement`]: the same for one child, with its own folders, as the keeper is told.
//! - `cage.rs`: what the keeper makes of it: a Landlock ruleset, seccomp filters and limits, ready to be put on. The child puts
//!   them on itself, as its last act before it becomes its program. `calls.rs` is the table of denied system calls.
//! - [`prove`]: the node tries, with a child in the same sandbox, what must not work. `probe.rs` is that child.
//!
//! **What cannot be enforced is refused.** Nothing is left out because a kernel does not have it.

mod cage;
mod calls;
mod confinement;
mod filter;
mod hidden;
mod policy;
mod probe;
mod proof;
mod room;

pub(crate) use cage::Cage;
pub(crate) use calls::Call;
pub use confinement::{Attributes, Confinement, Limits, Network};
pub use hidden::real;
pub use policy::{Sandbox, SandboxError};
pub use probe::probe;
pub use proof::{Unproved, prove};
pub(crate) use room::{Private, Room};
