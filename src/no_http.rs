//! Stands for `http` in a build without that feature: there is no server.

use std::path::Path;

use crate::{
    config::{ConfigError, Http, Listen},
    control::DaemonHandle,
};

/// A secret for HTTP. There is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {}

impl Token {
    /// Refuses the setting.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let value = format_args!("\"{}\"", path.display()).to_string();
        Err(ConfigError::value("http.token-file", value, "this program is built without HTTP", "remove it"))
    }
}

/// HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The configuration names an address.
    #[error("cannot listen for HTTP: this program is built without it; remove http.listen")]
    Absent,
}

/// A server that is never there.
#[derive(Debug)]
pub(crate) struct Server;

/// Starts nothing. A configuration that names an address is refused.
pub(crate) fn start(http: &Http, _: DaemonHandle) -> Result<Option<Server>, HttpError> {
    match http.listen {
        Listen::Auto | Listen::Off => Ok(None),
        _ => Err(HttpError::Absent),
    }
}
