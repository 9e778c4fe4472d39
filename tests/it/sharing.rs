//! Consumers that share takes and leases, and take ahead: none of them waits for another's handler.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kvqueue::{Context, Event, Handler, Item, Outcome, Settings, SettingsError};
use tokio::sync::Notify;

use crate::support::{Background, Database, daemon_of_helper, helper, run, run_to_the_end};

/// Items beside the slow one.
const QUICK: usize = 400;

/// Handles items at once, but one of them only when all others are handled.
#[derive(Default)]
struct Late {
    handled: Arc<AtomicUsize>,
    all: Arc<Notify>,
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
        if self.handled.fetch_add(1, Ordering::SeqCst) + 1 == QUICK {
            self.all.notify_one();
        }
        Outcome::Done
    }
}

fn run_late(delivery: &str) {
    let config = format!(
        "[queues.q]\nhandler = 'late'\ndelivery = '{delivery}'\nconsumers = [ {{ k = 1, count = 4 }} ]"
    );
    let Some(daemon) = daemon_of_helper(&config) else { return };
    let late = |_: &Settings| Ok::<_, SettingsError>(Late::default());
    run_to_the_end(daemon.handler("late", late).until_empty(true));
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_at_least_once() {
    run_late("at-least-once");
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_exactly_once() {
    run_late("exactly-once");
}

/// Consumers that die with takes under way, which are others' too, and with items in hand.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_panics() {
    let config = "[queues.q]\nhandler = 'late'\nlease = '2s'\nconsumers = [ { k = 1, count = 4 } ]";
    let Some(daemon) = daemon_of_helper(config) else { return };
    let late = |_: &Settings| Ok::<_, SettingsError>(Late::default());
    let events = AtomicUsize::new(0);
    let daemon = daemon.observe(move |_, event| {
        if matches!(event, Event::Dispatched { .. }) {
            let number = events.fetch_add(1, Ordering::Relaxed);
            assert!(!matches!(number, 50 | 51 | 120 | 200), "panic on purpose");
        }
    });
    run_to_the_end(daemon.handler("late", late).until_empty(true));
}

#[test]
fn consumers_that_panic_cost_the_others_no_item() {
    let db = Database::new();
    let items: Vec<String> = (0..QUICK).map(|number| format!("item-{number}-")).collect();
    let args = ["push", "q"].into_iter().chain(items.iter().map(String::as_str));
    run(&db, &args.collect::<Vec<_>>()).ok();
    let ran = Background::start(helper(&db, "sharing::helper_panics")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.events("consumer_restarted"), 4, "{ran:?}");
    for item in items {
        assert_eq!(ran.stdout.matches(&item).count(), 1, "{item} of {ran:?}");
    }
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

/// Whatever shares a lease with the slow item, or was taken ahead behind it, is handled while it is; without another attempt.
fn nothing_waits_for_a_slow_item(name: &str) {
    let db = Database::new();
    let item = |number: usize| if number == QUICK / 2 { "slow".to_owned() } else { format!("item-{number}") };
    let items: Vec<String> = (0..=QUICK).map(item).collect();
    let args = ["push", "q"].into_iter().chain(items.iter().map(String::as_str));
    run(&db, &args.collect::<Vec<_>>()).ok();
    let ran = Background::start(helper(&db, name)).end();
    let lines = |what: &str| ran.stdout.lines().filter(|line| line.contains(what)).count();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lines("in attempt 1"), QUICK, "{ran:?}");
    assert_eq!((lines("in attempt"), lines("slow ends last")), (QUICK, 1), "{ran:?}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn nothing_waits_for_a_slow_item_at_least_once() {
    nothing_waits_for_a_slow_item("sharing::helper_at_least_once");
}

#[test]
fn nothing_waits_for_a_slow_item_exactly_once() {
    nothing_waits_for_a_slow_item("sharing::helper_exactly_once");
}
