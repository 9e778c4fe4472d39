//! The cryptography of TLS.

/// Selects ring as the cryptography of TLS in this process, unless the program has selected another.
pub(crate) fn install_provider() {
    // It fails if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
