//! Producers: the program pushing lines from a pipe, one errand after the other.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{ChildStdin, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    arena::Arena,
    payload::Name,
    plan::{KEYS, Queue},
    process::{End, Process},
};
use crate::support::Random;

/// How items are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As they come, in many transactions. What is not acknowledged when the process dies has an unknown fate.
    Stream,
    /// All at once, under an idempotency key, and again until it is acknowledged.
    Operation,
    /// One, under a key that others use as well.
    Unique,
}

/// The items that a producer pushes.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) queue: usize,
    /// No two have the same.
    pub(super) number: u64,
    pub(super) lines: u64,
    pub(super) way: Way,
    /// Its items have a time to live.
    pub(super) expires: bool,
    /// Its items are refused from some time on.
    may_be_refused: bool,
    options: Vec<String>,
    random: u64,
}

/// An errand that is over, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Pushed {
    pub(super) errand: Errand,
    /// Items that may have been pushed.
    pub(super) attempted: u64,
    /// How many of them were acknowledged, from the first on.
    pub(super) acknowledged: u64,
    /// It was said that another item has the key.
    pub(super) refused: bool,
}

impl Errand {
    /// Any.
    pub(super) fn draw(random: &mut Random, queues: &[Queue], number: u64) -> Self {
        let queue = random.below(queues.len() as u64) as usize;
        let (way, lines) = match random.below(100) {
            0..=14 => (Way::Operation, 1 + random.below(40)),
            15..=29 => (Way::Unique, 1),
            _ => {
                let most = random.choose(&[20, 200, 600]);
                (Way::Stream, 1 + random.below(most))
            }
        };
        let mut options = vec![];
        // The history tells how many of them have expired, by their attribute.
        let expires = queues[queue].history && random.chance(400);
        if expires {
            options.extend(["--ttl".to_owned(), format!("{}ms", 20 + random.below(1_000))]);
        }
        if expires || random.chance(300) {
            options.extend(["--attr".to_owned(), format!("errand={number}")]);
        }
        if random.chance(200) {
            options.extend(["--delay".to_owned(), format!("{}ms", 1 + random.below(300))]);
        }
        options.extend(Self::of_kind(random, &queues[queue]));
        match way {
            Way::Stream => {}
            Way::Operation => options.extend(["--idempotency-key".to_owned(), format!("errand {number}")]),
            Way::Unique => options.extend(["--unique".to_owned(), format!("key {}", random.below(3))]),
        }
        Self {
            queue,
            number,
            lines,
            way,
            expires,
            may_be_refused: false,
            options,
            random: random.below(u64::MAX),
        }
    }

    /// Members of a batch, for a queue and its place. With a deadline, pushes are refused from then on.
    pub(super) fn of_batch(
        random: &mut Random,
        (place, queue): (usize, &Queue),
        number: u64,
        batch: &str,
        has_deadline: bool,
    ) -> Self {
        let way = if has_deadline { Way::Stream } else { Way::Operation };
        let mut options =
            vec!["--batch".to_owned(), batch.to_owned(), "--attr".to_owned(), format!("errand={number}")];
        options.extend(Self::of_kind(random, queue));
        if way == Way::Operation {
            options.extend(["--idempotency-key".to_owned(), format!("errand {number}")]);
        }
        let (lines, random) = (random.below(30), random.below(u64::MAX));
        Self {
            queue: place,
            number,
            lines,
            way,
            expires: false,
            may_be_refused: has_deadline,
            options,
            random,
        }
    }

    /// What items of a queue of this kind need.
    fn of_kind(random: &mut Random, queue: &Queue) -> Option<String> {
        match queue.kind {
            "priority" => Some(format!("--priority={}", random.below(9))),
            "keyed" => Some(format!("--key={}", random.choose(&KEYS))),
            _ => None,
        }
    }

    /// Its items, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> + use<> {
        let (queue, producer) = (self.queue, self.number);
        (0..self.lines).map(move |place| Name { queue, producer, place })
    }
}

/// The output of a producer while it runs.
#[derive(Default)]
struct Told {
    attempted: AtomicU64,
    acknowledged: AtomicU64,
    /// It is to get no more lines.
    enough: AtomicBool,
}

