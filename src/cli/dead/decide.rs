//! `kvqueue dead retry` and `kvqueue dead purge`

use anyhow::{Context, anyhow, bail};
use kvqueue_queue::{DeadLetterEffect, ItemId, Queue, RetryPolicy};
use serde_json::json;

use crate::{
    cli::{UsageError, client::Client, frozen, globals::Globals, named::Named, output, target::Target},
    exit::Exit,
};

/// Make dead letters items again, each at its own place, with all its attempts before it
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue dead retry [OPTIONS] <QUEUE> <ID>...\n       \
    kvqueue dead retry [OPTIONS] <QUEUE> --all")]
pub(in crate::cli) struct Retry {
    #[command(flatten)]
    which: Which,
}

/// Delete dead letters for good
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue dead purge [OPTIONS] --yes <QUEUE> <ID>...\n       \
    kvqueue dead purge [OPTIONS] --yes <QUEUE> --all")]
pub(in crate::cli) struct Purge {
    #[command(flatten)]
    which: Which,
    /// Yes, delete them for good
    #[arg(long)]
    yes: bool,
}

/// Which letters.
#[derive(Debug, clap::Args)]
struct Which {
    #[command(flatten)]
    target: Target,
    /// The letters
    #[arg(required_unless_present = "all", value_name = "ID")]
    ids: Vec<ItemId>,
    /// All letters of the queue
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

/// What to do with dead letters.
#[derive(Clone, Copy)]
enum Decision {
    Retry,
    Purge,
}

impl Decision {
    fn past(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Purge => "purged",
        }
    }
}

impl Retry {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        self.which.run(globals, Decision::Retry)
    }
}

impl Purge {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if !self.yes {
            let name = self.which.target.queue.display();
            let error = format!("this deletes dead letters of queue {name:?} for good; repeat it with --yes");
            return Err(UsageError(error).into());
        }
        self.which.run(globals, Decision::Purge)
    }
}

impl Which {
    fn run(&self, globals: &Globals, decision: Decision) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        frozen::check(&client, &queue)?;
        if self.all {
            all(&client, &queue, decision, globals.json)
        } else {
            self.some(&client, &queue, decision, globals.json)
        }
    }

    /// Each by itself: if one cannot be moved, the others are all the same.
    fn some(&self, client: &Client, queue: &Queue, decision: Decision, json: bool) -> anyhow::Result<Exit> {
        let mut named = Named::new("dead letters", decision.past(), json);
        for id in &self.ids {
            named.tell(
                id,
                match one(client, queue, decision, id)? {
                    DeadLetterEffect::Moved => None,
                    DeadLetterEffect::Gone => Some("there is no such dead letter"),
                    DeadLetterEffect::Refused => Some("another item has its unique key"),
                },
            );
        }
        named.exit()
    }
}

fn one(client: &Client, queue: &Queue, decision: Decision, id: &ItemId) -> anyhow::Result<DeadLetterEffect> {
    let (db, policy) = (client.db(), RetryPolicy::default());
    let fate = client.answer(async {
        match decision {
            Decision::Retry => queue.retry_dead(db, &policy, id).await,
            Decision::Purge => queue.purge_dead(db, &policy, id).await,
        }
    });
    client.wait(fate)?.context("the database refused")
}

fn all(client: &Client, queue: &Queue, decision: Decision, json: bool) -> anyhow::Result<Exit> {
    let (db, policy) = (client.db(), RetryPolicy::default());
    let all = client.ask_partly(async {
        match decision {
            Decision::Retry => queue.retry_all_dead(db, &policy).await,
            Decision::Purge => queue.purge_all_dead(db, &policy).await,
        }
    });
    let all = all?;
    let mut object = output::about(queue.name(), decision.past(), all.moved);
    object["refused"] = json!(all.refused);
    object["unreadable"] = json!(all.unreadable);
    let text = format!("{} {}", decision.past(), output::items_of(all.moved));
    // Not an io::Error outside: the reader that closed the pipe does not know what was done.
    output::line(json, text.as_bytes(), &object)
        .map_err(|error| anyhow!("{text}, which could not be printed: {error}"))?;
    let reasons = [
        (all.refused, "since other items have their unique keys"),
        (all.unreadable, "since they cannot be read"),
    ];
    let left: Vec<_> = reasons.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{why}: {n}")).collect();
    match left[..] {
        [] => Ok(Exit::Done),
        _ => bail!("dead letters not {}, {}", decision.past(), left.join(", ")),
    }
}
