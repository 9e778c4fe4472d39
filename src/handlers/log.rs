//! `log`: writes each item to the log.

use std::borrow::Cow;

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
        tracing::info!(
            event = "item_logged",
            bytes = item.payload.len(),
            payload = &*beginning(&item.payload),
            "item"
        );
        Outcome::Done
    }
}

/// The first bytes of a payload, as text. Each form of the log escapes it in its own way.
fn beginning(payload: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&payload[..payload.len().min(SHOWN)])
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::testing::Kit;

    #[test]
    fn log_handler_accepts_any_payload() {
        let outcomes = block_on(Kit::new(Log).handle_all([&b"text"[..], b"", b"\xff\x00"]));
        assert_eq!(outcomes, vec![Outcome::Done; 3]);
    }

    #[test]
    fn long_payloads_are_cut() {
        assert_eq!(beginning(&[b'x'; 1000]).len(), SHOWN);
    }
}
