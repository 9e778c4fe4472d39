//! `kvqueue audit`

use std::{ffi::OsString, num::NonZeroUsize, os::unix::ffi::OsStrExt, time::Duration};

use super::{client::Client, globals::Globals, output, values};
use crate::{
    audit::{AuditStore, Filter, Record},
    config::duration,
    consumer::clock,
    exit::Exit,
};

/// Print who changed a queue or the daemon, what, and when; the newest last
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print who changed a queue or the daemon, what, and when; the newest last.\n\n\
    A record is there for each pause, deletion, move, retry, reload and the like, over HTTP and by commands; docs/SECURITY.md has the list. \
    Pushing, handling and reading items leave none. Records are kept for audit-retention.",
    after_help = "Examples:\n  \
    kvqueue audit --since 2h\n  \
    kvqueue audit --queue emails -n 10"
)]
pub(super) struct Args {
    /// Only records about this queue, also of items that were moved to it
    #[arg(long, value_name = "QUEUE", add = super::completions::queue())]
    queue: Option<OsString>,
    /// Only records of this time until now, as in 2h or 7d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    since: Option<Duration>,
    /// The most records to print: the newest
    #[arg(short, default_value = "100", value_parser = values::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let store = &AuditStore::new(client.prefix());
        let before =
            |time: Duration| clock::now().saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let queue = self.queue.as_ref().map(|queue| queue.as_bytes().to_vec());
        let filter = &Filter { queue, since: self.since.map(before) };
        let (mut records, mut after) = (Vec::new(), None);
        loop {
            // One more than wanted tells whether there are more.
            let left = self.n.get().saturating_add(1) - records.len();
            let page = client.transact(|tr| async move {
                let page = store.page(&tr, after, filter, left).await;
                (tr, page)
            })?;
            records.extend(page.records);
            after = page.next;
            if after.is_none() || records.len() > self.n.get() {
                break;
            }
        }
        let more = records.len() > self.n.get();
        records.truncate(self.n.get());
        print(globals, &records)?;
        if more && !globals.quiet {
            output::note(format_args!("there are older records; see more with -n"));
        }
        Ok(Exit::Done)
    }
}

fn print(globals: &Globals, records: &[Record]) -> std::io::Result<()> {
    records.iter().rev().try_for_each(|it| output::line(globals.json, it.line().as_bytes(), &it.json()))
}
