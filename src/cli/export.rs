//! `kvqueue export`

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use kvqueue_queue::{
    Counts, DeadLetter, Item, ItemId, Meta, Queue, QueueError, ScheduledItem, State, StoredItem,
};
use serde_json::json;

use super::{
    client::Client,
    globals::Globals,
    ndjson::{self, Header, Tally},
    output,
    progress::{Progress, Size},
    target::Target,
};
use crate::base::{clock::now, exit::Exit};

/// The most items of one transaction. More could be too much to read within its five seconds.
const PAGE: NonZeroUsize = NonZeroUsize::new(250).expect("250 is not 0");

/// Write a queue's items as lines of JSON, and leave them in it
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Write a queue's items as lines of JSON, with all that is known of them, and leave them in it; `kvqueue import` reads that. \
    docs/TRANSFER.md describes each line.\n\n\
    Running items are not written. A queue that is used meanwhile is exported as it changes: an item whose time comes may be there twice, and one \
    that is running and then retried may be missing. Pause the queue for an export of one moment."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Items of these states
    #[arg(long, value_enum, default_value = "all")]
    state: Which,
    /// Write to FILE, which is there when all of it is; without it, to stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Ready,
    /// Scheduled and retrying items, which are not due yet
    Waiting,
    Dead,
    All,
}

/// How many items of each state were written.
#[derive(Debug, Default)]
struct Written {
    ready: u64,
    waiting: u64,
    dead: u64,
    unreadable: u64,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        let counts = client.transact(|tr| async {
            let counts = queue.counts(&tr).await;
            (tr, counts)
        })?;
        let mut place = Place::new(self.output.as_deref())?;
        let mut export = Export {
            client: &client,
            // In the order of keys, so that an import into such a queue gives the items the same order again.
            queue: queue.in_order_of_keys(),
            out: BufWriter::new(place.writer()?),
            tally: Tally::new(),
            written: Written::default(),
            progress: Progress::new(globals, "exported", Size::Items(self.state.size(&counts))),
        };
        let written = export.write(&queue, self.state);
        export.progress.finish();
        let Export { written: exported, out, .. } = export;
        drop(out);
        written?;
        let total = exported.ready + exported.waiting + exported.dead;
        if let Some(path) = &self.output {
            place.keep()?;
            let mut object = output::about(queue.name(), "exported", total);
            object["ready"] = json!(exported.ready);
            object["waiting"] = json!(exported.waiting);
            object["dead"] = json!(exported.dead);
            object["running"] = json!(counts.running);
            output::line(
                globals.json,
                format!("exported {} to {}", output::items_of(total), path.display()).as_bytes(),
                &object,
            )?;
        }
        if counts.running > 0 && !globals.quiet {
            output::note(format_args!("kvqueue: running items, which are not exported: {}", counts.running));
        }
        match exported.unreadable {
            0 => Ok(Exit::Done),
            unreadable => {
                bail!("items not exported, since they cannot be read: {unreadable}; the others are exported")
            }
        }
    }
}

impl Which {
    fn states(self) -> &'static [&'static str] {
        match self {
            Self::Ready => &["ready"],
            Self::Waiting => &["waiting"],
            Self::Dead => &["dead"],
            Self::All => &["waiting", "ready", "dead"],
        }
    }

    fn has(self, one: Self) -> bool {
        self == Self::All || self == one
    }

    fn size(self, counts: &Counts) -> u64 {
        let of = |which, count| if self.has(which) { u64::try_from(count).unwrap_or(0) } else { 0 };
        of(Self::Ready, counts.ready) + of(Self::Waiting, counts.waiting) + of(Self::Dead, counts.dead)
    }
}

struct Export<'a> {
    client: &'a Client,
    queue: Queue,
    out: BufWriter<Box<dyn Write>>,
    tally: Tally,
    written: Written,
    progress: Progress,
}

