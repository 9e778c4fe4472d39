//! The configuration in effect, and the files that it names.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    config::Config,
    http::{Certificate, HttpFiles, Token},
};

/// The active configuration. The control loop changes it; others follow it.
pub(crate) struct ActiveConfig {
    config: watch::Sender<Arc<Config>>,
    token: watch::Sender<Option<Token>>,
    certificate: watch::Sender<Option<Certificate>>,
    /// The files as the last start or reload read them. `token` may be newer.
    loaded: HttpFiles,
}

impl ActiveConfig {
    pub(crate) fn new(config: Config, loaded: HttpFiles) -> Self {
        let HttpFiles { token, certificate } = loaded.clone();
        let (token, certificate) = (watch::Sender::new(token), watch::Sender::new(certificate));
        Self { config: watch::Sender::new(Arc::new(config)), token, certificate, loaded }
    }

    /// The current configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.borrow().clone()
    }

    /// A receiver of each new configuration.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// The secret that clients must send. A guard that finds a new one in the file puts it here.
    pub(crate) fn token(&self) -> watch::Sender<Option<Token>> {
        self.token.clone()
    }

    /// The certificate for TLS.
    pub(crate) fn certificate(&self) -> watch::Receiver<Option<Certificate>> {
        self.certificate.subscribe()
    }

    /// The files as the last start or reload read them.
    pub(crate) fn loaded(&self) -> &HttpFiles {
        &self.loaded
    }

    /// Replaces the configuration, and the contents of the files that it names.
    pub(crate) fn replace(&mut self, config: Config, files: HttpFiles) {
        self.loaded.clone_from(&files);
        self.token.send_replace(files.token);
        self.certificate.send_replace(files.certificate);
        self.config.send_replace(Arc::new(config));
    }
}
