//! Programs for the tests of `tests/it/exactly_once.rs`.

use std::{sync::Once, time::Duration};

use fdb_embedded::{Faults, Network};

use foundationdb::{
    FdbError, RangeOption, Transaction,
    options::{MutationType, StreamingMode},
};

use futures::TryStreamExt;

use kvqueue::{BatchHandler, Context, Daemon, Event, Handler, Item, Outcome, Settings, SettingsError};

use crate::support::{argument, daemon_with, database, run_to_the_end};

const CONFIG: &str = "delivery = 'exactly-once'\nlease = '1s'\nconsumers = [ { k = 5, count = 4 } ]\n\
                      retry = { max-attempts = 1000, base = '10ms', max = '100ms' }";

/// The writes of handlers: a number for each item, and one for all, which they read and so conflict on.
struct Effects {
    prefix: String,
}

impl Effects {
    fn new() -> Self {
        Self { prefix: database().1 + "effects/" }
    }

    async fn write(&self, tr: &Transaction, item: &Item) -> Result<(), FdbError> {
        let of_item = [self.prefix.as_bytes(), b"item/", &item.payload].concat();
        tr.atomic_op(&of_item, &1_u64.to_le_bytes(), MutationType::Add);
        let of_all = [self.prefix.as_bytes(), b"all"].concat();
        let count = tr.get(&of_all, false).await?.map_or(0, |value| number(&value));
        tr.set(&of_all, &(count + 1).to_le_bytes());
        Ok(())
    }

    /// Every second item fails at its first attempt, after it has written.
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let tr = context.transaction().expect("the delivery is exactly-once");
        match self.write(tr, item).await {
            Err(error) => Outcome::retry(error),
            Ok(()) if item.attempt == 1 && item.payload.last().is_some_and(|digit| digit % 2 == 0) => {
                Outcome::retry("on purpose")
            }
            Ok(()) => {
                eprintln!("wrote");
                Outcome::Done
            }
        }
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

struct Each(Effects);

#[kvqueue::async_trait]
impl Handler for Each {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        self.0.handle(item, context).await
    }
}

/// All of a take in one transaction; an item that fails has not written.
struct Whole(Effects);

#[kvqueue::async_trait]
impl BatchHandler for Whole {
    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for item in items {
            outcomes.push(match item.attempt {
                1 if item.payload.last().is_some_and(|digit| digit % 2 == 0) => Outcome::retry("on purpose"),
                _ => self.0.handle(item, context).await,
            });
        }
        outcomes
    }
}

/// Takes longer than its lease, before it begins to write.
struct Slow(Effects);

#[kvqueue::async_trait]
impl Handler for Slow {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        self.0.handle(item, context).await
    }
}

/// Processes the queue in a storm, if there is a seed for one.
fn run_daemon(with: impl FnOnce(Daemon) -> Daemon) {
    let daemon = daemon_with(&format!("[queues.q]\nhandler = 'effects'\n{CONFIG}"));
    let (url, _) = database();
    let seed = argument(0).map(|seed| seed.parse().unwrap());
    let storm = Once::new();
    run_to_the_end(with(daemon).until_empty(true).observe(move |_, event| {
        if let (Event::Started, Some(seed)) = (event, seed) {
            storm.call_once(|| {
                let faults = Faults::seeded(seed).conflict(0.05).too_old(0.05);
                faults.unknown_committed(0.1).unknown_not_committed(0.1).install(&url).unwrap();
            });
        }
    }));
}

pub(crate) fn each() {
    run_daemon(|daemon| {
        daemon.handler("effects", |_: &Settings| Ok::<_, SettingsError>(Each(Effects::new())))
    });
}

pub(crate) fn whole() {
    run_daemon(|daemon| {
        daemon.batch_handler("effects", |_: &Settings| Ok::<_, SettingsError>(Whole(Effects::new())))
    });
}

pub(crate) fn slow() {
    run_daemon(|daemon| {
        daemon.handler("effects", |_: &Settings| Ok::<_, SettingsError>(Slow(Effects::new())))
    });
}

/// Prints the effects: for all items, how many items have one, and the largest.
pub(crate) fn effects() {
    let (url, _) = database();
    let prefix = Effects::new().prefix;
    let network = Network::start().unwrap();
    let db = foundationdb::Database::from_path(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = db.create_trx().unwrap();
        let all = tr.get(format!("{prefix}all").as_bytes(), false).await.unwrap();
        let [begin, end] = ["item/", "item0"].map(|end| format!("{prefix}{end}").into_bytes());
        let items = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((begin, end)) };
        let items: Vec<_> = tr.get_ranges_keyvalues(items, false).try_collect().await.unwrap();
        let most = items.iter().map(|row| number(row.value())).max();
        println!("\neffects {} {} {}", all.map_or(0, |all| number(&all)), items.len(), most.unwrap_or(0));
        if !prefix.starts_with("effects") {
            // On a cluster they would stay.
            tr.clear_range(prefix.as_bytes(), [prefix.as_bytes(), b"\xff"].concat().as_slice());
            tr.commit().await.unwrap();
        }
    });
    drop((db, network));
}
