//! `kvqueue import`

mod group;
mod store;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use kvqueue_queue::Queue;
use serde_json::Value;

use self::{group::Groups, store::ImportCounts};
use super::{
    client::Client,
    globals::Globals,
    line_reader::STDIN,
    ndjson::{Damage, Reader},
    output::{self, note},
    progress::{Progress, Size},
    target::Target,
};
use crate::base::exit::Exit;

/// Add the items of an export to a queue
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Add the items of an export to a queue, with their attempts, failures and attributes: ready ones, delayed ones, and dead letters. \
    They get new ids, in the order of the file.\n\n\
    An import that was interrupted may be repeated, and so may one that was not: items that are already in are not added again, as long as the \
    queue remembers them (idempotency-window). --again adds them a second time.\n\n\
    A file is looked through first, and if a line is damaged nothing is imported; what comes through a pipe goes in as far as it is whole. \
    Either way the exit code is 65, as it is where items stay out because others have their unique keys."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// The export, - for stdin
    #[arg(short, long, value_name = "FILE", default_value = STDIN)]
    input: PathBuf,
    /// Import what there is before the first damaged line, or before the place where it was cut off
    #[arg(long)]
    partial: bool,
    /// Import what was imported before, too
    #[arg(long)]
    again: bool,
}

/// Reading and storing.
struct Import<'a> {
    client: &'a Client,
    queue: &'a Queue,
    max_payload: usize,
    partial: bool,
    /// Makes the names of groups others than before.
    again: bool,
    counts: ImportCounts,
    progress: Progress,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open_or_create(globals, None)?;
        let queue = self.target.open(&client)?;
        // Before the input is checked, which may take long.
        client.check_not_frozen(&queue)?;
        let size = self.size();
        let mut import = Import {
            client: &client,
            queue: &queue,
            max_payload: self.target.max_payload(&client),
            partial: self.partial,
            again: self.again,
            counts: ImportCounts::default(),
            progress: Progress::new(globals, "imported", Size::Bytes(size)),
        };
        if size.is_some()
            && !self.partial
            && let Err(damage) = import.check(self.reader()?)
        {
            let damage = damage.of_the_data()?;
            note(format_args!("kvqueue: {damage}; nothing was imported"));
            return Ok(Exit::Data);
        }
        let input = self.input.display().to_string();
        client.store(|record| record.about(queue.name()).with("input", input).with("again", self.again))?;
        let done = import.run(self.reader()?, globals.quiet);
        import.progress.finish();
        let Import { counts, .. } = import;
        let printed = self.print(&counts, &queue, globals.json);
        let damage = match done {
            Ok(()) => None,
            Err(Problem::Damage(damage)) => Some(damage.of_the_data()?),
            Err(Problem::Database(error)) => return Err(error),
        };
        printed?;
        Ok(self.exit(damage.as_ref(), &counts))
    }

    /// How long a file is that can be read twice.
    fn size(&self) -> Option<u64> {
        let path = Some(&self.input).filter(|path| *path != Path::new(STDIN))?;
        std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|found| found.len())
    }

    fn reader(&self) -> anyhow::Result<(Box<dyn BufRead>, String)> {
        if self.input == Path::new(STDIN) {
            return Ok((Box::new(BufReader::new(io::stdin())), "stdin".to_owned()));
        }
        let name = self.input.display().to_string();
        let file = File::open(&self.input).with_context(|| format!("cannot read {name}"))?;
        Ok((Box::new(BufReader::new(file)), name))
    }

    fn print(&self, counts: &ImportCounts, queue: &Queue, json: bool) -> anyhow::Result<()> {
        let text = counts.text();
        let object: Value = counts.object(queue.name());
        // Not an io::Error outside: the reader that closed the pipe does not know what was imported.
        output::line(json, text.as_bytes(), &object)
            .map_err(|error| anyhow!("{text}, which could not be printed: {error}"))
    }

    fn exit(&self, damage: Option<&Damage>, counts: &ImportCounts) -> Exit {
        match damage {
            None => {}
            Some(damage) if self.partial => {
                note(format_args!("kvqueue: {damage}; what comes before is imported"));
            }
            Some(damage) if counts.imported + counts.before == 0 => {
                note(format_args!("kvqueue: {damage}; nothing was imported"));
                return Exit::Data;
            }
            Some(damage) => {
                note(format_args!(
                    "kvqueue: {damage}; some of the items before it are imported, and are not added again when you import the whole export"
                ));
                return Exit::Data;
            }
        }
        if counts.duplicates == 0 {
            return Exit::Done;
        }
        note(format_args!(
            "kvqueue: items left out, since others have their unique keys: {}",
            counts.duplicates
        ));
        Exit::Data
    }
}

/// Why an import ended early.
enum Problem {
    Damage(Damage),
    Database(anyhow::Error),
}

impl From<Damage> for Problem {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl Import<'_> {
    /// Reads it all, and stores nothing.
    fn check(&self, (from, name): (Box<dyn BufRead>, String)) -> Result<(), Damage> {
        let mut reader = Reader::new(from, name)?;
        while let Some(record) = reader.next()? {
            group::fit(record, self.queue, self.max_payload).map_err(|problem| reader.wrong(problem))?;
        }
        Ok(())
    }

    fn run(&mut self, (from, name): (Box<dyn BufRead>, String), quiet: bool) -> Result<(), Problem> {
        let reader = Reader::new(from, name)?;
        if !quiet && reader.header.kind == "priority" && reader.header.kind != self.queue.kind().to_string() {
            note(format_args!(
                "kvqueue: this is an export of a priority queue, and the queue is none: the items go in in the order of the file"
            ));
        }
        if !quiet && reader.header.kind == "keyed" && reader.header.kind != self.queue.kind().to_string() {
            note(format_args!(
                "kvqueue: this is an export of a keyed queue, and the queue is none: the items go in without their keys, key by key"
            ));
        }
        let mut groups = Groups::new(reader, self.queue, self.max_payload, self.partial, self.again);
        while let Some(group) = groups.next()? {
            let stored = store::store(self.client, self.queue, &group, self.max_payload);
            self.counts.add(&group, stored.map_err(|error| Problem::Database(self.counts.failure(error)))?);
            self.progress.done(self.counts.imported + self.counts.before, group.bytes);
        }
        groups.end().map_or(Ok(()), |damage| Err(Problem::Damage(damage)))
    }
}
