//! Tests of the kit, with handlers that behave in different ways.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::executor::block_on;
use kvqueue_queue::Item;

use super::{Kit, Sample, TestDatabase};
use crate::handlers::{BatchHandler, Context, Handler, Outcome};

/// Does what the payload says.
#[derive(Default)]
struct Obedient {
    calls: AtomicU32,
}

#[async_trait]
impl Handler for Obedient {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match &item.payload[..] {
            b"done" => Outcome::Done,
            b"panic" => panic!("as told"),
            b"hang" => std::future::pending().await,
            b"wait" => {
                context.cancelled.cancelled().await;
                Outcome::retry("cancelled")
            }
            b"finish" => {
                context.cancelled.cancelled().await;
                Outcome::Done
            }
            b"stop" => {
                context.stop_daemon("as told");
                Outcome::Release
            }
            b"time" => Outcome::Retry(format!("deadline: {}", context.deadline.is_some())),
            b"write" => {
                context.transaction().expect("exactly once").set(b"written", b"yes");
                Outcome::Done
            }
            b"write and fail" => {
                context.transaction().expect("exactly once").set(b"written", b"no");
                Outcome::retry("as told")
            }
            _ => Outcome::dead(format_args!("{} of {}", item.id, context.queue)),
        }
    }
}

/// Says of the first item that it is done, and nothing of the rest.
struct First;

#[async_trait]
impl BatchHandler for First {
    async fn handle(&self, items: &[Item], context: &Context) -> Vec<Outcome> {
        if let Some(transaction) = context.transaction() {
            transaction.set(b"first", &items[0].payload);
        }
        vec![Outcome::Done]
    }
}

fn kit() -> Kit {
    Kit::new(Obedient::default())
}

#[test]
fn the_handler_sees_item_and_queue() {
    let kit = kit().queue("emails");
    let outcome = |id: u8| Outcome::Dead(format!("0000000000000000000000{id:02x} of emails"));
    assert_eq!(block_on(kit.handle(Sample::new("?").place(7))), outcome(7));
    assert_eq!(block_on(kit.handle_all(["?", "done", "?"])), [outcome(0), Outcome::Done, outcome(2)]);
}

#[test]
fn kit_applies_the_daemons_panic_and_timeout_rules() {
    assert_eq!(block_on(kit().handle("panic")), Outcome::retry("the handler panicked: as told"));
    assert_eq!(block_on(kit().handle("time")), Outcome::retry("deadline: false"));
    let hurried = kit().handler_timeout(Duration::from_millis(20));
    assert_eq!(block_on(hurried.handle("time")), Outcome::retry("deadline: true"));
    for item in ["hang", "wait"] {
        assert_eq!(block_on(hurried.handle(item)), Outcome::retry("not done after 20 ms (handler-timeout)"));
    }
    assert_eq!(block_on(hurried.handle("finish")), Outcome::Done);
}

#[test]
fn a_cancelled_item_is_released_unless_its_handler_finishes() {
    assert_eq!(block_on(kit().cancel_after(Duration::from_millis(20)).handle("wait")), Outcome::Release);
    let kit = kit();
    kit.cancelled().cancel();
    assert_eq!(block_on(kit.handle("finish")), Outcome::Done);
}

#[test]
fn kit_reports_a_requested_stop() {
    let kit = kit();
    assert_eq!(kit.stop_requested(), None);
    assert_eq!(block_on(kit.handle("stop")), Outcome::Release);
    assert_eq!(kit.stop_requested(), Some("as told"));
}

#[test]
fn batch_items_without_outcome_are_retried() {
    let outcomes = block_on(Kit::batch(First).handle_all(["one", "two"]));
    assert_eq!(outcomes, [Outcome::Done, Outcome::retry("the handler returned no outcome for it")]);
}

#[test]
fn only_writes_of_done_items_are_committed() {
    let database = TestDatabase::new().unwrap();
    let kit = kit().exactly_once(&database);
    assert_eq!(block_on(kit.handle("write and fail")), Outcome::retry("as told"));
    assert_eq!(block_on(database.get(b"written")).unwrap(), None);
    assert_eq!(block_on(kit.handle("write")), Outcome::Done);
    assert_eq!(block_on(database.get(b"written")).unwrap().as_deref(), Some(&b"yes"[..]));
    let batch = Kit::batch(First).exactly_once(&database);
    block_on(batch.handle_all(["one", "two"]));
    assert_eq!(block_on(database.get(b"first")).unwrap().as_deref(), Some(&b"one"[..]));
}

#[test]
fn a_call_is_repeated_if_its_transaction_conflicts() {
    let database = TestDatabase::new().unwrap();
    let handler = Arc::new(Obedient::default());
    let kit = Kit::new(handler.clone()).exactly_once(&database).conflicts(2);
    assert_eq!(block_on(kit.handle("write")), Outcome::Done);
    assert_eq!(handler.calls.load(Ordering::Relaxed), 3);
}
