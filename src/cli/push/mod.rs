//! `kvqueue push`
//!
//! A thread reads the input; the command groups what has arrived and pushes it, one transaction after the other, since
//! their order is the order of the items. While a transaction is under way, the next group gathers.

mod after;
mod input;
mod item_options;
mod report;
mod transactions;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use kvqueue_queue::{NewItem, PAYLOAD_CEILING, PushError, PushOptions, Queue, Session};

use self::{
    after::AfterOptions,
    input::{Found, Input},
    item_options::ItemOptions,
    report::{PushCounts, Refusals},
};
use super::{
    DataError, UsageError,
    client::{Client, frozen},
    globals::Globals,
    line_reader::{STDIN, read_file},
    output,
    progress::{Progress, Size},
    target::Target,
};
use crate::{consumer::clock, database::Refused, exit::Exit};

/// Push items onto a queue
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Push items onto a queue, and print how many were acknowledged, which are stored durably, and the ids of up to 20.\n\n\
    Items go in in this order: arguments, lines, file. They are grouped into transactions, so a failure in the middle \
    leaves the acknowledged ones in the queue, and at most one transaction's worth beyond.\n\n\
    An item over the limit (8 MiB, or the queue's max-payload) is refused and named on stderr; the rest of the input still \
    goes in, and the exit code is 65. With -v, stderr tells of each transaction: \"acknowledged N\", N being the total.\n\n\
    With --idempotency-key, all of it goes in at once, and only if no push had this key before: a push whose end you did not \
    see may be repeated. Other items under an id that was used are refused, and the exit code is 65. An item over the limit then keeps all of it out.\n\n\
    With --after, one item waits, as the callback of a batch, until the items with these ids have ended, whichever way; its attributes say how. A daemon that processes its queue \
    pushes it then. `kvqueue batch show`, `list` and `cancel` are for it while it waits."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Items
    payload: Vec<OsString>,
    /// Push each line of FILE, - for stdin, without its newline; an empty line is an empty item
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
    /// Push the whole of FILE as one item, - for stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Push only if no push had this key before; the queue remembers keys for its idempotency-window
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<OsString>,
    /// Make the database in ./kvqueue-data, if nothing names another one
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    item_options: ItemOptions,
    #[command(flatten)]
    after: AfterOptions,
}

impl Args {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        if self.payload.is_empty() && self.lines.is_none() && self.file.is_none() {
            let help = "nothing to push: give items as arguments, or --lines FILE, or --file FILE";
            return Err(UsageError(help.to_owned()).into());
        }
        let is_stdin = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new(STDIN));
        if is_stdin(&self.lines) && is_stdin(&self.file) {
            let problem = "--lines - and --file - both read stdin, which can be read once; leave one out";
            return Err(UsageError(problem.to_owned()).into());
        }
        self.item_options.check()?;
        if let Some(past) = self.item_options.past(clock::now()).filter(|_| !globals.quiet) {
            output::note(format_args!("kvqueue: --at {past} is in the past, so the items are ready at once"));
        }
        let client = Client::open_or_create(globals, Some(self.create))?;
        let queue = self.target.open(&client)?;
        let limit = self.target.max_payload(&client);
        if self.after.is_given() {
            return self.push_after(&client, &queue, globals.json);
        }
        let ttl = self.target.settings(&client).ttl;
        let size = self.size();
        let input = Input {
            payloads: self.payload.into_iter().map(|payload| Bytes::from(payload.into_vec())).collect(),
            lines: self.lines,
            file: self.file,
            limit,
        };
        let whole = self.idempotency_key.is_some() || self.item_options.is_unique();
        let ids = whole || self.item_options.is_delayed();
        let mut options = PushOptions::default().with_max_payload(limit);
        options.idempotency_key = self.idempotency_key.map(OsString::into_vec);
        let mut push = Push {
            client: &client,
            session: Session::new(queue.clone()),
            options,
            template: self.item_options.template(clock::now(), ttl),
            counts: PushCounts::default(),
            refusals: Refusals::new(limit),
            progress: Progress::new(globals, "acknowledged", Size::Bytes(size)),
        };
        let input = input.start();
        let pushed =
            client.wait(async { if whole { push.whole(input).await } else { push.stream(input).await } });
        push.progress.finish();
        let printed = match &pushed {
            Err(error) if error.is::<UsageError>() => Ok(()),
            _ => {
                let object = push.counts.object(queue.name(), push.refusals.count(), ids);
                output::line(globals.json, push.counts.text().as_bytes(), &object)
            }
        };
        pushed?;
        client.ask(push.session.close(client.db())).context("pushed, but the session is not closed")?;
        // Not an io::Error outside: the reader that closed the pipe does not know what was pushed.
        printed.map_err(|error| anyhow!("{}, which could not be printed: {error}", push.counts.sum()))?;
        Ok(push.refusals.exit(if whole { "nothing was pushed" } else { "everything else was pushed" }))
    }

    /// Pushes one item after others.
    fn push_after(self, client: &Client, queue: &Queue, json: bool) -> anyhow::Result<Exit> {
        let mut payloads: Vec<Vec<u8>> = self.payload.into_iter().map(OsString::into_vec).collect();
        if let Some(file) = &self.file {
            let read = read_file(file, PAYLOAD_CEILING);
            payloads.push(read.with_context(|| format!("cannot read {}", file.display()))?);
        }
        let [payload] = <[_; 1]>::try_from(payloads).map_err(|payloads| {
            let len = payloads.len();
            UsageError(format!(
                "{len} items are to be pushed --after others, and one is possible; push each with its own --after"
            ))
        })?;
        let mut callback = self.item_options.template(clock::now(), None);
        callback.payload = payload.into();
        // The sweeper sets it when it pushes the item.
        callback.enqueued_at = None;
        self.after.push(client, queue, callback, json)
    }

    /// How much there is to read, where that can be known.
    fn size(&self) -> Option<u64> {
        let lines = self.lines.as_deref().filter(|path| *path != Path::new(STDIN))?;
        std::fs::metadata(lines).ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
    }
}

