//! Programs for the tests of `tests/it/sharing.rs`.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kvqueue::{Context, Event, Handler, Item, Outcome, Settings, SettingsError};

use tokio::sync::Notify;

use crate::support::{argument, daemon_with, run_to_the_end};

/// Handles items at once, but one of them only when all others are handled.
struct Late {
    others: usize,
    handled: Arc<AtomicUsize>,
    all: Arc<Notify>,
}

impl Late {
    /// The number of other items is the argument of this program.
    fn new() -> Self {
        let others = argument(0).unwrap().parse().unwrap();
        Self { others, handled: Arc::default(), all: Arc::default() }
    }
}

#[kvqueue::async_trait]
impl Handler for Late {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        if &item.payload[..] == b"slow" {
            tokio::select! {
                () = self.all.notified() => println!("slow ends last"),
                () = context.cancelled.cancelled() => println!("slow is cut off"),
            }
            return Outcome::Done;
        }
        println!("handled {} in attempt {}", String::from_utf8_lossy(&item.payload), item.attempt);
        if self.handled.fetch_add(1, Ordering::SeqCst) + 1 == self.others {
            self.all.notify_one();
        }
        Outcome::Done
    }
}

fn run_late(delivery: &str) {
    let config = format!(
        "[queues.q]\nhandler = 'late'\ndelivery = '{delivery}'\nconsumers = [ {{ k = 1, count = 4 }} ]"
    );
    let daemon = daemon_with(&config);
    let late = |_: &Settings| Ok::<_, SettingsError>(Late::new());
    run_to_the_end(daemon.handler("late", late).until_empty(true));
}

pub(crate) fn at_least_once() {
    run_late("at-least-once");
}

pub(crate) fn exactly_once() {
    run_late("exactly-once");
}

/// Consumers that die with takes under way, which are others' too, and with items in hand.
pub(crate) fn panics() {
    let config = "[queues.q]\nhandler = 'late'\nlease = '2s'\nconsumers = [ { k = 1, count = 4 } ]";
    let daemon = daemon_with(config);
    let late = |_: &Settings| Ok::<_, SettingsError>(Late::new());
    let events = AtomicUsize::new(0);
    let daemon = daemon.observe(move |_, event| {
        if matches!(event, Event::Dispatched { .. }) {
            let number = events.fetch_add(1, Ordering::Relaxed);
            assert!(!matches!(number, 50 | 51 | 120 | 200), "panic on purpose");
        }
    });
    run_to_the_end(daemon.handler("late", late).until_empty(true));
}
