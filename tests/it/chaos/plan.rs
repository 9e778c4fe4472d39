//! The plan of a run: its queues, drawn from the seed, and the configurations of their daemons.

use std::{fmt::Write, path::Path, time::Duration};

use kvqueue::config::Delivery;

use crate::support::Random;

pub(super) const DELIVERIES: [Delivery; 3] =
    [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce];

/// The queue of workers over HTTP.
pub(super) const PULLED: &str = "pulled";

/// The queue with keys, whose rules change meanwhile.
pub(super) const KEYED: &str = "keyed";

/// The keys of its items, and the patterns of its rules.
pub(super) const KEYS: [&str; 5] = ["a", "a/x", "a/y", "b", "c"];
const PATTERNS: [&str; 5] = ["*", "*/*", "a", "b", "a/x"];

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
    pub(super) crew: Crew,
    /// Whether it keeps a history.
    pub(super) history: bool,
}

/// The daemons that process a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crew {
    /// Helpers, and the program where items need no effects.
    All,
    /// Keepers alone.
    Keepers,
    /// Helpers, which are killed and stopped, and steady daemons, whose leases must not be lost meanwhile.
    Steady,
    /// Workers over HTTP, of which any helper answers each request.
    Pullers,
}

/// The lease of the steady daemons' queue: longer than any stop of the host and any recovery of the cluster.
const STEADY_LEASE: Duration = Duration::from_secs(15);

/// The slow items of that queue take up to 1.4 times as long, so that their lease is extended.
const STEADY_TIME: Duration = Duration::from_secs(6);

/// Consumers of each queue in each daemon, and what each takes at once: at most, for it changes while they run.
const CONSUMERS: u64 = 2;
const K: u64 = 5;

/// The configuration changes of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    consumers: u64,
    k: u64,
    take: Option<&'static str>,
    poll_interval_ms: u64,
}

impl Mood {
    /// That in which a run begins.
    pub(super) const FIRST: Self = Self { consumers: CONSUMERS, k: K, take: None, poll_interval_ms: 500 };

    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            consumers: 1 + random.below(CONSUMERS),
            k: 1 + random.below(K),
            take: random.choose(&[None, None, Some("front"), Some("spread"), Some("staged")]),
            poll_interval_ms: random.choose(&[500, 501]),
        }
    }
}

/// The most items of a queue that a daemon holds.
pub(super) const IN_HAND: u64 = CONSUMERS * K;

/// Who a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// The program itself, printing what it handles. It can have no effects, so it does not work on queues whose items want some.
    Program,
    /// This test's handler.
    Helper,
    /// The same, for the queue that is left to it. It is stopped, terminated, and loses its database like others, but is never killed: so
    /// what is handled at most once is handled.
    Keeper,
    /// A worker over HTTP. Terminated, it is killed.
    Puller,
    /// The same, for the queue that it shares with helpers. It is terminated, but neither killed nor stopped, so it extends its leases in
    /// time and must never lose one.
    Steady,
}

impl Worker {
    /// All daemons.
    pub(super) const ALL: [Self; 4] = [Self::Program, Self::Helper, Self::Keeper, Self::Steady];

    /// Whether it is the program itself.
    pub(super) fn is_program(self) -> bool {
        self == Self::Program
    }
}

impl Queue {
    /// One queue of each delivery in commit order, and one of another kind; one more that is handled at most once, for keepers; one
    /// with long leases, for steady daemons; one for workers over HTTP; and one with keys. All ways to take occur.
    pub(super) fn draw(random: &mut Random) -> Vec<Self> {
        let mut takes = vec!["spread", "spread", "spread", "staged", "staged", "front"];
        let mut take = |random: &mut Random| takes.swap_remove(random.below(takes.len() as u64) as usize);
        let mut queues = Vec::new();
        for delivery in DELIVERIES {
            // The at-least-once one is always a priority queue.
            let others: &[_] =
                if delivery == Delivery::AtLeastOnce { &["priority"] } else { &["priority", "recipe"] };
            let other = random.choose(others);
            for kind in ["fifo", other] {
                let take = take(random);
                queues.push(Self::new(delivery, kind, take, random));
            }
        }
        // Items of this delivery have effects, so the books know how each one ended.
        let kind = random.below(2) as usize;
        let exact = queues.iter_mut().filter(|queue| queue.delivery == Delivery::ExactlyOnce);
        exact.skip(kind).take(1).for_each(|queue| queue.history = true);
        let (kind, take) = (random.choose(&["fifo", "priority"]), random.choose(&["spread", "staged"]));
        let kept = Self::new(Delivery::AtMostOnce, kind, take, random);
        queues.push(Self { name: "kept".to_owned(), crew: Crew::Keepers, ..kept });
        let take = random.choose(&["spread", "staged", "front"]);
        let steady = Self::new(Delivery::AtLeastOnce, "fifo", take, random);
        queues.push(Self { name: "steady".to_owned(), crew: Crew::Steady, lease: STEADY_LEASE, ..steady });
        let kind = random.choose(&["fifo", "priority", "recipe"]);
        let pulled = Self::new(Delivery::AtLeastOnce, kind, "front", random);
        // A slow item outlives its lease at every attempt, since its worker extends that at most once: with a hundred attempts it would take
        // minutes until it is a dead letter.
        queues.push(Self { name: PULLED.to_owned(), crew: Crew::Pullers, max_attempts: 4, ..pulled });
        let keyed = Self::new(Delivery::AtLeastOnce, "keyed", "front", random);
        queues.push(Self { name: KEYED.to_owned(), ..keyed });
        queues
    }

