//! Where another configuration comes from, and what is made of it before anything changes.

use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc};

use super::{
    parts::{Parts, parts_to_run},
    reload::Plan,
};
use crate::{
    causes::with_causes,
    config::{Config, ConfigError},
    control::Refused,
    handlers::{AnyHandler, Registry},
};

type Load = dyn Fn() -> Result<Config, ConfigError> + Send + Sync;

/// Loads a daemon's configuration, again and again.
#[derive(Clone)]
pub(super) struct Loader {
    path: Option<PathBuf>,
    load: Arc<Load>,
}

/// All that is needed to take a configuration up.
pub(super) struct Prepared {
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) parts: Parts,
}

impl Loader {
    pub(super) fn new(
        path: Option<PathBuf>,
        load: impl Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self { path, load: Arc::new(load) }
    }

    /// The file, as messages name it.
    pub(super) fn path(&self) -> Option<String> {
        Some(self.path.as_ref()?.display().to_string())
    }

    /// Loads, checks, and makes what is new. May block: it reads files, and handlers do at their making what they like.
    pub(super) fn prepare(
        &self,
        old: &Config,
        registry: &Registry,
        mut handlers: BTreeMap<Arc<str>, AnyHandler>,
    ) -> Result<Prepared, Refused> {
        let config = (self.load)().map_err(|error| refused(&error))?;
        config.validate().map_err(|error| refused(&error))?;
        let plan = Plan::new(old, &config).map_err(|error| refused(&error))?;
        handlers.retain(|queue, _| plan.keeps_handler(queue));
        let parts = parts_to_run(&config, registry, &handlers).map_err(|error| refused(&error))?;
        super::warn(&parts);
        Ok(Prepared { config, plan, parts })
    }
}

/// The error with its causes, in a line.
fn refused(error: &(dyn Error + 'static)) -> Refused {
    Refused(with_causes(error))
}