struct Push<'a> {
    client: &'a Client,
    session: Session,
    options: PushOptions,
    /// The fields that all items share.
    template: NewItem,
    counts: PushCounts,
    refusals: Refusals,
    progress: Progress,
}

impl Push<'_> {
    fn item(&self, payload: &Bytes) -> NewItem {
        let mut item = self.template.clone();
        item.payload = payload.clone();
        item
    }

    /// The payload that was found, unless it is refused.
    fn accept(&mut self, found: Found) -> Option<Bytes> {
        match found {
            Found::Item(payload) => Some(payload),
            Found::TooLong { what, bytes } => {
                self.progress.suspend(|| self.refusals.refuse(&what, bytes));
                None
            }
        }
    }

    /// One transaction.
    async fn push(&mut self, items: &[NewItem]) -> anyhow::Result<()> {
        let pushed =
            self.client.answer(self.session.push_items(self.client.db(), items, &self.options)).await;
        match pushed {
            Ok(Ok(pushed)) => self.counts.add(&pushed),
            Ok(Err(error)) => return Err(self.failure(error, items.len())),
            Err(error) => return Err(anyhow::Error::new(error).context(self.unsure(items.len()))),
        }
        Ok(())
    }

    /// This number of items, and what was pushed before them.
    fn behind(&self, items: usize) -> String {
        match self.counts.acknowledged {
            0 => output::items_of(items),
            done => format!("{} after the {done} pushed before", output::items_of(items)),
        }
    }

    /// The number of items of a push of unknown outcome.
    fn unsure(&self, items: usize) -> String {
        format!("the push of {} failed; these may be in the queue all the same", self.behind(items))
    }

    fn failure(&self, error: PushError, items: usize) -> anyhow::Error {
        let done = self.counts.acknowledged;
        if let Some(pause) = error.frozen().filter(|_| !error.is_maybe_committed()) {
            let before = (done > 0).then(|| format!("{done} were pushed before, nothing since"));
            return frozen(self.session.queue(), pause, before.as_deref());
        }
        if let Some(reused) = error.idempotency_key_reused() {
            return DataError(reused.to_string()).into();
        }
        if let Some(refused) = error.batch_refused() {
            return match done {
                0 => anyhow!("{refused}; nothing was pushed"),
                _ => anyhow!("{refused}; {done} were pushed before, nothing since"),
            };
        }
        match error {
            PushError::Retry(error) if error.is_out_of_space() => anyhow!(
                "cannot push {}: {}",
                self.behind(items),
                Refused::why(&self.client.config().database).text(),
            ),
            PushError::Retry(_) | PushError::Queue(_) | PushError::TransactionTooLarge { .. } => {
                let context = match error.is_maybe_committed() {
                    true => self.unsure(items),
                    false => format!("the push of {} failed", self.behind(items)),
                };
                anyhow::Error::new(error).context(context)
            }
            // The shared fields exceed a limit.
            refused => UsageError(refused.to_string()).into(),
        }
    }
}
