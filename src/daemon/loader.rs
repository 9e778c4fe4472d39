//! Loads another configuration and prepares everything that can fail before anything changes.

use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc};

use super::{configured::Configured, reload::Plan};
use crate::{
    causes::with_causes,
    config::{Config, ConfigError},
    control::CommandError,
    handlers::{AnyHandler, Registry},
};

type Load = dyn Fn() -> Result<Config, ConfigError> + Send + Sync;

/// The source of reloads.
#[derive(Clone)]
pub(super) struct Loader {
    path: Option<PathBuf>,
    load: Arc<Load>,
}

/// A valid configuration, ready to take effect.
pub(super) struct Prepared {
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) configured: Configured,
}

impl Loader {
    pub(super) fn new(
        path: Option<PathBuf>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self { path, load: Arc::new(load) }
    }

    /// The file's path for messages, if there is a file.
    pub(super) fn path(&self) -> Option<String> {
        Some(self.path.as_ref()?.display().to_string())
    }

    /// Loads and checks the configuration and makes new handlers. Blocks: it reads files, and a handler's `build`
    /// may do anything.
    pub(super) fn prepare(
        &self,
        old: &Config,
        registry: &Registry,
        mut handlers: BTreeMap<Arc<str>, AnyHandler>,
    ) -> Result<Prepared, CommandError> {
        let config = (self.load)().map_err(|error| refused(&error))?;
        config.validate().map_err(|error| refused(&error))?;
        let plan = Plan::new(old, &config).map_err(|error| refused(&error))?;
        handlers.retain(|queue, _| plan.keeps_handler(queue));
        let mut configured =
            Configured::to_run(&config, registry, &handlers).map_err(|error| refused(&error))?;
        configured.files.make_missing(&config, &config.http.listen).map_err(|error| refused(&error))?;
        configured.log_warnings();
        Ok(Prepared { config, plan, configured })
    }
}

/// The error with its causes, on one line.
fn refused(error: &(dyn Error + 'static)) -> CommandError {
    CommandError(with_causes(error))
}
