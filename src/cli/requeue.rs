//! `kvqueue requeue`

use std::time::UNIX_EPOCH;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, bail};
use kvqueue_queue::{
    DeadLetterEffect, ItemId, ItemState, Queue, RetryPolicy, RetryRules, SweepCounts, Sweeper,
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    client::Client,
    globals::Globals,
    output::{self, Named},
    target::Target,
};
use crate::{audit::Action, config::QueueConfig, consumer::clock::version_history, exit::Exit, sweep};

/// Make items ready now: waiting ones, dead letters, those whose daemon died
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Make items ready now, each at its own place: waiting ones (scheduled or retrying) before their time, dead letters with all their attempts \
    before them. Items are named by their ids, or all of a state are meant; several states may be given.\n\n\
    With --expired, items are given back whose lease has expired, with the attempt spent, as daemons do at their next look. Items that a \
    running daemon has are not touched: leases that are past their deadline are watched for their length."
)]
#[command(override_usage = "kvqueue requeue [OPTIONS] <QUEUE> <ID>...\n       \
    kvqueue requeue [OPTIONS] <QUEUE> [--dead] [--waiting] [--expired]")]
#[group(id = "which", required = true, multiple = true)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// The items, scheduled, retrying or dead
    #[arg(value_name = "ID", group = "which", conflicts_with_all = ["dead", "waiting", "expired"])]
    ids: Vec<ItemId>,
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

/// The result for all items of some states.
#[derive(Default)]
struct RequeueCounts {
    requeued: usize,
    refused: usize,
    unreadable: usize,
    /// Items whose lease expired on their last attempt.
    died: usize,
}

/// The result for an item that was named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Requeued,
    Refused,
    Ready,
    Running,
    Unknown,
}

impl Effect {
    fn why(self) -> Option<&'static str> {
        match self {
            Self::Requeued => None,
            Self::Refused => Some("another item has its unique key"),
            Self::Ready => Some("it is ready already"),
            Self::Running => Some("it is running"),
            Self::Unknown => Some("there is no such waiting item or dead letter"),
        }
    }
}

impl Args {
    pub(super) fn audited(&self) -> Action {
        if self.ids.is_empty() { Action::QueueRequeue } else { Action::ItemRequeue }
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        client.check_not_frozen(&queue)?;
        if !self.ids.is_empty() {
            client.store(|record| record.about(queue.name()).with_items(&self.ids))?;
            return self.some(&client, &queue, globals.json);
        }
        client.store(|record| {
            let record = record.about(queue.name()).with("waiting", self.waiting).with("dead", self.dead);
            record.with("expired", self.expired)
        })?;
        let mut counts = RequeueCounts::default();
        if self.expired {
            counts.add_swept(give_back(&client, &queue, &self.target.settings(&client))?);
        }
        if self.waiting {
            let done = hasten(&client, &queue, None)?;
            counts.requeued += done.moved;
            counts.unreadable += done.unreadable;
        }
        if self.dead {
            let policy = RetryPolicy::default();
            let done = client.ask_partly(queue.retry_all_dead(client.db(), &policy, None))?;
            counts.requeued += done.moved;
            counts.refused += done.refused;
            counts.unreadable += done.unreadable;
        }
        counts.print(&queue, globals.json)
    }

    /// Each by itself: if one cannot be requeued, the others are all the same.
    fn some(&self, client: &Client, queue: &Queue, json: bool) -> anyhow::Result<Exit> {
        let effects = effects(client, queue, &self.ids)?;
        let mut named = Named::new("items", "requeued", json);
        for id in &self.ids {
            named.print(id, effects.get(id).copied().unwrap_or(Effect::Unknown).why());
        }
        named.exit()
    }
}

/// How often leases are looked at that are past their deadline.
const LOOK_SOON: Duration = Duration::from_millis(1);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A wait as long as this is explained.
const WORTH_A_WORD: Duration = Duration::from_secs(2);

const REFUSED: &str = "the database refused; some of them may be done";

fn effects(client: &Client, queue: &Queue, ids: &[ItemId]) -> anyhow::Result<BTreeMap<ItemId, Effect>> {
    let policy = RetryPolicy::default();
    let (mut effects, mut others) = (BTreeMap::new(), BTreeSet::new());
    for id in ids.iter().collect::<BTreeSet<_>>() {
        let effect = client.ask_partly(queue.retry_dead(client.db(), &policy, id))?;
        match effect {
            DeadLetterEffect::Moved => drop(effects.insert(id.clone(), Effect::Requeued)),
            DeadLetterEffect::Refused => drop(effects.insert(id.clone(), Effect::Refused)),
            DeadLetterEffect::Gone => drop(others.insert(id.clone())),
        }
    }
    if others.is_empty() {
        return Ok(effects);
    }
    let hastened = hasten(client, queue, Some(&others))?.ids;
    for id in others {
        let effect = if hastened.contains(&id) {
            Effect::Requeued
        } else {
            let found = client.transact(|tr| async {
                let found = queue.view_item(&tr, &id).await;
                (tr, found)
            })?;
            match found.map(|found| found.state) {
                Some(ItemState::Ready) => Effect::Ready,
                Some(ItemState::Running) => Effect::Running,
                _ => Effect::Unknown,
            }
        };
        effects.insert(id, effect);
    }
    Ok(effects)
}

fn hasten(
    client: &Client,
    queue: &Queue,
    wanted: Option<&BTreeSet<ItemId>>,
) -> anyhow::Result<kvqueue_queue::Requeued> {
    let policy = RetryPolicy::default();
    client.ask_partly(queue.requeue_scheduled(client.db(), &policy, wanted, None))
}

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

impl RequeueCounts {
    fn add_swept(&mut self, moved: SweepCounts) {
        self.requeued += moved.returned;
        self.died += moved.dead;
    }

    fn print(&self, queue: &Queue, json: bool) -> anyhow::Result<Exit> {
        let mut object = output::about(queue.name(), "requeued", self.requeued);
        object["refused"] = json!(self.refused);
        object["unreadable"] = json!(self.unreadable);
        object["died"] = json!(self.died);
        let mut text = format!("requeued {}", output::items_of(self.requeued));
        if self.died > 0 {
            text += &format!("; {} had no attempt left and are dead letters", self.died);
        }
        output::line(json, text.as_bytes(), &object)?;
        match (self.refused, self.unreadable) {
            (0, 0) => Ok(Exit::Done),
            (refused, 0) => {
                bail!("dead letters not requeued, since other items have their unique keys: {refused}")
            }
            (0, unreadable) => bail!("items not requeued, since they cannot be read: {unreadable}"),
            (refused, unreadable) => bail!(
                "items not requeued: {refused} dead letters, since other items have their unique keys; and {unreadable} others, \
                 since they cannot be read"
            ),
        }
    }
}
