//! Threads: handlers and closures that are not `Send`, on OS threads of their own.
//!
//! Each thread has its own runtime and runs one job at a time, in a fresh `LocalSet` that is dropped with everything the job spawned:
//! nothing of one job is left when the next starts.
//!
//! - `executor.rs`: attempts of registered handlers. `pool.rs`: closures that are not durable. Both use the rest.
//! - `policy.rs`: the number of threads, the choice of the next one, the queue limit, and the variables that set them.
//! - `permit.rs`: backpressure and the drain. `set.rs`: the threads of a pool. `worker.rs`: one thread.

mod executor;
mod permit;
mod policy;
mod pool;
mod set;
mod worker;

pub use executor::Threads;
pub use permit::{Backpressure, DrainEnd, Permit, PermitRefused};
pub use policy::{
    BadThreadPolicy, Choice, Runtimes, SettingSource, SizeVariables, ThreadEnvironment, ThreadPolicy,
};
pub use pool::{ThreadPool, ThreadPoolError};
pub use set::ThreadStartError;
