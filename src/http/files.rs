//! The contents of the files that the settings of `[http]` name. A reload reads them again.

use super::{Token, tls::Certificate};
use crate::config::{Config, ConfigError, Listen};

/// The operator's secret, and the certificate for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpFiles {
    pub(crate) token: Option<Token>,
    pub(crate) certificate: Option<Certificate>,
}

impl HttpFiles {
    /// Reads the files. The secret's file may be missing: the daemon makes it.
    pub(crate) fn read(config: &Config) -> Result<Self, ConfigError> {
        let path = config.http.token_path(&config.database);
        let token = path.as_deref().map(Token::read).transpose()?.flatten();
        let files = config.http.tls_certificate.as_deref().zip(config.http.tls_key.as_deref());
        let certificate = files.map(|(certificate, key)| Certificate::read(certificate, key)).transpose()?;
        Ok(Self { token, certificate })
    }

    /// Makes the file of the secret if a daemon that listens there needs it and it is missing.
    pub(crate) fn make_missing(&mut self, config: &Config, listen: &Listen) -> Result<(), ConfigError> {
        if self.token.is_some() || *listen == Listen::Off {
            return Ok(());
        }
        let Some(path) = config.http.token_path(&config.database) else {
            let needs_place = config.http.needs_token() && config.http.require_token.is_none();
            if !needs_place {
                return Ok(());
            }
            let problem = "there is no directory for the operator's secret, as HOME is not set";
            let fix = "name a file, which the daemon makes; or set http.require-token = true, and use access tokens only";
            return Err(ConfigError::value("http.token-file", "(not set)", problem, fix));
        };
        self.token = Some(Token::make(&path)?);
        tracing::info!(
            event = "secret_created",
            file = %path.display(),
            "made a secret for HTTP; commands and `kvqueue page` use it"
        );
        Ok(())
    }

    /// The settings whose files differ from these.
    pub(crate) fn changes(&self, other: &Self) -> Vec<String> {
        let token = (self.token != other.token).then_some("http.token-file (contents)");
        let certificate =
            (self.certificate != other.certificate).then_some("http.tls-certificate (contents)");
        token.into_iter().chain(certificate).map(str::to_owned).collect()
    }
}
