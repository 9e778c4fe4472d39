//! What a run is made of: its queues, drawn from the seed, and the configurations of their daemons.

use std::{fmt::Write, path::Path, time::Duration};

use kvqueue::config::Delivery;

use crate::support::Random;

pub(super) const DELIVERIES: [Delivery; 3] =
    [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce];

/// One queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) delivery: Delivery,
    /// Its layout, as `--kind` names it.
    pub(super) kind: &'static str,
    /// The end of a priority queue.
    end: &'static str,
    take: &'static str,
    pub(super) lease: Duration,
    max_attempts: u32,
}

/// Consumers of each queue in each daemon, and what each takes at once.
const CONSUMERS: u64 = 2;
const K: u64 = 5;

/// What a daemon has in hand of a queue at most.
pub(super) const IN_HAND: u64 = CONSUMERS * K;

/// Who a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// The program itself, printing what it handles. It can have no effects, so it does not work on queues whose items want some.
    Program,
    /// This test's handler.
    Helper,
}

impl Queue {
    /// One queue of each delivery in commit order, and one of another kind. All ways to take occur.
    pub(super) fn draw(random: &mut Random) -> Vec<Self> {
        let mut takes = vec!["spread", "spread", "spread", "staged", "staged", "front"];
        let mut queues = Vec::new();
        for delivery in DELIVERIES {
            // The at-least-once one is always a priority queue.
            let others: &[_] =
                if delivery == Delivery::AtLeastOnce { &["priority"] } else { &["priority", "recipe"] };
            let other = random.choose(others);
            for kind in ["fifo", other] {
                queues.push(Self {
                    name: format!("{delivery:?}-{kind}").to_lowercase(),
                    delivery,
                    kind,
                    end: random.choose(&["min", "max"]),
                    take: takes.swap_remove(random.below(takes.len() as u64) as usize),
                    lease: random.time_between(Duration::from_secs(1), Duration::from_secs(2)),
                    // Few enough for some items to run out of them, and so many that hardly any does.
                    max_attempts: random.choose(&[4, 100]),
                });
            }
        }
        queues
    }

    /// Whether it has anything to settle.
    pub(super) fn is_leased(&self) -> bool {
        self.delivery != Delivery::AtMostOnce
    }

    fn is_for(&self, worker: Worker) -> bool {
        worker == Worker::Helper || self.delivery != Delivery::ExactlyOnce
    }
}

/// The configuration of such a daemon. Helpers keep their records in a directory.
pub(super) fn config(queues: &[Queue], worker: Worker, records: &Path) -> String {
    let mut text =
        "grace = \"60s\"\nlog.level = \"info,kvqueue=debug,kvqueue_queue=debug,fdb_embedded=debug\"\n"
            .to_owned();
    for queue in queues.iter().filter(|queue| queue.is_for(worker)) {
        let Queue { name, delivery, kind, end, take, lease, max_attempts } = queue;
        let (delivery, lease) = (toml::Value::try_from(delivery).unwrap(), lease.as_millis());
        let handler = if worker == Worker::Program { "stdout" } else { "record" };
        write!(
            text,
            "\n[queues.{name}]\nhandler = \"{handler}\"\ndelivery = {delivery}\nlease = \"{lease}ms\"\n\
             take = \"{take}\"\nslow-look = \"500ms\"\nkind = \"{kind}\"\n\
             consumers = [ {{ k = {K}, count = {CONSUMERS} }} ]\n\
             retry = {{ max-attempts = {max_attempts}, base = \"20ms\", max = \"200ms\" }}\n"
        )
        .unwrap();
        if *kind == "priority" {
            writeln!(text, "end = \"{end}\"").unwrap();
        }
        if worker == Worker::Helper {
            let (records, leased) = (records.display(), queue.is_leased());
            writeln!(
                text,
                "handler-config = {{ records = \"{records}\", leased = {leased}, lease-ms = {lease} }}"
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn every_delivery_has_a_queue_in_commit_order_and_one_of_another_kind() {
    let queues = Queue::draw(&mut Random::seeded(1));
    for delivery in DELIVERIES {
        let kinds: Vec<_> =
            queues.iter().filter(|queue| queue.delivery == delivery).map(|queue| queue.kind).collect();
        assert!(kinds.len() == 2 && kinds[0] == "fifo" && kinds[1] != "fifo", "{kinds:?}");
    }
    for worker in [Worker::Program, Worker::Helper] {
        let parsed: kvqueue::Config =
            toml::from_str(&config(&queues, worker, Path::new("/records"))).unwrap();
        assert_eq!(parsed.queues.len(), if worker == Worker::Program { 4 } else { 6 });
    }
}
