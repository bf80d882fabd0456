//! `fetch` of functions, performed by the node: rules about hosts and addresses, redirects, limits.
//!
//! - [`FetchRules`]: the list `fetch` of a pool: which hosts a function may reach. Without a list it reaches none.
//! - [`Fetcher`]: sends the requests of a pool. [`FetchSession`]: the open responses of one attempt.
//! - `exchange.rs`: from a [`FetchRequest`](crate::FetchRequest) to the head of its response, by resolving, checking and connecting, at
//!   every redirect again. `redirect.rs`: what a redirect changes. `target.rs`: which URLs are sent at all.
//! - [`FetchNetwork`]: names and connections of the machine, or those of a test.
//!
//! A host process has no network: whatever runs in it can only ask for a request, and the rules are applied here
//! (docs/decisions/0028-fetch-of-functions.md).

mod body;
mod error;
mod exchange;
mod fetcher;
mod gunzip;
mod headers;
mod limits;
mod network;
mod redirect;
mod rules;
mod session;
mod target;

pub use fetcher::Fetcher;
pub use limits::FetchLimits;
pub use network::{FetchNetwork, SystemNetwork};
pub use rules::FetchRules;
pub use session::FetchSession;
