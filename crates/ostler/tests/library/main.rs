//! The library as its users call it, on real stores. Tests with a `Twin` start this program again as another process.

mod accounts;
#[cfg(feature = "agent")]
mod agents;
mod breakers;
mod budgets;
mod callbacks;
#[cfg(feature = "process")]
mod children;
mod client;
mod drains;
mod files;
mod five_steps;
#[cfg(feature = "isolate")]
mod functions;
#[cfg(feature = "agent")]
mod gateway;
mod jobs;
mod kills;
mod kinds;
mod limits;
mod plans;
mod pool;
mod presence;
mod queues;
mod scenarios;
mod schedules;
mod secrets;
mod shared;
mod slots;
mod steps;
#[cfg(feature = "testing")]
mod testing;
