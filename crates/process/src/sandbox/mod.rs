//! What a child of a pool may do at most, if the pool says so.
//!
//! - [`Sandbox`]: what a pool says. It is checked before anything is started.
//! - [`Confinement`]: the same for one child, with its own folders, as the supervisor is told.
//! - `cage.rs`: what the supervisor makes of it: a Landlock ruleset, seccomp filters and limits, ready to be put on. The child puts
//!   them on itself, as its last act before it becomes its program. `calls.rs` is the table of denied system calls.
//! - [`prove`]: the node tries, with a child in the same sandbox, what must not work. `probe.rs` is that child.
//!
//! **What cannot be enforced is refused.** Nothing is left out because a kernel does not have it.

mod calls;
mod confinement;
mod filter;
mod instance;
mod policy;
mod probe;
mod protected;
mod ruleset;
mod self_test;

pub(crate) use calls::DeniedCall;
pub use confinement::{Attributes, Confinement, Limits, Network};
pub(crate) use instance::{Private, SandboxInstance};
pub use policy::{Sandbox, SandboxError};
pub use probe::probe;
pub use protected::real;
pub(crate) use ruleset::ChildRuleset;
pub use self_test::{SelfTestFailed, prove};
