//! The handler of the chaos test's daemons: treats each item as it asks to be, and writes down what it did.

use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use foundationdb::{options::MutationType, tuple};
use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::sleep;

use super::{
    payload::Name,
    records::{Act, Counts, Record},
};
use crate::support::{argument, daemon_with, reloadable, run_to_the_end};

/// A daemon with this handler. The arguments: the file of its configuration, and another one if it is to end
/// when there is nothing left to do.
pub(crate) fn daemon() {
    let path = argument(0).unwrap();
    let until_empty = argument(1).is_some();
    let daemon = daemon_with(&std::fs::read_to_string(&path).unwrap());
    let daemon = reloadable(daemon, path);
    run_to_the_end(daemon.handler("record", Recorder::from_config).until_empty(until_empty));
}

/// The handler's action on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    /// To be done.
    Done,
    /// It is done after this number of thousandths of its queue's time for slow items.
    Slow(u64),
    /// To fail at its first attempt.
    Fail,
    /// The same, with a pause that the handler names.
    FailFor(Duration),
    /// To be called hopeless.
    Hopeless,
    /// To be given back, now and then.
    Release,
    /// To kill its worker at its first attempt.
    Poison,
}

/// How an item is to be treated.
fn treatment(name: Name) -> Treatment {
    let mut random = name.random();
    match random.below(1_000) {
        0..=6 => Treatment::Slow(400 + random.below(1_000)),
        20..=49 => Treatment::Fail,
        50..=59 => Treatment::FailFor(random.time_below(Duration::from_millis(200))),
        60..=69 => Treatment::Hopeless,
        70..=79 => Treatment::Release,
        80 => Treatment::Poison,
        _ => Treatment::Done,
    }
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Recorder {
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

    /// That of a worker over HTTP, for slow items that take about so long.
    pub(super) fn of_worker(records: PathBuf, slow_ms: u64) -> Self {
        Self { records, leased: true, poison: false, slow_ms, calls: AtomicU64::new(0) }
    }

    /// Written at once, in one piece: what was written before a kill stays.
    pub(super) fn note(&self, record: &Record) {
        let path = self.records.join(format!("{}", getpid().as_raw_pid()));
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{record}\n").as_bytes()).unwrap();
    }

    /// The outcome of an item, and the time before it.
    pub(super) fn decide(&self, name: Name, attempt: u32) -> (Act, Duration) {
        let slow = Duration::from_millis(self.slow_ms);
        let odd = self.calls.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let act = match treatment(name) {
            Treatment::Slow(mille) => return (Act::Done, slow.mul_f64(mille as f64 / 1_000.0)),
            Treatment::Poison if attempt == 1 && self.poison => Act::Crash,
            _ if !self.leased => Act::Done,
            Treatment::Fail | Treatment::FailFor(_) if attempt == 1 => Act::Fail,
            Treatment::Hopeless => Act::Bury,
            Treatment::Release if odd => Act::Release,
            _ => Act::Done,
        };
        (act, Duration::ZERO)
    }
}

#[kvqueue::async_trait]
impl Handler for Recorder {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let payload = String::from_utf8_lossy(&item.payload);
        let Ok(name) = Name::read(&payload, item.attribute("schedule-time")) else {
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
        if let Some(counts) = Counts::of(|name| item.attribute(name)) {
            self.note(&Record::Called { name, counts });
        }
        let (at, id) = (now(), item.id.to_string());
        self.note(&Record::Handled { name, attempt: item.attempt, failures, act, at, id });
        match act {
            Act::Done => Outcome::Done,
            Act::Fail => match treatment(name) {
                Treatment::FailFor(pause) => Outcome::RetryAfter(pause, "on purpose".to_owned()),
                _ => Outcome::retry("on purpose"),
            },
            Act::Bury => Outcome::dead("hopeless"),
            Act::Release => Outcome::Release,
            Act::Crash => {
                kill_process(getpid(), Signal::KILL).unwrap();
                std::future::pending().await
            }
        }
    }
}

/// The time of the day, in ms since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The counter of what was done for an item. Its tuple begins with a number, as no queue's does.
pub(super) fn effect(name: Name) -> Vec<u8> {
    let prefix = std::env::var("KVQUEUE_PREFIX").unwrap_or_default();
    let key = tuple::pack(&(EFFECTS, name.queue, name.producer, name.place));
    [prefix.as_bytes(), &key].concat()
}

/// The first element of the keys of all counters.
pub(super) const EFFECTS: i64 = 7;
