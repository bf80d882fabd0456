//! The use cases against the in-memory reference store.

mod act;
mod cost;
mod doctor;
mod hooks;
mod jobs;
mod logs;
mod nodes;
mod plans;
mod prune;
mod queues;
mod schedules;
mod selection;
mod submit;
mod tasks;
mod world;
