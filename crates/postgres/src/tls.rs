//! TLS of connections, configured by the URL: `sslmode` and `sslrootcert`, with the meaning they have in libpq.

use std::sync::Arc;

use ostler_store::Error;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The value for the operating system's root certificates.
const SYSTEM: &str = "system";

/// Which server certificates are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Any: protects against eavesdroppers, not against impostors.
    #[default]
    Anyone,
    /// Signed by a trusted root.
    Signed,
    /// Signed by a trusted root, for the host name in the URL.
    SignedForName,
}

/// The TLS settings of the URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificates {
    trust: Trust,
    roots: Option<String>,
}

impl Certificates {
    /// Takes one setting of the URL. Returns its replacement; `None`: not a TLS setting of ours, keep it.
    fn take(&mut self, key: &str, value: String) -> Option<&'static str> {
        match (key, value.as_str()) {
            ("sslmode", "verify-ca") => self.trust = Trust::Signed,
            ("sslmode", "verify-full") => self.trust = Trust::SignedForName,
            ("sslrootcert", _) => {
                self.roots = Some(value);
                return Some("");
            }
            _ => return None,
        }
        Some("sslmode=require")
    }

    /// Builds the TLS connector.
    pub(crate) fn encryption(&self) -> Result<MakeRustlsConnect, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::invalid(format!("TLS is not available: {error}")))?;
        // As in libpq: a given root certificate implies that it is verified.
        let trust = match self.trust {
            Trust::Anyone if self.roots.is_some() => Trust::Signed,
            trust @ (Trust::Anyone | Trust::Signed | Trust::SignedForName) => trust,
        };
        let signed = match trust {
            Trust::Anyone => None,
            Trust::Signed | Trust::SignedForName => {
                let verifier = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(self.roots()?),
                    Arc::clone(&provider),
                );
                Some(verifier.build().map_err(|error| Error::invalid(format!("sslrootcert: {error}")))?)
            }
        };
        let verifier = Verifier { trust, signed, provider };
        let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let place = self.roots.as_deref().unwrap_or(SYSTEM);
        let found: Vec<CertificateDer<'static>> = if place == SYSTEM {
            rustls_native_certs::load_native_certs().certs
        } else {
            let read = CertificateDer::pem_file_iter(place).and_then(Iterator::collect);
            read.map_err(|error| Error::invalid(format!("sslrootcert: {place} cannot be read: {error}")))?
        };
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(found);
        if taken == 0 {
            return Err(Error::invalid(format!("sslrootcert: no certificate in {place}")));
        }
        Ok(roots)
    }
}

/// Parses the TLS settings of the URL. Returns the URL without them, too, because the other parser does not know them.
pub(crate) fn certificates(url: &str) -> (String, Certificates) {
    let mut certificates = Certificates::default();
    let rest = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let Some((place, query)) = url.split_once('?') else { return (url.to_owned(), certificates) };
        let kept: Vec<&str> = query
            .split('&')
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                certificates.take(key, decoded(value)).unwrap_or(pair)
            })
            .filter(|pair| !pair.is_empty())
            .collect();
        format!("{place}?{}", kept.join("&"))
    } else {
        let mut kept = Vec::new();
        let mut left = url;
        while let Some(setting) = Setting::first(left) {
            kept.push(certificates.take(setting.key, setting.value).unwrap_or(setting.whole));
            left = setting.after;
        }
        kept.push(left);
        kept.join(" ")
    };
    (rest, certificates)
}

/// A setting of the form `key = 'value'`.
struct Setting<'a> {
    whole: &'a str,
    key: &'a str,
    value: String,
    after: &'a str,
}

impl<'a> Setting<'a> {
    /// Parses the first setting, if the text starts with one.
    fn first(text: &'a str) -> Option<Self> {
        let text = text.trim_start();
        let (key, after) = text.split_once('=')?;
        let begins = after.trim_start();
        let quoted = begins.strip_prefix('\'');
        let (mut value, mut escaped) = (String::new(), false);
        let body = quoted.unwrap_or(begins);
        let mut end = body.len();
        for (at, c) in body.char_indices() {
            let ends = if quoted.is_some() { c == '\'' } else { c.is_whitespace() };
            if ends && !escaped {
                end = at;
                break;
            }
            escaped = c == '\\' && !escaped;
            if !escaped {
                value.push(c);
            }
        }
        let after = &body[end..];
        let after = if quoted.is_some() { after.strip_prefix('\'')? } else { after };
        let whole = &text[..text.len() - after.len()];
        Some(Self { whole, key: key.trim_end(), value, after })
    }
}

/// Percent-decodes a value of a URL.
fn decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = value.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, hex) {
            (b'%', Some(byte)) => {
                plain.push(byte);
                at += 3;
            }
            (byte, _) => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Verifies the certificate of a server, as far as configured.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    signed: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        match signed.verify_server_cert(certificate, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.trust == Trust::Signed => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (String, Trust, Option<String>) {
        let (rest, certificates) = certificates(url);
        (rest, certificates.trust, certificates.roots)
    }

    #[test]
    fn what_a_url_says_of_certificates_is_taken_out_of_it() {
        for (url, rest, trust, roots) in [
            ("postgres://u@h/d", "postgres://u@h/d", Trust::Anyone, None),
            ("postgres://u@h/d?sslmode=require", "postgres://u@h/d?sslmode=require", Trust::Anyone, None),
            (
                "postgres://u@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fa%20b.pem",
                "postgres://u@h/d?sslmode=require&connect_timeout=3",
                Trust::SignedForName,
                Some("/etc/a b.pem"),
            ),
            ("host=h  user=u", "host=h user=u ", Trust::Anyone, None),
            (
                "host = h sslrootcert='/etc/a \\'b.pem' sslmode = verify-ca dbname='d e'",
                "host = h  sslmode=require dbname='d e' ",
                Trust::Signed,
                Some("/etc/a 'b.pem"),
            ),
            ("nonsense", "nonsense", Trust::Anyone, None),
            ("host='open", "host='open", Trust::Anyone, None),
        ] {
            assert_eq!(read(url), (rest.to_owned(), trust, roots.map(str::to_owned)), "{url}");
        }
    }
}
