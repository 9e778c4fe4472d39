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
        tracing::info!(bytes = item.payload.len(), payload = %beginning(&item.payload), "item");
        Outcome::Done
    }
}

/// How a payload begins, on one line and without anything that a terminal would act on.
fn beginning(payload: &[u8]) -> String {
    let shown = &payload[..payload.len().min(SHOWN)];
    String::from_utf8_lossy(shown).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::testing::Kit;

    #[test]
    fn whatever_it_is_it_is_logged() {
        let outcomes = block_on(Kit::new(Log).handle_all([&b"text"[..], b"", b"\xff\x00"]));
        assert_eq!(outcomes, vec![Outcome::Done; 3]);
    }

    #[test]
    fn a_line_stays_a_line_and_short() {
        assert_eq!(beginning(b"a\n\x1b[2J\xff"), "a\\n\\u{1b}[2J\u{fffd}");
        assert_eq!(beginning(&[b'x'; 1000]).len(), SHOWN);
    }
}
