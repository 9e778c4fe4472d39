//! What the demo reports: which consumer got which items, and the table at the end.

use std::{
    collections::BTreeMap,
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::Item;
use serde_json::json;
use tokio::sync::watch;

use super::ITEMS;
use crate::{
    cli::output,
    handlers::{Context, Handler, Outcome},
};

/// The items that were consumed so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumed {
    /// Payloads by consumer, in order.
    by_consumer: BTreeMap<u64, Vec<Bytes>>,
}

impl Consumed {
    /// Items consumed by all.
    pub(super) fn items(&self) -> usize {
        self.by_consumer.values().map(Vec::len).sum()
    }
}

/// The demo's handler: it records the items that it gets.
#[derive(Clone)]
pub(super) struct Recorder {
    consumed: Arc<Mutex<Consumed>>,
    changed: watch::Sender<()>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { consumed: Arc::default(), changed: watch::Sender::new(()) }
    }

    /// Waits until the consumed items are as wanted, and returns them.
    pub(super) async fn until(&self, mut wanted: impl FnMut(&Consumed) -> bool) -> Consumed {
        let mut changes = self.changed.subscribe();
        loop {
            {
                let consumed = self.consumed();
                if wanted(&consumed) {
                    return consumed.clone();
                }
            }
            changes.changed().await.expect("the recorder holds the sender");
        }
    }

    fn write<T>(&self, note: impl FnOnce(&mut Consumed) -> T) {
        note(&mut self.consumed());
        self.changed.send_replace(());
    }

    /// The items that were consumed until now.
    pub(super) fn consumed(&self) -> MutexGuard<'_, Consumed> {
        self.consumed.lock().expect("nothing panics while it holds the lock")
    }
}

#[async_trait]
impl Handler for Recorder {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        self.write(|it| it.by_consumer.entry(context.consumer).or_default().push(item.payload.clone()));
        Outcome::Done
    }
}

/// The result of the demo.
pub(super) struct Report {
    /// Id and K of each consumer.
    pub(super) consumers: Vec<(u64, NonZeroUsize)>,
    pub(super) consumed: Consumed,
    /// Items left in the queue when it was deleted.
    pub(super) left: i64,
    pub(super) push_time: Duration,
    /// From the first push to the last consumer idle.
    pub(super) total_time: Duration,
}

impl Report {
    /// Every item consumed exactly once, none left.
    pub(super) fn is_clean(&self) -> bool {
        self.consumed.items() == ITEMS && self.duplicates() == 0 && self.losses() == 0 && self.left == 0
    }

    pub(super) fn print(&self, json: bool) -> io::Result<()> {
        output::line(json, self.table().to_string().as_bytes(), &self.object())
    }

    /// How often each pushed item was consumed.
    fn counts(&self) -> BTreeMap<Vec<u8>, usize> {
        let mut counts: BTreeMap<_, _> =
            (1..=ITEMS).map(|number| (number.to_string().into_bytes(), 0)).collect();
        for payload in self.consumed.by_consumer.values().flatten() {
            *counts.entry(payload.to_vec()).or_default() += 1;
        }
        counts
    }

    fn duplicates(&self) -> usize {
        self.counts().values().map(|count| count.saturating_sub(1)).sum()
    }

    fn losses(&self) -> usize {
        self.counts().values().filter(|count| **count == 0).count()
    }

    fn consumed_by(&self, consumer: u64) -> usize {
        self.consumed.by_consumer.get(&consumer).map_or(0, Vec::len)
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.add_row(["pushed".to_owned(), format!("{ITEMS} items, each in its own transaction")]);
        table.add_row(["push time".to_owned(), millis(self.push_time)]);
        table.add_row(["push rate".to_owned(), format!("{:.0} items/s", self.rate())]);
        table.add_row(["until consumed".to_owned(), millis(self.total_time)]);
        for (consumer, k) in &self.consumers {
            let items = format!("{} items", self.consumed_by(*consumer));
            table.add_row([format!("consumer {consumer} (K = {k})"), items]);
        }
        table.add_row(["duplicates".to_owned(), self.duplicates().to_string()]);
        table.add_row(["losses".to_owned(), self.losses().to_string()]);
        table
    }

    fn object(&self) -> serde_json::Value {
        let consumers: Vec<_> = self
            .consumers
            .iter()
            .map(
                |(consumer, k)| json!({ "consumer": consumer, "k": k, "items": self.consumed_by(*consumer) }),
            )
            .collect();
        json!({
            "pushed": ITEMS,
            "push_seconds": self.push_time.as_secs_f64(),
            "pushes_per_second": self.rate(),
            "total_seconds": self.total_time.as_secs_f64(),
            "consumers": consumers,
            "duplicates": self.duplicates(),
            "losses": self.losses(),
        })
    }

    fn rate(&self) -> f64 {
        ITEMS as f64 / self.push_time.as_secs_f64()
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn report(payloads: impl Iterator<Item = usize>) -> Report {
        let mut consumed = Consumed::default();
        consumed.by_consumer.insert(1, payloads.map(|number| Bytes::from(number.to_string())).collect());
        let time = Duration::from_secs(1);
        Report {
            consumers: vec![(1, NonZeroUsize::MIN)],
            consumed,
            left: 0,
            push_time: time,
            total_time: time,
        }
    }

    #[test]
    fn a_report_is_clean_only_if_each_item_was_consumed_once() {
        assert!(report(1..=ITEMS).is_clean());
        assert!(!report(2..=ITEMS).is_clean());
        assert!(!report((1..=ITEMS).chain(1..2)).is_clean());
        assert!(!report((2..=ITEMS).chain(2..3)).is_clean());
        assert!(!Report { left: 1, ..report(1..=ITEMS) }.is_clean());
    }

    #[test]
    fn duplicates_and_losses_are_counted() {
        let report = report((3..=ITEMS).chain(3..6));
        assert_eq!((report.duplicates(), report.losses()), (3, 2));
    }
}
