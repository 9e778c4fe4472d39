//! Pushing all items in one transaction, or none: what an idempotency key or a unique key is for.

use std::io;

use anyhow::anyhow;
use kvqueue_queue::{MAX_PUSHES, NewItem, PAYLOAD_CEILING};
use tokio::sync::mpsc;

use super::{Push, input::Chunk};
use crate::cli::UsageError;

/// The most bytes, unless it is a single item: with room for the records of the push.
const MAX_BYTES: usize = PAYLOAD_CEILING;

impl Push<'_> {
    /// Reads the input to its end and pushes it. Where an item is refused, or the input ends in an error, nothing is pushed.
    pub(super) async fn whole(&mut self, mut input: mpsc::Receiver<io::Result<Chunk>>) -> anyhow::Result<()> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while let Some(chunk) = input.recv().await {
            for found in chunk.map_err(|error| anyhow!("{error}"))? {
                let Some(payload) = self.accept(found) else { continue };
                let item = self.item(&payload);
                bytes += item.weight();
                items.push(item);
                self.check(&items, bytes)?;
            }
        }
        if self.refusals.count() > 0 || items.is_empty() {
            return Ok(());
        }
        self.push(&items).await?;
        self.progress.done(self.account.acknowledged, bytes);
        Ok(())
    }

    fn check(&self, items: &[NewItem], bytes: usize) -> Result<(), UsageError> {
        if items.len() < 2 {
            return Ok(());
        }
        if self.template.unique.is_some() {
            let problem =
                "--unique is for a single item; push several one by one, each with a key of its own";
            return Err(UsageError(problem.to_owned()));
        }
        if bytes > MAX_BYTES || items.len() > MAX_PUSHES {
            return Err(UsageError(format!(
                "--idempotency-key is for what fits into one transaction: up to {MAX_PUSHES} items and {MAX_BYTES} bytes, with some hundred \
                 added for each item; push it in parts, each with an id of its own"
            )));
        }
        Ok(())
    }
}
