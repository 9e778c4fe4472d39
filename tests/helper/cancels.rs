//! Programs for the tests of `tests/it/cancels`.

use std::{
    fs::OpenOptions,
    io::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fdb_embedded::Network;
use foundationdb::{
    RangeOption,
    options::{MutationType, StreamingMode},
};
use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};
use tokio::time::sleep;

use crate::support::{argument, daemon_with, database, run_to_the_end};

/// How often a handler notes that it is at work.
const TICK: Duration = Duration::from_millis(50);

/// Notes when it is at work on an item, and writes an effect if it has a transaction. The payload is the time that it takes, in ms.
struct Ticks {
    log: String,
    effects: String,
}

impl Ticks {
    fn note(&self, item: &Item, what: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let line = format!("{} {now} {what}\n", item.id);
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.log)
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }
}

#[kvqueue::async_trait]
impl Handler for Ticks {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let ms: u64 = std::str::from_utf8(&item.payload).unwrap().parse().unwrap();
        for _ in 0..ms / TICK.as_millis() as u64 {
            self.note(item, "tick");
            tokio::select! {
                () = context.cancelled.cancelled() => return Outcome::retry("cancelled"),
                () = sleep(TICK) => {}
            }
        }
        if let Some(tr) = context.transaction() {
            let key = format!("{}{}", self.effects, item.id);
            tr.atomic_op(key.as_bytes(), &1_u64.to_le_bytes(), MutationType::Add);
            return Outcome::Done;
        }
        self.note(item, "end");
        Outcome::Done
    }
}

fn effects_prefix() -> String {
    database().1 + "effects/"
}

/// A daemon with the configuration, and the handler's log, in files that are named.
pub(crate) fn daemon() {
    let config = std::fs::read_to_string(argument(0).unwrap()).unwrap();
    let log = argument(1).unwrap();
    run_to_the_end(daemon_with(&config).handler("ticks", move |_: &Settings| {
        Ok::<_, SettingsError>(Ticks { log: log.clone(), effects: effects_prefix() })
    }));
}

/// Prints each item that has an effect, and how many.
pub(crate) fn effects() {
    let (url, _) = database();
    let prefix = effects_prefix();
    let _network = Network::start().unwrap();
    let db = foundationdb::Database::from_path(&url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = db.create_trx().unwrap();
        let end = [prefix.as_bytes(), b"\xff"].concat();
        let range = RangeOption {
            mode: StreamingMode::WantAll,
            ..RangeOption::from((prefix.as_bytes(), end.as_slice()))
        };
        let rows = tr.get_range(&range, 1, true).await.unwrap();
        assert!(!rows.more());
        for row in &rows {
            let number = u64::from_le_bytes(row.value().try_into().unwrap());
            println!("{} {number}", String::from_utf8_lossy(&row.key()[prefix.len()..]));
        }
    });
}
