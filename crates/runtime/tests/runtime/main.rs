//! Nodes on a real embedded store.

mod accounts;
mod comeback;
mod drains;
mod followers;
mod gates;
mod node;
mod orphans;
mod pools;
mod presence;
mod scaling;
mod schedules;
mod telemetry;
mod together;
mod unresponsive;
mod workers;
