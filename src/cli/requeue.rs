//! `kvqueue requeue`

use std::{
    ffi::OsString,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use kvqueue_queue::{ItemId, Queue, RetryPolicy, RetryRules, SweepCounts, Sweeper};
use serde_json::json;
use tokio::time::sleep;

use super::{
    UsageError,
    client::Client,
    globals::Globals,
    operation::{self, Runner},
    output,
    target::Target,
};
use crate::{
    base::{clock::version_history, exit::Exit},
    config::QueueConfig,
    operations::{
        Operation,
        items::{RequeueItem, RequeueItems},
    },
    sweep,
};

/// Make items ready now: waiting ones, dead letters, those whose daemon died
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Make items ready now, each at its own place: waiting ones (scheduled or retrying) before their time, dead letters with all their attempts \
    before them. Items are named by their ids, or all of a state are meant; several states may be given.\n\n\
    With --expired, items are given back whose lease has expired, with the attempt spent, as daemons do at their next look. Items that a \
    running daemon has are not touched: leases that are past their deadline are watched for their length. This is done on the database itself, not by the URL \
    of a daemon."
)]
#[command(override_usage = "kvqueue requeue [OPTIONS] <QUEUE> <ID>...\n       \
    kvqueue requeue [OPTIONS] <QUEUE> --unique <KEY>\n       \
    kvqueue requeue [OPTIONS] <QUEUE> [--dead] [--waiting] [--expired]")]
#[group(id = "which", required = true, multiple = true)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// The items, scheduled, retrying or dead
    #[arg(value_name = "ID", group = "which", conflicts_with_all = ["dead", "waiting", "expired"])]
    ids: Vec<ItemId>,
    /// The item that has this unique key; a dead letter has none
    #[arg(long, value_name = "KEY", group = "which", conflicts_with_all = ["ids", "dead", "waiting", "expired"])]
    unique: Option<OsString>,
    /// All dead letters
    #[arg(long, group = "which")]
    dead: bool,
    /// All scheduled and retrying items
    #[arg(long, group = "which")]
    waiting: bool,
    /// The items of all leases that have expired
    #[arg(long, group = "which")]
    expired: bool,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let target = self.target.of_operation();
        if !self.ids.is_empty() || self.unique.is_some() {
            let which = (&target, &*self.ids, self.unique.as_deref());
            return operation::run_each(which, ("items", "requeued"), |item| RequeueItem { item }, globals);
        }
        let runner = Runner::open_for(RequeueItems::ROUTE.audit, globals)?;
        if self.expired {
            self.give_back_expired(&runner, globals)?;
        }
        let requeue = RequeueItems { target, waiting: self.waiting, dead: self.dead };
        match self.waiting || self.dead {
            true => operation::run_in(&runner, requeue, globals),
            false => Ok(Exit::Done),
        }
    }

    /// Gives back the items of leases that have expired.
    fn give_back_expired(&self, runner: &Runner, globals: &Globals) -> anyhow::Result<()> {
        let Runner::Here(client) = runner else {
            let problem = "--expired is done on the database itself; daemons give back items of expired leases by themselves";
            return Err(UsageError(problem.to_owned()).into());
        };
        let queue = self.target.find_there(client)?;
        client.check_not_frozen(&queue)?;
        client.store(|record| record.about(queue.name()).with("expired", true))?;
        let SweepCounts { returned, dead, .. } = give_back(client, &queue, &self.target.settings(client))?;
        let mut object = output::about(queue.name(), "items", returned);
        object["done"] = json!("requeued");
        object["died"] = json!(dead);
        let mut text = format!("requeued {} of expired leases", output::items_of(returned));
        if dead > 0 {
            text += &format!("; {dead} had no attempt left and are dead letters");
        }
        output::line(globals.json, text.as_bytes(), &object)
            .map_err(|error| anyhow!("{text}, which could not be printed: {error}"))
    }
}

/// How often leases are looked at that are past their deadline.
const LOOK_SOON: Duration = Duration::from_millis(1);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A wait as long as this is explained.
const WORTH_A_WORD: Duration = Duration::from_secs(2);

const REFUSED: &str = "the database refused; some of them may be done";

/// Does what a daemon's sweeper does about leases that have expired. Where another sweeper is at
/// it, that one does it.
///
/// Versions may have jumped, so it watches leases that seem to have expired for their length: if
/// nobody extends them, their holders are gone.
fn give_back(client: &Client, queue: &Queue, settings: &QueueConfig) -> anyhow::Result<SweepCounts> {
    let rules = sweep::rules(settings);
    // An operator does not wait for the pause of a crashed item.
    let retry = RetryRules { base: Duration::ZERO, ..rules.retry };
    let rules = rules.with_lease(Duration::ZERO).with_policy(RetryPolicy::default()).with_retry(retry);
    let mut sweeper = Sweeper::new(queue.clone(), version_history());
    let (mut moved, mut is_noted) = (SweepCounts::default(), false);
    client.wait(async {
        loop {
            // In 1970 no scheduled item is due.
            let swept = client.answer(sweeper.sweep(client.db(), &|| UNIX_EPOCH, &rules)).await?.context(REFUSED)?;
            moved += swept.moved;
            if let Some(trouble) = swept.trouble {
                return Err(trouble).context(REFUSED);
            }
            if swept.moved.is_nothing() && swept.doubtful == 0 {
                return Ok(moved);
            }
            if swept.moved.is_nothing() {
                if swept.next >= WORTH_A_WORD && !std::mem::replace(&mut is_noted, true) {
                    output::note(format_args!(
                        "kvqueue: waiting to see whether daemons extend leases that are past their deadline: {}, {} s or more",
                        swept.doubtful,
                        swept.next.as_secs()
                    ));
                }
                sleep(swept.next.clamp(LOOK_SOON, LOOK_AGAIN)).await;
            }
        }
    })
}
