//! The library as its users call it, on real stores. Tests with a `Twin` start this program again as another process.

mod callbacks;
mod files;
mod five_steps;
mod kills;
mod limits;
mod plans;
mod pool;
mod presence;
mod schedules;
mod secrets;
mod shared;
mod steps;
