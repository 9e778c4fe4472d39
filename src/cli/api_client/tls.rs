//! TLS to a daemon.

use std::{io, path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::{
    config::ConfigError,
    http::tls::{provider, read_chain},
};

/// For the configuration's own daemon: it must show the certificate of `http.tls-certificate`, whatever names that has.
pub(super) fn of_own_daemon(certificate: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let chain = read_chain(certificate).map_err(|problem| {
        let value = format_args!("\"{}\"", certificate.display());
        let fix = "name a PEM file with the certificate, which the command may read";
        ConfigError::value("http.tls-certificate", value, problem, fix)
    })?;
    let Some(expected) = chain.into_iter().next() else {
        return Err(anyhow::anyhow!("http.tls-certificate has no certificate"));
    };
    let provider = provider();
    let pinned = Pinned { expected, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
    Ok(Arc::new(config.with_no_client_auth()))
}

/// For a URL: by the authorities that the system trusts, or those in the file that `SSL_CERT_FILE` names.
pub(super) fn of_url() -> anyhow::Result<Arc<ClientConfig>> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        return Err(anyhow::anyhow!(
            "cannot use https: the system has no certificates of authorities{why}; install ca-certificates, or name a file in SSL_CERT_FILE"
        ));
    }
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Whether the two ends could not agree, most often because the certificate is not trusted.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Error>())
}

/// The error for a host that cannot be in a certificate.
pub(super) fn no_name(host: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{host:?} is not a host name"))
}

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let problem =
            "it is not the certificate in http.tls-certificate; if the file has changed, reload the daemon";
        Err(CertificateError::Other(rustls::OtherError(Arc::from(
            Box::<dyn std::error::Error + Send + Sync>::from(problem),
        )))
        .into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
