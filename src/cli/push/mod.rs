//! `kvqueue push`
//!
//! A thread reads the input; the command groups what has arrived and pushes it, one transaction after the other, since
//! their order is the order of the items. While a transaction is under way, the next group gathers.

mod after;
mod input;
mod item_options;
mod report;
mod transactions;
mod way;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use kvqueue_queue::{NewItem, PAYLOAD_CEILING, PushOptions, Session};

use self::{
    after::AfterOptions,
    input::{Found, Input},
    item_options::ItemOptions,
    report::{PushCounts, Refusals},
    way::{PushKey, Way, is_too_long},
};
use super::{
    UsageError,
    api_client::ApiClient,
    batch::new::{make_at, make_in, print_made},
    client::Client,
    globals::Globals,
    line_reader::{STDIN, read_file},
    output,
    progress::{Progress, Size},
    target::Target,
};
use crate::{
    base::{clock, exit::Exit},
    operations::{batches::NewBatchBody, push::ItemFields},
};

/// Push items onto a queue
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Push items onto a queue, and print how many were acknowledged, which are stored durably, and the ids of up to 20.\n\n\
    Items go in in this order: arguments, lines, file. They are grouped into transactions, so a failure in the middle \
    leaves the acknowledged ones in the queue, and at most one transaction's worth beyond.\n\n\
    An item over the limit (8 MiB, or the queue's max-payload) is refused and named on stderr; the rest of the input still \
    goes in, and the exit code is 65. With -v, stderr tells of each transaction: \"acknowledged N\", N being the total.\n\n\
    With --idempotency-key, all of it goes in at once, and only if no push had this key before: a push whose end you did not \
    see may be repeated. Other items under a key that was used are refused, and the exit code is 65. By the URL of a daemon that is 1,000 items at most. An item over the limit then keeps all of it out.\n\n\
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
        if let Some(past) = self.item_options.past(clock::now()).filter(|_| !globals.quiet) {
            output::note(format_args!("kvqueue: --at {past} is in the past, so the items are ready at once"));
        }
        let fields = self.item_options.clone().fields()?;
        match ApiClient::of_database(globals)? {
            Some(daemon) => self.over_http(globals, daemon, fields),
            None => self.directly(globals, fields),
        }
    }

    fn directly(self, globals: &Globals, fields: ItemFields) -> anyhow::Result<Exit> {
        if self.after.is_given() {
            let batch = self.after(fields)?;
            let client = Client::open_or_create(globals, Some(self.create))?;
            let (queue, layout) = (self.target.open(&client)?, self.target.of_operation().layout);
            return print_made(&make_in(&client, &queue, layout, batch)?, globals);
        }
        let client = Client::open_or_create(globals, Some(self.create))?;
        let queue = self.target.open(&client)?;
        let (limit, ttl) = (self.target.max_payload(&client), self.target.settings(&client).ttl);
        let mut options = PushOptions::default().with_max_payload(limit);
        options.idempotency_key = self.idempotency_key.clone().map(OsString::into_vec);
        let session = Box::new(Session::new(queue));
        let way = Way::Database { client: Box::new(client), session, options };
        self.push(globals, way, fields, (limit, ttl))
    }

    fn over_http(self, globals: &Globals, daemon: ApiClient, fields: ItemFields) -> anyhow::Result<Exit> {
        let is_text = |text: &OsString| text.to_str().map(str::to_owned);
        let idempotency_key = self.idempotency_key.as_ref().map(|key| {
            is_text(key).ok_or_else(|| UsageError("over HTTP the idempotency key has to be UTF-8".to_owned()))
        });
        let (path, idempotency_key) = (self.target.path_at_daemon("/items")?, idempotency_key.transpose()?);
        if self.after.is_given() {
            let queue = self.target.queue.clone();
            return print_made(&make_at(&daemon, &queue, &self.after(fields)?)?, globals);
        }
        let of_items = Box::new(fields.clone());
        let way = Way::Daemon {
            daemon: Box::new(daemon),
            path,
            fields: of_items,
            key: PushKey::new(idempotency_key),
        };
        // A daemon knows the queue's own limit.
        self.push(globals, way, fields, (PAYLOAD_CEILING, None))
    }

    /// Pushes the input. `limit` is the longest payload, and `ttl` the queue's.
    fn push(
        self,
        globals: &Globals,
        way: Way,
        fields: ItemFields,
        (limit, ttl): (usize, Option<Duration>),
    ) -> anyhow::Result<Exit> {
        let size = self.size();
        let whole = self.idempotency_key.is_some() || fields.is_unique();
        let ids = whole || fields.is_delayed();
        let input = Input {
            payloads: self.payload.into_iter().map(|payload| Bytes::from(payload.into_vec())).collect(),
            lines: self.lines,
            file: self.file,
            limit,
        };
        let mut push = Push {
            way,
            template: fields.template(clock::now(), ttl).map_err(UsageError)?,
            counts: PushCounts::default(),
            refusals: Refusals::new(limit),
            progress: Progress::new(globals, "acknowledged", Size::Bytes(size)),
        };
        let (input, name) = (input.start(), self.target.queue.into_vec());
        let pushed = push.run(input, whole);
        push.progress.finish();
        let printed = match &pushed {
            Err(error) if error.is::<UsageError>() => Ok(()),
            _ => {
                let object = push.counts.object(&name, push.refusals.count(), ids);
                output::line(globals.json, push.counts.text().as_bytes(), &object)
            }
        };
        pushed?;
        push.way.close()?;
        // Not an io::Error outside: the reader that closed the pipe does not know what was pushed.
        printed.map_err(|error| anyhow!("{}, which could not be printed: {error}", push.counts.sum()))?;
        Ok(push.refusals.exit(if whole { "nothing was pushed" } else { "everything else was pushed" }))
    }

    /// The batch that pushes the item after others.
    fn after(&self, fields: ItemFields) -> anyhow::Result<NewBatchBody> {
        let mut payloads: Vec<Vec<u8>> = self.payload.iter().cloned().map(OsString::into_vec).collect();
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
        Ok(self.after.batch(fields.with_payload(&payload)))
    }

    /// How much there is to read, where that can be known.
    fn size(&self) -> Option<u64> {
        let lines = self.lines.as_deref().filter(|path| *path != Path::new(STDIN))?;
        std::fs::metadata(lines).ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
    }
}

struct Push {
    way: Way,
    /// The fields that all items share.
    template: NewItem,
    counts: PushCounts,
    refusals: Refusals,
    progress: Progress,
}

impl Push {
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

    /// One transaction. A daemon refuses all items if one is longer than its queue allows: then each goes by itself.
    async fn push(&mut self, items: &[NewItem], is_whole: bool) -> anyhow::Result<()> {
        let pushed = self.way.push(items, &mut self.counts).await;
        match pushed {
            Err(error) if !is_whole && is_too_long(&error) => {}
            pushed => return pushed,
        }
        for item in items {
            match self.way.push(slice::from_ref(item), &mut self.counts).await {
                Err(error) if is_too_long(&error) => {
                    let refusals = &mut self.refusals;
                    self.progress.suspend(|| refusals.refuse_by_daemon(item.payload.len()));
                }
                pushed => pushed?,
            }
        }
        Ok(())
    }
}
