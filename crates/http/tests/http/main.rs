//! Requests to a real server on this machine.

mod addresses;
mod limits;
mod proxies;
mod requests;
mod server;
#[cfg(feature = "tls")]
mod tls;
