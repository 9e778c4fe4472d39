//! Stands for `http` in a build without that feature: there is no server.

mod handle;

pub(crate) use handle::DaemonHandle;

use crate::config::{Config, ConfigError, Http, Listen};

/// A secret for HTTP. There is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {}

/// A certificate for HTTP. There is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificate {}

/// The files of HTTP. There are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpFiles {
    pub(crate) token: Option<Token>,
    pub(crate) certificate: Option<Certificate>,
}

impl HttpFiles {
    /// Refuses settings that name files.
    pub(crate) fn read(config: &Config) -> Result<Self, ConfigError> {
        let files = [
            ("http.token-file", &config.http.token_file),
            ("http.tls-certificate", &config.http.tls_certificate),
        ];
        for (key, path) in files {
            if let Some(path) = path {
                let value = format!("\"{}\"", path.display());
                return Err(ConfigError::value(
                    key,
                    value,
                    "this program is built without HTTP",
                    "remove it",
                ));
            }
        }
        Ok(Self::default())
    }

    /// Makes nothing.
    pub(crate) fn make_missing(&mut self, _: &Config, _: &Listen) -> Result<(), ConfigError> {
        Ok(())
    }

    /// No file has changed.
    pub(crate) fn changes(&self, _: &Self) -> Vec<String> {
        Vec::new()
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

impl Server {
    /// It has no page.
    pub(crate) fn page_link(&self) -> Option<String> {
        None
    }
}

/// Starts nothing. A configuration that names an address is refused.
pub(crate) fn start(http: &Http, _: DaemonHandle) -> Result<Option<Server>, HttpError> {
    match http.listen {
        Listen::Auto | Listen::Off => Ok(None),
        _ => Err(HttpError::Absent),
    }
}
