//! TLS of requests: certificates are checked against those of the system, or the built-in ones if it has none.

use std::sync::{Arc, OnceLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::HttpError;

/// Made when it is first needed: reading the system's certificates takes a while.
#[derive(Default)]
pub(crate) struct Encryption {
    besides: Vec<CertificateDer<'static>>,
    connector: OnceLock<Result<TlsConnector, String>>,
}

impl Encryption {
    /// The same, which also trusts this authority.
    pub(crate) fn trusting(&self, certificate: &str) -> Result<Self, HttpError> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| tls_error("a server", &format!("the certificate cannot be read: {error}")))?;
        let besides = self.besides.iter().cloned().chain([certificate]).collect();
        Ok(Self { besides, connector: OnceLock::new() })
    }

    pub(crate) async fn connect<S>(&self, host: &str, plain: S) -> Result<TlsStream<S>, HttpError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|error| tls_error(host, &error))?;
        let connector =
            self.connector.get_or_init(|| self.make()).as_ref().map_err(|why| tls_error(host, why))?;
        connector.connect(name, plain).await.map_err(|error| tls_error(host, &error))
    }

    fn make(&self) -> Result<TlsConnector, String> {
        let mut roots = RootCertStore::empty();
        // A system may have certificates that cannot be used, besides good ones.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for certificate in &self.besides {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config).into())
    }
}

fn tls_error(host: &str, why: &dyn ToString) -> HttpError {
    HttpError::Tls { host: host.to_owned(), why: why.to_string() }
}
