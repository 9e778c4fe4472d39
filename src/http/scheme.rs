//! The scheme of a daemon's URL.

/// The scheme of a daemon's URL.
pub(super) fn scheme(is_tls: bool) -> &'static str {
    if is_tls { "https" } else { "http" }
}
