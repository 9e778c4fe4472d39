//! How the input of a push is divided into transactions: as it comes, or all in one for an idempotency key or a unique key.

use std::{collections::VecDeque, io};

use anyhow::anyhow;
use bytes::Bytes;
use kvqueue_queue::{NewItem, PAYLOAD_CEILING, batches_by};
use tokio::{runtime, sync::mpsc};

use super::{Push, input::Chunk};
use crate::cli::UsageError;

/// The items that have been read and not pushed yet.
#[derive(Debug, Default)]
struct Waiting {
    payloads: VecDeque<Bytes>,
    bytes: usize,
}

impl Push {
    /// Pushes the input: as it comes, or all at once.
    pub(super) fn run(
        &mut self,
        input: mpsc::Receiver<io::Result<Chunk>>,
        whole: bool,
    ) -> anyhow::Result<()> {
        // The futures of a client and of a daemon's client can be waited for by any runtime. Theirs are inside what is changed here.
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { if whole { self.whole(input).await } else { self.stream(input).await } })
    }

    /// Pushes the input to its end. Where it ends in an error, what came before goes in first.
    async fn stream(&mut self, mut input: mpsc::Receiver<io::Result<Chunk>>) -> anyhow::Result<()> {
        let limits = self.way.limits();
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
                self.push(&batch, false).await?;
                let bytes = batch.iter().map(|item| item.payload.len()).sum::<usize>();
                waiting.payloads.drain(..batch.len());
                waiting.bytes -= bytes;
                self.progress.done(self.counts.acknowledged, bytes + batch.len());
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

/// The most bytes, unless it is a single item: with room for the records of the push.
const MAX_BYTES: usize = PAYLOAD_CEILING;

impl Push {
    /// Reads the input to its end and pushes it. Where an item is refused, or the input ends in an error, nothing is pushed.
    async fn whole(&mut self, mut input: mpsc::Receiver<io::Result<Chunk>>) -> anyhow::Result<()> {
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
        self.push(&items, true).await?;
        self.progress.done(self.counts.acknowledged, bytes);
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
        let most = self.way.most();
        if bytes > MAX_BYTES || items.len() > most {
            return Err(UsageError(format!(
                "--idempotency-key is for what fits into one transaction: up to {most} items and {MAX_BYTES} bytes, with some hundred \
                 added for each item; push it in parts, each with a key of its own"
            )));
        }
        Ok(())
    }
}
