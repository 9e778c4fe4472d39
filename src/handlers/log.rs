//! `log`: writes each item to the log.

use async_trait::async_trait;
use kvqueue_queue::Item;

use super::{Context, Handler, Outcome, Settings, SettingsError};

/// The most of a payload that one log line shows, in bytes.
const SHOWN: usize = 200;

/// Logs each item: its size and how the payload begins. Queue and stamp are in the item's span.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Log {
    /// It has no settings.
    pub fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        settings.expect_none().map(|()| Self)
    }
}

#[async_trait]
impl Handler for Log {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        let shown = &item.payload[..item.payload.len().min(SHOWN)];
        tracing::info!(
            bytes = item.payload.len(),
            payload = %String::from_utf8_lossy(shown).escape_debug(),
            "item"
        );
        Outcome::Done
    }
}
