//! Functions in isolates: what they can do, how they end, and what they cannot reach.

#[macro_use]
mod engines;

mod bench;
mod bombs;
mod children;
mod compiled;
mod conformance;
mod corpus;
mod crossing;
mod deaf;
mod desk;
#[cfg(feature = "v8")]
mod differences;
mod ends;
mod escapes;
mod executor;
mod fetch;
mod file_changes;
mod folder;
mod globals;
mod host_bombs;
mod hosts;
mod late;
mod leaks;
mod overruns;
mod speed;
mod steps;
mod threads;
#[cfg(feature = "v8")]
mod v8;
