//! Sandboxes for child processes: Landlock, seccomp and resource limits.
//!
//! - [`Sandbox`]: the settings of a pool, checked before anything is started.
//! - [`Confinement`]: the same for one child, with its own folders, as sent to the supervisor.
//! - `ruleset.rs`: what the supervisor prepares from it: a Landlock ruleset, seccomp filters and limits. The child applies them to
//!   itself, as its last step before it executes its program. `calls.rs` is the table of denied system calls.
//! - [`prove`]: the self-test, in which a child in the same sandbox tries what must not work. `probe.rs` is that child.
//!
//! **A restriction that cannot be enforced is an error.** None is skipped because the kernel lacks it.

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
pub use probe::{PROBE, probe, reachable_calls};
pub use protected::real;
pub(crate) use ruleset::ChildRuleset;
pub use self_test::{SelfTestFailed, prove};