    fn new(delivery: Delivery, kind: &'static str, take: &'static str, random: &mut Random) -> Self {
        Self {
            name: format!("{delivery:?}-{kind}").to_lowercase(),
            delivery,
            kind,
            end: random.choose(&["min", "max"]),
            take,
            lease: random.time_between(Duration::from_secs(1), Duration::from_secs(2)),
            // Few attempts, which some items use up, or many, which hardly any does.
            max_attempts: random.choose(&[4, 100]),
            crew: Crew::All,
            history: false,
        }
    }

    /// Whether it has anything to settle.
    pub(super) fn is_leased(&self) -> bool {
        self.delivery != Delivery::AtMostOnce
    }

    /// Whether handlers of the tests alone have its items, which record more than the program prints.
    pub(super) fn is_recorded(&self) -> bool {
        self.crew != Crew::Pullers && !self.is_for(Worker::Program)
    }

    fn is_for(&self, worker: Worker) -> bool {
        match worker {
            Worker::Program => self.crew == Crew::All && self.delivery != Delivery::ExactlyOnce,
            Worker::Helper => self.crew != Crew::Keepers,
            Worker::Keeper => self.crew == Crew::Keepers,
            Worker::Steady => self.crew == Crew::Steady,
            Worker::Puller => false,
        }
    }

    /// The slow items take 0.4 to 1.4 times as long.
    fn slow_time(&self) -> Duration {
        if self.crew == Crew::Steady { STEADY_TIME } else { self.lease }
    }

    /// Its layout, as a configuration has it.
    fn layout(&self) -> String {
        let Self { name, kind, end, .. } = self;
        let end = if *kind == "priority" { format!("end = \"{end}\"\n") } else { String::new() };
        let history = if self.history { "history = \"24h\"\n" } else { "" };
        format!("\n[queues.{name}]\nkind = \"{kind}\"\n{end}{history}")
    }
}

/// The arguments of a command that changes a rule of the queue with keys, or removes it. No rule stops a key.
pub(super) fn rule(random: &mut Random) -> Vec<String> {
    let pattern = random.choose(&PATTERNS);
    if random.chance(200) {
        return ["limits", "remove", KEYED, pattern].map(str::to_owned).into();
    }
    let mut args = ["limits", "set", KEYED, pattern, "--create", "--running"].map(str::to_owned).to_vec();
    args.push((1 + random.below(4)).to_string());
    if random.chance(300) {
        args.push("--ordered".to_owned());
    }
    if random.chance(300) {
        args.extend(["--rate".to_owned(), format!("{}/1s", 20 + random.below(200))]);
    }
    args
}

/// A configuration of all queues, for commands.
pub(super) fn layouts(queues: &[Queue]) -> String {
    queues.iter().map(|queue| queue.layout() + "handler = \"log\"\n").collect()
}

fn retry(max_attempts: u32) -> String {
    format!("retry = {{ max-attempts = {max_attempts}, base = \"20ms\", max = \"200ms\" }}\n")
}

/// The configuration of such a daemon. All but the program keep their records in a directory.
pub(super) fn config(queues: &[Queue], worker: Worker, records: &Path, mood: Mood) -> String {
    let Mood { consumers, k, poll_interval_ms, .. } = mood;
    let mut text =
        "shutdown-timeout = \"60s\"\nlog.level = \"info,kvqueue=debug,kvqueue_queue=debug,fdb_embedded=debug\"\n"
            .to_owned();
    for queue in queues.iter().filter(|queue| queue.is_for(worker)) {
        let Queue { delivery, kind, take, lease, max_attempts, crew, .. } = queue;
        let take = match *kind {
            "keyed" => String::new(),
            _ => format!("fetch-strategy = \"{}\"\n", mood.take.unwrap_or(take)),
        };
        let (delivery, lease) = (toml::Value::try_from(delivery).unwrap(), lease.as_millis());
        let handler = if worker.is_program() { "stdout" } else { "record" };
        text += &queue.layout();
        if *crew == Crew::Pullers {
            write!(text, "handler = \"pull\"\nlease = \"{lease}ms\"\n{}", retry(*max_attempts)).unwrap();
            continue;
        }
        write!(
            text,
            "handler = \"{handler}\"\ndelivery = {delivery}\nlease = \"{lease}ms\"\n\
             {take}poll-interval = \"{poll_interval_ms}ms\"\n\
             consumers = [ {{ k = {k}, count = {consumers} }} ]\n{}",
            retry(*max_attempts)
        )
        .unwrap();
        if !worker.is_program() {
            let (records, leased, poison) = (records.display(), queue.is_leased(), *crew == Crew::All);
            let slow = queue.slow_time().as_millis();
            writeln!(
                text,
                "handler-config = {{ records = \"{records}\", slow-ms = {slow}, leased = {leased}, poison = {poison} }}"
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
        let queues = queues.iter().filter(|queue| queue.delivery == delivery && queue.crew == Crew::All);
        let kinds: Vec<_> = queues.map(|queue| queue.kind).filter(|kind| *kind != "keyed").collect();
        assert!(kinds.len() == 2 && kinds[0] == "fifo" && kinds[1] != "fifo", "{kinds:?}");
    }
    let number = |text: String| toml::from_str::<kvqueue::Config>(&text).unwrap().queues.len();
    let of = |worker| number(config(&queues, worker, Path::new("/records"), Mood::FIRST));
    assert_eq!((Worker::ALL.map(of), number(layouts(&queues))), ([5, 9, 1, 1], 10));
}
