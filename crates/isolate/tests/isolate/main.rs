//! Functions in isolates: what they can do, how they end, and what they cannot reach.

mod bombs;
mod corpus;
mod crossing;
mod deaf;
mod desk;
mod ends;
mod escapes;
mod folder;
mod globals;
mod leaks;
mod speed;
mod steps;
