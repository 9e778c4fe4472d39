//! `kvqueue audit`

use std::{ffi::OsString, num::NonZeroUsize, os::unix::ffi::OsStringExt};

use super::{globals::Globals, operation::Runner, output, values};
use crate::{
    base::exit::Exit,
    operations::{
        Operation, Page, QueueName,
        audit::{ListAudit, ShownRecord},
    },
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
    /// Only records of then or later: a time ago, as in 2h or 7d, or a time in RFC 3339
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The most records to print: the newest
    #[arg(short, default_value = "100", value_parser = values::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
}

impl Args {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut list = ListAudit {
            queue: self.queue.map(|queue| QueueName(queue.into_vec())),
            since: self.since,
            // One more than wanted tells whether there are more.
            page: Page::new(self.n.saturating_add(1), None),
        };
        list.check()?;
        let (runner, mut records) = (Runner::open_for(None, globals)?, Vec::new());
        loop {
            let page = runner.ask(&list)?;
            let goes_on = list.go_on(&page);
            records.extend(page.records);
            if !goes_on {
                break;
            }
        }
        let is_more = records.len() > self.n.get();
        records.truncate(self.n.get());
        for ShownRecord(record) in records.iter().rev() {
            output::line(globals.json, record.line().as_bytes(), &record.json())?;
        }
        if is_more && !globals.quiet {
            output::note(format_args!("there are older records; see more with -n"));
        }
        Ok(Exit::Done)
    }
}