/// A producer at work.
pub(super) struct Producer {
    errand: Errand,
    pub(super) process: Process,
    told: Arc<Told>,
    feeder: JoinHandle<()>,
    listener: JoinHandle<()>,
    /// Its output at the end, which may be long.
    said: JoinHandle<String>,
}

/// The largest bunch of lines, and the longest pause between bunches.
const BUNCH: u64 = 20;
const PAUSE: Duration = Duration::from_millis(100);

impl Producer {
    pub(super) fn start(arena: &Arena, errand: Errand) -> Self {
        let queue = &arena.queues[errand.queue].name;
        let mut command = arena.command(&["push", queue, "--lines", "-", "-v", "--json"]);
        command.args(&errand.options);
        Arena::weather(&mut command, errand.number);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(format!("producer-{}", errand.number), &mut command);
        let told = Arc::new(Told::default());
        let stdin = process.child.stdin.take().unwrap();
        let feeder = {
            let (errand, told) = (errand.clone(), told.clone());
            thread::spawn(move || feed(stdin, &errand, &told))
        };
        let stderr = BufReader::new(process.child.stderr.take().unwrap());
        let mut log = arena.log("producers.log");
        let listener = {
            let (told, number) = (told.clone(), errand.number);
            thread::spawn(move || {
                for line in stderr.lines().map_while(Result::ok) {
                    match line.strip_prefix("acknowledged ").and_then(|total| total.parse().ok()) {
                        Some(total) => told.acknowledged.store(total, Relaxed),
                        None => writeln!(log, "{number}: {line}").unwrap(),
                    }
                }
            })
        };
        let mut stdout = process.child.stdout.take().unwrap();
        let said = thread::spawn(move || {
            let mut said = String::new();
            stdout.read_to_string(&mut said).map(|_| said).unwrap()
        });
        Self { errand, process, told, feeder, listener, said }
    }

    pub(super) fn may_be_refused(&self) -> bool {
        self.errand.may_be_refused
    }

    /// Lets it come to its end.
    pub(super) fn enough(&self) {
        self.told.enough.store(true, Relaxed);
    }

    /// Of one that has ended so: what it has pushed, or the errand that has to be run again.
    pub(super) fn pushed(self, end: End) -> Result<Pushed, Errand> {
        let said = self.said.join().unwrap();
        self.feeder.join().unwrap();
        self.listener.join().unwrap();
        let (attempted, acknowledged) =
            (self.told.attempted.load(Relaxed), self.told.acknowledged.load(Relaxed));
        let errand = self.errand;
        match (errand.way, end) {
            (Way::Operation, End::Done) => {
                let lines = errand.lines;
                Ok(Pushed { errand, attempted: lines, acknowledged: lines, refused: false })
            }
            (Way::Operation, _) => Err(errand),
            (Way::Stream, End::Done) => {
                assert_eq!(
                    attempted, acknowledged,
                    "not all acknowledged, and all is well: {errand:?} {said}"
                );
                Ok(Pushed { errand, attempted, acknowledged, refused: false })
            }
            (Way::Unique, End::Done) => {
                let said: serde_json::Value = serde_json::from_str(&said).unwrap();
                let refused = said["duplicates"] == 1;
                assert_eq!(u64::from(!refused), said["acknowledged"], "{errand:?} {said}");
                Ok(Pushed { errand, attempted, acknowledged: u64::from(!refused), refused })
            }
            // A unique item is acknowledged by the line that says so, and refused by the end.
            (Way::Stream | Way::Unique, _) => Ok(Pushed { errand, attempted, acknowledged, refused: false }),
        }
    }
}

/// Writes the lines of an errand: those of a stream with pauses, the others at once.
fn feed(mut stdin: ChildStdin, errand: &Errand, told: &Told) {
    let mut random = Random::seeded(errand.random);
    let mut left = 0;
    for name in errand.names() {
        if errand.way == Way::Stream {
            if told.enough.load(Relaxed) {
                return;
            }
            if left == 0 {
                left = 1 + random.below(BUNCH);
                // The pace of the producer's own source.
                thread::sleep(random.time_below(PAUSE));
            }
            left -= 1;
        }
        told.attempted.fetch_add(1, Relaxed);
        if stdin.write_all(format!("{}\n", name.payload()).as_bytes()).is_err() {
            return;
        }
    }
}
