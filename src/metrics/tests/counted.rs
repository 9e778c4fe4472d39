//! A daemon's counts, compared with what its handler did.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use foundationdb::Database;
use futures::executor::block_on;
use kvqueue_queue::{Item, Queue, RetryPolicy, Session, retry};

use super::sample::text;
use crate::{
    BatchHandler, Config, Context, Daemon, Handler, Outcome, SettingsError,
    config::{ConsumerGroup, Delivery, QueueConfig},
    meters::QueueMeters,
    status::DaemonStatus,
    testing::TestDatabase,
};

const QUEUE: &str = "counted";

/// How many items there are of each sort.
const OF_EACH: usize = 5;

const SORTS: [&str; 6] = ["done", "retry", "dead", "release", "panic", "late"];

/// Does what the payload says; what is to be tried again is done the next time.
#[derive(Clone, Default)]
struct Obedient {
    seen: Arc<Mutex<BTreeSet<String>>>,
}

impl Obedient {
    fn outcome(&self, item: &Item) -> Outcome {
        let is_first = self.seen.lock().unwrap().insert(item.id.to_string());
        match &item.payload[..] {
            b"retry" | b"panic" | b"late" if is_first => {
                Outcome::RetryAfter(Duration::ZERO, "as told".to_owned())
            }
            b"release" if is_first => Outcome::Release,
            b"dead" => Outcome::dead("as told"),
            _ => Outcome::Done,
        }
    }
}

#[async_trait]
impl Handler for Obedient {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        let outcome = self.outcome(item);
        match (&item.payload[..], &outcome) {
            (b"panic", Outcome::RetryAfter(..)) => panic!("as told"),
            (b"late", Outcome::RetryAfter(..)) => context.cancelled.cancelled().await,
            _ => {}
        }
        outcome
    }
}

#[async_trait]
impl BatchHandler for Obedient {
    async fn handle(&self, items: &[Item], _: &Context) -> Vec<Outcome> {
        items.iter().map(|item| self.outcome(item)).collect()
    }
}

fn config(delivery: Delivery, handler: &str) -> Config {
    let mut queue = QueueConfig::new(handler);
    queue.delivery = delivery;
    queue.handler_timeout = Some(Duration::from_millis(500));
    queue.retry.base = Duration::from_millis(1);
    queue.retry.max = Duration::from_millis(1);
    queue.consumers = vec![ConsumerGroup { k: Some(7), count: 3 }];
    let mut config = Config::default();
    config.queues.insert(QUEUE.to_owned(), queue);
    config
}

fn push(db: &Database, payloads: impl IntoIterator<Item = &'static str>) {
    let queue = Queue::new(b"", QUEUE.as_bytes()).unwrap();
    let mut session = Session::new(queue);
    let payloads: Vec<_> = payloads.into_iter().collect();
    block_on(session.push(db, &payloads)).unwrap();
}

/// The counts of a daemon.
struct Counted {
    meters: Arc<QueueMeters>,
    text: String,
}

impl Counted {
    /// How often a histogram was observed.
    fn observed(&self, name: &str) -> u64 {
        let start = format!("kvqueue_{name}_seconds_count{{queue=\"{QUEUE}\"}} ");
        let count = self.text.lines().find_map(|line| line.strip_prefix(&start));
        count.unwrap_or_else(|| panic!("no {name} in {}", self.text)).parse().unwrap()
    }
}

/// Processes the queue until it is empty.
fn work_off(db: &Arc<Database>, daemon: Daemon) -> Counted {
    let status = DaemonStatus::new("");
    daemon.until_empty(true).run_showing(db, status.clone(), std::future::pending()).unwrap();
    Counted { meters: status.metrics.queue(&QUEUE.into()), text: text(&status) }
}

/// Done, retried, dead, released, lost.
fn outcomes(meters: &QueueMeters) -> [u64; 5] {
    [&meters.done, &meters.retried, &meters.dead, &meters.released, &meters.lost].map(|counter| counter.get())
}

