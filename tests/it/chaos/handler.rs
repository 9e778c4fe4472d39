//! The handler of the helper daemons: treats each item as it asks to be, and writes down what it did.

use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use foundationdb::{options::MutationType, tuple};
use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::sleep;

use super::{
    payload::{Name, Wish},
    records::{Act, Record},
};
use crate::support::{daemon_of_helper, reloadable, run_to_the_end};

/// In a helper's environment: the file of its configuration.
pub(super) const CONFIG: &str = "KVQUEUE_TEST_CHAOS_CONFIG";

/// In a helper's environment: it ends when there is nothing left to do.
pub(super) const UNTIL_EMPTY: &str = "KVQUEUE_TEST_CHAOS_UNTIL_EMPTY";

/// A daemon with this handler.
pub(super) fn run_daemon() {
    let Ok(path) = std::env::var(CONFIG) else { return };
    let Some(daemon) = daemon_of_helper(&std::fs::read_to_string(&path).unwrap()) else { return };
    let until_empty = std::env::var_os(UNTIL_EMPTY).is_some();
    let daemon = reloadable(daemon, path);
    run_to_the_end(daemon.handler("record", Recorder::from_config).until_empty(until_empty));
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Recorder {
    /// The directory of the records: a file for each process.
    records: PathBuf,
    /// Whether items can fail, and can be given back.
    leased: bool,
    /// Whether items can kill the process.
    poison: bool,
    /// How long slow items take: 0.4 to 1.4 times as long.
    slow_ms: u64,
    #[serde(skip)]
    calls: AtomicU64,
}

impl Recorder {
    fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        settings.parse()
    }

    /// Written at once, in one piece: what was written before a kill stays.
    fn note(&self, record: &Record) {
        let path = self.records.join(format!("{}", getpid().as_raw_pid()));
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{record}\n").as_bytes()).unwrap();
    }

    /// What is done about an item, and after how long.
    fn decide(&self, name: Name, attempt: u32) -> (Act, Duration) {
        let slow = Duration::from_millis(self.slow_ms);
        let odd = self.calls.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let act = match name.wish() {
            Wish::Slow(mille) => return (Act::Done, slow.mul_f64(mille as f64 / 1_000.0)),
            Wish::Poison if attempt == 1 && self.poison => Act::Crash,
            _ if !self.leased => Act::Done,
            Wish::Fail if attempt == 1 => Act::Fail,
            Wish::FailFor(pause) if attempt == 1 => Act::FailFor(pause),
            Wish::Hopeless => Act::Bury,
            Wish::Release if odd => Act::Release,
            _ => Act::Done,
        };
        (act, Duration::ZERO)
    }
}

#[kvqueue::async_trait]
impl Handler for Recorder {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let payload = String::from_utf8_lossy(&item.payload);
        let Ok(name) = payload.parse::<Name>() else {
            self.note(&Record::Nonsense(payload.chars().take(100).collect()));
            return Outcome::Done;
        };
        let (act, time) = self.decide(name, item.attempt);
        tokio::select! {
            () = context.cancelled.cancelled() => return Outcome::Release,
            () = sleep(time) => {}
        }
        if let Some(transaction) = context.transaction() {
            // Whatever becomes of the item: only what is done may have an effect.
            transaction.atomic_op(&effect(name), &1_u64.to_le_bytes(), MutationType::Add);
        }
        let failures = item.meta.as_ref().map_or(0, |meta| meta.failures.len());
        self.note(&Record::Handled { name, attempt: item.attempt, failures, act });
        match act {
            Act::Done => Outcome::Done,
            Act::Fail => Outcome::retry("on purpose"),
            Act::FailFor(pause) => Outcome::RetryAfter(pause, "on purpose".to_owned()),
            Act::Bury => Outcome::dead("hopeless"),
            Act::Release => Outcome::Release,
            Act::Crash => {
                kill_process(getpid(), Signal::KILL).unwrap();
                std::future::pending().await
            }
        }
    }
}

/// The counter of what was done for an item. Its tuple begins with a number, as no queue's does.
pub(super) fn effect(name: Name) -> Vec<u8> {
    let prefix = std::env::var("KVQUEUE_PREFIX").unwrap_or_default();
    let key = tuple::pack(&(EFFECTS, name.queue, name.producer, name.place));
    [prefix.as_bytes(), &key].concat()
}

/// The first element of the keys of all counters.
pub(super) const EFFECTS: i64 = 7;
