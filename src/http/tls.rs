//! TLS: the certificate of `http.tls-certificate`, which a reload reads again.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::watch;

use super::OTHERS;
use crate::config::ConfigError;

/// A certificate with its private key.
#[derive(Clone)]
pub(crate) struct Certificate(Arc<CertifiedKey>);

impl Certificate {
    /// Reads both files.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, ConfigError> {
        let wrong = |name: &str, path: &Path, problem: &dyn fmt::Display, fix: &str| {
            ConfigError::value(name, format_args!("\"{}\"", path.display()), problem.to_string(), fix)
        };
        let chain = read_chain(certificate).map_err(|problem| {
            let fix = "name a PEM file with the certificate and the chain to its authority";
            wrong("http.tls-certificate", certificate, &problem, fix)
        })?;
        let wrong_key = |problem: &dyn fmt::Display| {
            let fix = "name a PEM file with the certificate's private key, which the daemon may read";
            wrong("http.tls-key", key, problem, fix)
        };
        if fs::metadata(key).is_ok_and(|found| found.mode() & OTHERS != 0) {
            let fix = format!("run chmod o= {}, and get a certificate with a new key", key.display());
            return Err(wrong("http.tls-key", key, &"other users can read or write it", &fix));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong_key(&error))?;
        let provider = ring::default_provider();
        let certified =
            CertifiedKey::from_der(chain, private, &provider).map_err(|error| wrong_key(&error))?;
        Ok(Self(Arc::new(certified)))
    }
}

/// The certificates in a PEM file. An error if there are none.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(chain) if chain.is_empty() => Err("it has no certificate".to_owned()),
        found => found.map_err(|error| format!("it cannot be read: {error}")),
    }
}

/// The algorithms in use: ring's, which need no other tools to build than a C compiler.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.0.cert == other.0.cert
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate(..)")
    }
}

/// Gives each new connection the newest certificate.
#[derive(Debug)]
struct Newest(watch::Receiver<Option<Certificate>>);

impl ResolvesServerCert for Newest {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|certificate| certificate.0.clone())
    }
}

/// The server's side of TLS.
pub(super) fn server(
    certificate: watch::Receiver<Option<Certificate>>,
) -> Result<ServerConfig, rustls::Error> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(config.with_no_client_auth().with_cert_resolver(Arc::new(Newest(certificate))))
}