impl Export<'_> {
    fn write(&mut self, queue: &Queue, which: Which) -> anyhow::Result<()> {
        let header = Header::line(queue, which.states(), &output::time(now()));
        self.tally.add_line(header.as_bytes());
        writeln!(self.out, "{header}")?;
        // In this order one whose time comes meanwhile is there twice, and not missing.
        if which.has(Which::Waiting) {
            self.waiting()?;
        }
        if which.has(Which::Ready) {
            self.ready()?;
        }
        if which.has(Which::Dead) {
            self.dead()?;
        }
        writeln!(self.out, "{}", self.tally.end())?;
        Ok(self.out.flush()?)
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        let mut after: Option<ItemId> = None;
        let mut most = PAGE;
        loop {
            let page = self.client.transact(|tr| async {
                let page = match self.queue.peek_after(&tr, after.as_ref(), most).await {
                    Err(QueueError::UnreadableItem { id, key }) => {
                        Ok(Err((id.clone(), QueueError::UnreadableItem { id, key })))
                    }
                    page => page.map(Ok),
                };
                (tr, page)
            })?;
            let page = match page {
                Ok(page) => page,
                // The items in front of it are in smaller pages.
                Err(_) if most > NonZeroUsize::MIN => {
                    most = NonZeroUsize::new(most.get() / 2).unwrap_or(NonZeroUsize::MIN);
                    continue;
                }
                Err((id, why)) => {
                    self.pass_over("item", &id, &why.to_string());
                    (after, most) = (Some(id), PAGE);
                    continue;
                }
            };
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id.clone());
            self.written.ready += page.len() as u64;
            for Item { id, payload, meta, .. } in page {
                self.item(&id, payload, meta, State::Ready)?;
            }
            self.show_progress();
        }
    }

    fn waiting(&mut self) -> anyhow::Result<()> {
        let mut after: Option<(SystemTime, ItemId)> = None;
        loop {
            let page = self.client.transact(|tr| async {
                let place = after.as_ref().map(|(due, id)| (*due, id));
                let page = self.queue.scheduled_after(&tr, place, PAGE).await;
                (tr, page)
            })?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some((last.due, last.id.clone()));
            for ScheduledItem { due, id, item } in page {
                match item {
                    Ok(Item { payload, meta, .. }) => {
                        self.written.waiting += 1;
                        self.item(&id, payload, meta, State::Later(due))?;
                    }
                    Err(why) => self.pass_over("waiting item", &id, &why),
                }
            }
            self.show_progress();
        }
    }

    fn dead(&mut self) -> anyhow::Result<()> {
        let mut after: Option<ItemId> = None;
        loop {
            let page = self.client.transact(|tr| async {
                let page = self.queue.dead_after(&tr, after.as_ref(), PAGE).await;
                (tr, page)
            })?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id.clone());
            for DeadLetter { id, payload, unreadable, meta, .. } in page {
                if let Some(why) = unreadable {
                    self.pass_over("dead letter", &id, &why);
                    continue;
                }
                self.written.dead += 1;
                self.item(&id, payload.unwrap_or_default(), Some(meta), State::Dead)?;
            }
            self.show_progress();
        }
    }

    fn pass_over(&mut self, what: &str, id: &ItemId, why: &str) {
        self.written.unreadable += 1;
        output::note(format_args!("kvqueue: {what} {id} is not exported: {why}"));
    }

    fn item(
        &mut self,
        id: &ItemId,
        payload: bytes::Bytes,
        meta: Option<Arc<Meta>>,
        state: State,
    ) -> anyhow::Result<()> {
        let meta = meta.map(Arc::unwrap_or_clone).unwrap_or_default();
        let item = StoredItem { payload, meta, state, priority: self.queue.priority(id), key: id.key() };
        let line = ndjson::line(id, &item).context("an item cannot be written as JSON")?;
        self.tally.add_item(line.as_bytes());
        Ok(writeln!(self.out, "{line}")?)
    }

    fn show_progress(&mut self) {
        self.progress.done(self.tally.items(), 0);
    }
}

/// Where it goes. A file has another name until it is whole.
struct Place<'a> {
    path: Option<&'a Path>,
    /// The name of a file that is not whole yet.
    unfinished: Option<PathBuf>,
}

impl<'a> Place<'a> {
    fn new(path: Option<&'a Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self { path: None, unfinished: None }) };
        // A pipe or a device has no other name, and /dev/stdout is a link.
        let special = std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
        if special {
            return Ok(Self { path: Some(path), unfinished: None });
        }
        let name = path.file_name().with_context(|| format!("{} is no name of a file", path.display()))?;
        let mut unfinished = name.to_owned();
        unfinished.push(".unfinished");
        Ok(Self { path: Some(path), unfinished: Some(path.with_file_name(unfinished)) })
    }

    fn writer(&self) -> anyhow::Result<Box<dyn Write>> {
        let Some(path) = self.unfinished.as_deref().or(self.path) else { return Ok(Box::new(io::stdout())) };
        let file = if self.unfinished.is_some() {
            File::create(path)
        } else {
            File::options().write(true).truncate(true).open(path)
        };
        Ok(Box::new(file.with_context(|| format!("cannot write {}", path.display()))?))
    }

    /// The export is complete: it gets its name, durably.
    fn keep(&mut self) -> anyhow::Result<()> {
        let (Some(path), Some(unfinished)) = (self.path, self.unfinished.take()) else { return Ok(()) };
        let keep = || {
            File::open(&unfinished)?.sync_all()?;
            std::fs::rename(&unfinished, path)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        keep().with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // It is of no use; and if it cannot be removed, its name says what it is.
            let _ = std::fs::remove_file(unfinished);
        }
    }
}
