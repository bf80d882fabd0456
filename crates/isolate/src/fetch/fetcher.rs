//! The fetcher of a pool: rules, limits and the client that requests are sent with.

use std::sync::Arc;

use ostler_http::{AddressRules, HttpClient, HttpError, Proxies};

use super::limits::FetchLimits;
use super::network::{FetchNetwork, SystemNetwork};
use super::rules::FetchRules;
use super::session::FetchSession;

/// Performs the requests of functions. One for a pool; clones share everything.
#[derive(Clone)]
pub struct Fetcher {
    pub(crate) rules: Arc<FetchRules>,
    pub(crate) limits: Arc<FetchLimits>,
    pub(crate) client: HttpClient,
    pub(crate) network: Arc<dyn FetchNetwork>,
}

impl Fetcher {
    /// Requests over the network of this machine.
    #[must_use]
    pub fn new(rules: FetchRules, limits: FetchLimits) -> Self {
        Self::over(rules, limits, Arc::new(SystemNetwork))
    }

    /// Requests over this network.
    #[must_use]
    pub fn over(rules: FetchRules, limits: FetchLimits, network: Arc<dyn FetchNetwork>) -> Self {
        // The client gets connections to addresses that were checked here. Its own rules are never asked.
        let client = HttpClient::new(AddressRules::public(), Proxies::None);
        Self { rules: Arc::new(rules), limits: Arc::new(limits), client, network }
    }

    /// The same, which also trusts this authority: a certificate in PEM.
    ///
    /// # Errors
    /// When it is not a certificate.
    pub fn trusting(self, certificate: &str) -> Result<Self, HttpError> {
        Ok(Self { client: self.client.trusting(certificate)?, ..self })
    }

    /// The requests of one attempt.
    #[must_use]
    pub fn session(&self) -> FetchSession {
        FetchSession::new(self.clone())
    }
}
