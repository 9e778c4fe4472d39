//! Pushing items as they come, in as many transactions as it takes.

use std::{collections::VecDeque, io};

use anyhow::anyhow;
use bytes::Bytes;
use kvqueue_queue::{BatchLimits, NewItem, batches_by};
use tokio::sync::mpsc;

use super::{Push, input::Chunk};

/// The items that have been read and not pushed yet.
#[derive(Debug, Default)]
struct Waiting {
    payloads: VecDeque<Bytes>,
    bytes: usize,
}

impl Push<'_> {
    /// Pushes the input to its end. Where it ends in an error, what came before goes in first.
    pub(super) async fn stream(
        &mut self,
        mut input: mpsc::Receiver<io::Result<Chunk>>,
    ) -> anyhow::Result<()> {
        let limits = BatchLimits::default();
        let mut waiting = Waiting::default();
        let mut broken = None;
        loop {
            if waiting.payloads.is_empty() {
                match (broken.take(), input.recv().await) {
                    (Some(error), _) => return Err(anyhow!("{error}")),
                    (None, None) => return Ok(()),
                    (None, Some(chunk)) => broken = self.sort(chunk, &mut waiting).err(),
                }
            }
            while waiting.payloads.len() < limits.max_items
                && waiting.bytes < limits.max_bytes
                && let Ok(chunk) = input.try_recv()
            {
                broken = self.sort(chunk, &mut waiting).err();
            }
            let items = waiting.payloads.iter().map(|payload| self.item(payload));
            if let Some(batch) = batches_by(items, limits, NewItem::weight).next() {
                self.push(&batch).await?;
                let bytes = batch.iter().map(|item| item.payload.len()).sum::<usize>();
                waiting.payloads.drain(..batch.len());
                waiting.bytes -= bytes;
                self.progress.done(self.account.acknowledged, bytes + batch.len());
            }
        }
    }

    fn sort(&mut self, chunk: io::Result<Chunk>, waiting: &mut Waiting) -> io::Result<()> {
        for payload in chunk?.into_iter().filter_map(|found| self.accept(found)) {
            waiting.bytes += payload.len();
            waiting.payloads.push_back(payload);
        }
        Ok(())
    }
}
