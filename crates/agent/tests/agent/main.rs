//! Tests of the agent dialects against recorded lines of the real programs.

mod app_server;
mod launches;
mod properties;
mod recording;
mod snapshots;
