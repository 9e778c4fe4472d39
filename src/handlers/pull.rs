//! `pull`: the items are for workers that lease them over HTTP. The daemon has no consumers for
//! such a queue.

use async_trait::async_trait;
use kvqueue_queue::Item;

use super::{Context, Handler, Outcome, Settings, SettingsError};

/// Leaves items to others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pull;

impl Pull {
    /// It has no settings.
    pub(crate) fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        settings.expect_none().map(|()| Self)
    }
}

#[async_trait]
impl Handler for Pull {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        Outcome::Release
    }
}