fn counted(delivery: Delivery, handler: &str) -> Counted {
    let database = TestDatabase::new().unwrap();
    let db = database.shared();
    push(&db, SORTS.into_iter().flat_map(|sort| [sort; OF_EACH]));
    let obedient = Obedient::default();
    let daemon = Daemon::new(config(delivery, handler))
        .handler("each", {
            let obedient = obedient.clone();
            move |_| Ok::<_, SettingsError>(obedient.clone())
        })
        .batch_handler("batch", move |_| Ok::<_, SettingsError>(obedient.clone()));
    let counted = work_off(&db, daemon);
    let meters = &counted.meters;
    assert_eq!(meters.fetched.get(), outcomes(meters).iter().sum::<u64>(), "{meters:?}");
    assert_eq!(meters.in_flight.get(), 0);
    assert_eq!(counted.observed("start_latency"), new(delivery), "{meters:?}");
    assert!(
        meters.fetches_items.get() > 0 && meters.fetches_empty.get() > 0 && meters.fetches_failed.get() == 0
    );
    assert_eq!(counted.observed("fetch_duration"), meters.fetches_items.get());
    assert!(counted.observed("handle_duration") > 0);
    counted
}

/// How often a handler got an item on its first attempt: a released item is on its first attempt again.
fn new(delivery: Delivery) -> u64 {
    let again = usize::from(delivery != Delivery::AtMostOnce);
    (OF_EACH * (SORTS.len() + again)) as u64
}

#[test]
fn every_outcome_is_counted_once() {
    let each = OF_EACH as u64;
    for delivery in [Delivery::AtLeastOnce, Delivery::ExactlyOnce] {
        let counted = counted(delivery, "each");
        let [done, retried, dead, released, lost] = outcomes(&counted.meters);
        assert_eq!([done, retried, dead, lost], [5 * each, 3 * each, each, 0], "{delivery:?}");
        // Prefetched items that have not begun are released, too.
        assert!(released >= each, "{delivery:?}: {released}");
        let settled = counted.observed("acknowledge_duration");
        assert!((1..=done + retried + dead + released).contains(&settled), "{delivery:?}: {settled}");
    }
    // Nothing is tried again.
    let counted = counted(Delivery::AtMostOnce, "each");
    assert_eq!(outcomes(&counted.meters), [each, 0, 0, 0, 5 * each]);
    assert_eq!(counted.observed("acknowledge_duration"), 0);
}

#[test]
fn a_batch_counts_as_its_items() {
    let each = OF_EACH as u64;
    let [done, retried, dead, _, lost] = outcomes(&counted(Delivery::AtLeastOnce, "batch").meters);
    assert_eq!([done, retried, dead, lost], [5 * each, 3 * each, each, 0]);
    assert_eq!(outcomes(&counted(Delivery::AtMostOnce, "batch").meters), [each, 0, 0, 0, 5 * each]);
}

/// Deletes its queue, lease and all, and says that all is well.
struct Saboteur(Arc<Database>);

#[async_trait]
impl Handler for Saboteur {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        let queue = Queue::new(b"", QUEUE.as_bytes()).unwrap();
        let policy = RetryPolicy::default();
        let delete = retry::run(&self.0, &policy, |tr| {
            queue.delete(&tr);
            async move { (tr, Ok(())) }
        });
        delete.await.unwrap();
        Outcome::Done
    }
}

#[test]
fn items_of_a_lost_lease_are_lost() {
    for delivery in [Delivery::AtLeastOnce, Delivery::ExactlyOnce] {
        let database = TestDatabase::new().unwrap();
        let db = database.shared();
        push(&db, ["delete"; 3]);
        let mut config = config(delivery, "delete");
        let queue = config.queues.get_mut(QUEUE).unwrap();
        queue.handler_timeout = None;
        queue.consumers = vec![ConsumerGroup { k: Some(3), count: 1 }];
        let ours = db.clone();
        let daemon =
            Daemon::new(config).handler("delete", move |_| Ok::<_, SettingsError>(Saboteur(ours.clone())));
        let meters = work_off(&db, daemon).meters;
        assert_eq!((meters.fetched.get(), outcomes(&meters)), (3, [0, 0, 0, 0, 3]), "{delivery:?}");
        assert_eq!(meters.leases_lost.get(), 1);
    }
}
