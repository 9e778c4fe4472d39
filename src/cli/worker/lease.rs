//! `kvqueue lease`

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use super::{
    daemons::{PATIENCE, Until, Urls},
    leased::Leased,
    queue_path, runtime,
};
use crate::{
    base::exit::Exit,
    cli::{client::Create, completions, globals::Globals, output, values},
    config::duration,
};

/// Lease items of a queue over HTTP, for a shell script that handles them
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Lease items of a queue over HTTP, for a shell script that handles them.\n\n\
    The first line is the lease. Each item follows as a line with its id, its attempt and its payload in base 64. Until the lease expires \
    nobody else gets the items: handle them and say how that ended with `kvqueue ack`, and prolong the lease with `kvqueue extend` \
    if that takes long. If nothing is ready, nothing is printed, and the exit code is 75.\n\n\
    With --json it prints the daemon's answer, which also has attributes.",
    after_help = "Example:\n  \
    kvqueue lease emails --wait 20s > leased && {\n    \
      read -r lease\n    \
      while read -r id attempt payload; do\n      \
        if printf %s \"$payload\" | base64 -d | ./send-mail; then how=--done; else how=--retry; fi\n      \
        kvqueue ack emails \"$lease\" $how \"$id\"\n    \
      done\n  \
    } < leased"
)]
pub(in crate::cli) struct Args {
    /// The queue
    #[arg(add = completions::queue())]
    queue: String,
    /// The most items, up to 1000
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::items, allow_negative_numbers = true)]
    max: NonZeroUsize,
    /// How long to wait if nothing is ready, up to 60s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
    /// How long the lease lasts without an extension, 1s to 24h [default: as the queue is
    /// configured]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lease: Option<Duration>,
    #[command(flatten)]
    create: Create,
    #[command(flatten)]
    urls: Urls,
}

impl Args {
    pub(in crate::cli) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let daemons =
            self.urls.daemons(globals, globals.start_to_ask(self.urls.are_given())?, "kvqueue-lease")?;
        let mut wanted =
            json!({ "max": self.max, "wait_ms": self.wait.as_millis(), "must_exist": !self.create.create });
        if let Some(lease) = self.lease {
            wanted["lease_ms"] = json!(lease.as_millis());
        }
        let patience = globals.timeout().unwrap_or(PATIENCE).saturating_add(self.wait);
        let path = queue_path(&self.queue) + "/lease";
        let (answer, asked_at) = runtime()?.block_on(async {
            daemons.reach(Until::RoundEnds).await?;
            daemons.post_timed(&path, &wanted, patience, Until::RoundEnds).await
        })?;
        let leased = Leased::read(&answer, asked_at).ok_or_else(|| daemons.garbled("it is not a lease"))?;
        if globals.json {
            output::line(true, b"", &answer)?;
        }
        match leased {
            None => {
                if !globals.quiet {
                    output::note(format_args!("nothing to lease"));
                }
                Ok(Exit::Nothing)
            }
            Some(leased) => {
                if !globals.json {
                    print(&leased)?;
                }
                Ok(Exit::Done)
            }
        }
    }
}

fn print(leased: &Leased) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    writeln!(out, "{}", leased.id)?;
    for item in &leased.items {
        writeln!(out, "{} {} {}", item.id, item.attempt, BASE64_STANDARD.encode(&item.payload))?;
    }
    out.flush()
}
