//! `kvqueue push`
//!
//! A thread reads the input; the command groups what has arrived and pushes it, one transaction after the other, since
//! their order is the order of the items. While a transaction is under way, the next group gathers.

mod input;
mod lines;
mod progress;
mod refusals;

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use kvqueue_queue::{BatchLimits, PushError, Session, batches};
use tokio::sync::mpsc;

use self::{
    input::{Chunk, Found, Input},
    progress::Progress,
    refusals::Refusals,
};
use super::{client::Client, globals::Globals, output};
use crate::{database::patiently, exit::Exit};

/// Push items onto a queue
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Push items onto a queue and print how many were acknowledged: these are stored durably.\n\n\
    Items go in in this order: arguments, lines, file. They are grouped into transactions, so a failure in the middle \
    leaves the acknowledged ones in the queue, and at most one transaction's worth beyond.\n\n\
    An item over FoundationDB's limit of 100000 bytes is refused and named on stderr; the rest of the input still goes \
    in, and the exit code is 65. With -v, stderr tells of each transaction: \"acknowledged N\", N being the total."
)]
pub(super) struct Args {
    /// The queue; it comes into being with its first item
    queue: OsString,
    /// Items
    payload: Vec<OsString>,
    /// Push each line of FILE, - for stdin, without its newline; an empty line is an empty item
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// Push the whole of FILE as one item
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        if self.payload.is_empty() && self.lines.is_none() && self.file.is_none() {
            let help = "nothing to push: give items as arguments, or --lines FILE, or --file FILE";
            return Err(super::UsageError(help.to_owned()).into());
        }
        let client = Client::open(globals)?;
        let queue = client.queue(&self.queue)?;
        let size = self.size();
        let input = Input {
            payloads: self.payload.into_iter().map(|payload| Bytes::from(payload.into_vec())).collect(),
            lines: self.lines,
            file: self.file,
        };
        let mut push = Push {
            client: &client,
            session: Client::session(queue.clone()),
            acknowledged: 0,
            refusals: Refusals::default(),
            progress: Progress::new(globals, size),
        };
        let pushed = client.wait(push.all(input.start()));
        push.progress.finish();
        let mut object = output::about(queue.name(), "acknowledged", push.acknowledged);
        object["refused"] = push.refusals.count().into();
        output::line(globals.json, format!("{} acknowledged", push.acknowledged).as_bytes(), &object)?;
        pushed?;
        client.wait(push.session.close(client.db())).context("pushed, but the session is not closed")?;
        Ok(push.refusals.exit())
    }

    /// How much there is to read, where that can be known.
    fn size(&self) -> Option<u64> {
        let lines = self.lines.as_deref().filter(|path| *path != Path::new(input::STDIN))?;
        std::fs::metadata(lines).ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
    }
}

struct Push<'a> {
    client: &'a Client,
    session: Session,
    acknowledged: u64,
    refusals: Refusals,
    progress: Progress,
}

impl Push<'_> {
    /// Pushes the input to its end. Where it ends in an error, what came before goes in first.
    async fn all(&mut self, mut input: mpsc::Receiver<io::Result<Chunk>>) -> anyhow::Result<()> {
        let limits = BatchLimits::default();
        let mut waiting = VecDeque::new();
        let mut broken = None;
        loop {
            if waiting.is_empty() {
                match (broken.take(), input.recv().await) {
                    (Some(error), _) => return Err(anyhow!("{error}")),
                    (None, None) => return Ok(()),
                    (None, Some(chunk)) => broken = self.sort(chunk, &mut waiting).err(),
                }
            }
            while waiting.len() < limits.max_items
                && let Ok(chunk) = input.try_recv()
            {
                broken = self.sort(chunk, &mut waiting).err();
            }
            if let Some(batch) = batches(&waiting, limits).next() {
                let pushed = self.push(&batch).await?;
                let bytes = waiting.drain(..pushed).map(|payload: Bytes| payload.len() + 1).sum();
                self.progress.acknowledged(self.acknowledged, bytes);
            }
        }
    }

    /// One transaction.
    async fn push(&mut self, batch: &[&Bytes]) -> anyhow::Result<usize> {
        match patiently(self.session.push(self.client.db(), batch)).await {
            Ok(pushed) => {
                self.acknowledged += pushed.items as u64;
                Ok(pushed.items)
            }
            Err(error) => Err(self.failure(error, batch.len())),
        }
    }

    fn sort(&mut self, chunk: io::Result<Chunk>, waiting: &mut VecDeque<Bytes>) -> io::Result<()> {
        for found in chunk? {
            match found {
                Found::Item(payload) => waiting.push_back(payload),
                Found::TooLong { what, bytes } => {
                    self.progress.suspend(|| self.refusals.refuse(&what, bytes));
                }
            }
        }
        Ok(())
    }

    fn failure(&self, error: PushError, pushed: usize) -> anyhow::Error {
        let maybe = if error.is_maybe_committed() { "; these may be in the queue all the same" } else { "" };
        anyhow::Error::new(error).context(format!(
            "the push of {pushed} items after the {} acknowledged ones failed{maybe}",
            self.acknowledged
        ))
    }
}
