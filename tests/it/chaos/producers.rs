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
    arena::{Arena, PRODUCERS_LOG, now},
    errand::{Errand, Way},
    process::{End, Process},
};
use crate::support::Random;

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
    /// It is known that it has replaced another.
    pub(super) replaced: bool,
    /// Between these times it happened, in ms.
    pub(super) began: u64,
    pub(super) ended: u64,
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
    /// When it was started, in ms.
    began: u64,
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
        let began = now();
        let mut process = Process::start(format!("producer-{}", errand.number), &mut command);
        let told = Arc::new(Told::default());
        let stdin = process.child.stdin.take().unwrap();
        let feeder = {
            let (errand, told) = (errand.clone(), told.clone());
            thread::spawn(move || feed(stdin, &errand, &told))
        };
        let stderr = BufReader::new(process.child.stderr.take().unwrap());
        let mut log = arena.log(PRODUCERS_LOG);
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
        Self { errand, process, began, told, feeder, listener, said }
    }

    pub(super) fn pushes_under(&self, key: &str) -> bool {
        self.errand.key == key
    }

    pub(super) fn may_be_refused(&self) -> bool {
        self.errand.may_be_refused
    }

    /// Who is at work, for a person.
    pub(super) fn at_work(&self) -> String {
        let (attempted, acknowledged) = (&self.told.attempted, &self.told.acknowledged);
        let process = self.process.at_work();
        format!(
            "{process} since {}: {acknowledged:?} of {attempted:?} acknowledged, {:?}",
            self.began, self.errand
        )
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
        let pushed = Pushed {
            attempted,
            acknowledged,
            refused: false,
            replaced: false,
            began: self.began,
            ended: now(),
            errand,
        };
        match (pushed.errand.way, end) {
            (Way::Operation, End::Done) => {
                let lines = pushed.errand.lines;
                Ok(Pushed { attempted: lines, acknowledged: lines, ..pushed })
            }
            (Way::Operation, _) => Err(pushed.errand),
            (Way::Stream, End::Done) => {
                assert_eq!(
                    attempted, acknowledged,
                    "not all acknowledged, and all is well: {pushed:?} {said}"
                );
                Ok(pushed)
            }
            (Way::Unique | Way::UniqueFor | Way::Replace, End::Done) => {
                let said: serde_json::Value = serde_json::from_str(&said).unwrap();
                let (refused, replaced) = (said["duplicates"] == 1, said["replaced"] == 1);
                assert_eq!(u64::from(!refused && !replaced), said["acknowledged"], "{pushed:?} {said}");
                Ok(Pushed { acknowledged: u64::from(!refused), refused, replaced, ..pushed })
            }
            // Whether it has replaced another is not known.
            (Way::Replace, _) => Ok(Pushed { acknowledged: 0, ..pushed }),
            // A unique item is acknowledged by the line that says so, and refused by the end.
            (Way::Stream | Way::Unique | Way::UniqueFor, _) => Ok(pushed),
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
