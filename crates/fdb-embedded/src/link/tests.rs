//! Hosts and guests of one directory in one process.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::guest::ConnectionEvents;
use super::*;
use crate::engine::Durability;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;

const COUNT: &[u8] = b"count";
const SOON: Duration = Duration::from_secs(60);

/// Adds one to the count.
fn add_one<V>() -> CommitMessage<V> {
    let one = 1u64.to_le_bytes().to_vec();
    let mutation = Mutation::Atomic { key: COUNT.to_vec(), op: AtomicOp::Add, operand: one };
    CommitMessage {
        base: CommitBase::Newest,
        reads: Vec::new(),
        report_conflicts: false,
        writes: vec![(COUNT.to_vec(), [COUNT, b"\0"].concat())],
        mutations: vec![mutation],
        durability: Durability::Flushed,
    }
}

/// The answers and notices that clients got.
#[derive(Default)]
struct Told {
    committed: AtomicU64,
    unknown: AtomicU64,
    refused: Mutex<Vec<Code>>,
}

impl Told {
    /// Notes an outcome, and says whether to go on.
    fn note(&self, outcome: Result<(), Code>) -> bool {
        match outcome {
            Ok(()) => drop(self.committed.fetch_add(1, Ordering::AcqRel)),
            Err(Code::COMMIT_UNKNOWN_RESULT) => drop(self.unknown.fetch_add(1, Ordering::AcqRel)),
            Err(code) => self.refused.lock().push(code),
        }
        outcome.is_ok()
    }
}

/// A guest that commits one thing after the other, until its host ends.
struct Busy {
    lost: Arc<AtomicBool>,
}

struct Lost(Arc<AtomicBool>);

impl ConnectionEvents for Lost {
    fn fired(&self, _: u64, _: Option<Code>) {}

    fn ending(&self) {}

    fn lost(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Busy {
    fn start(directory: &Path, told: &Arc<Told>) -> Busy {
        let (guest, lost) = (Guest::connect(directory, SOON).unwrap(), Arc::new(AtomicBool::new(false)));
        guest.start(Lost(Arc::clone(&lost))).unwrap();
        (0..4).for_each(|_| Busy::commit(&guest, told));
        Busy { lost }
    }

    fn commit(guest: &Arc<Guest>, told: &Arc<Told>) {
        let (again, told) = (Arc::downgrade(guest), Arc::clone(told));
        let answer = CommitPromise::new(move |result| {
            if told.note(result.map(drop).map_err(|failure| failure.code))
                && let Some(guest) = again.upgrade()
            {
                Busy::commit(&guest, &told);
            }
        });
        guest.commit(add_one(), answer, |_, answer| answer.complete(Err(Code::TRANSACTION_TOO_OLD.into())));
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = baton::now() + SOON;
    while !is_so() {
        assert!(baton::now() < deadline, "not in good time: {what}");
        thread::yield_now();
    }
}

/// How many committers of this process have panicked.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics_of_committers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if thread::current().name() == Some("fdb-committer") {
                PANICS.fetch_add(1, Ordering::AcqRel);
            }
            before(info);
        }));
    });
}

fn hosted_count(directory: &Path) -> u64 {
    let engine = Engine::open(directory).unwrap();
    let count = engine.read().get(COUNT).unwrap().unwrap_or_default();
    u64::from_le_bytes(count[..].try_into().unwrap_or_default())
}

#[test]
fn a_host_can_end_on_its_committer_thread_while_guests_commit() {
    const ROUNDS: usize = 1_000;
    count_panics_of_committers();
    // In memory, where there is such a place: it is not about the disk.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path();
    let told = Arc::new(Told::default());
    for round in 0..ROUNDS {
        let place = attempt::attempt(path, SOON).map_err(|refused| refused.error).unwrap();
        let link = Link::with_role(path, place).map_err(|refused| refused.error).unwrap();
        let guests: Vec<Busy> = (0..2).map(|_| Busy::start(path, &told)).collect();
        let before = told.committed.load(Ordering::Acquire);
        wait_until("guests commit", || told.committed.load(Ordering::Acquire) > before + 8);
        for _ in 0..4 {
            let (last, told) = (Arc::clone(&link), Arc::clone(&told));
            let answer = CommitPromise::new(move |result| {
                told.note(result.map(drop).map_err(|failure| failure.code));
                // The last of them, and with it the host, ends on the committer's thread.
                drop(last);
            });
            link.commit(add_one(), answer);
        }
        drop(link);
        for busy in &guests {
            wait_until("guests notice the end", || busy.lost.load(Ordering::Acquire));
        }
        drop(guests);
        wait_until("the directory is free", || {
            matches!(crate::engine::probe_lock(path), Ok(crate::engine::LockState::Free(_)))
        });
        assert_eq!(PANICS.load(Ordering::Acquire), 0, "a committer has panicked in round {round}");
    }
    let refused = std::mem::take(&mut *told.refused.lock());
    let odd: Vec<_> = refused.iter().filter(|code| **code != Code::TRANSACTION_TOO_OLD).collect();
    assert!(odd.is_empty(), "{odd:?}");
    let (committed, unknown) = (told.committed.load(Ordering::Acquire), told.unknown.load(Ordering::Acquire));
    let stored = hosted_count(path);
    assert!((committed..=committed + unknown).contains(&stored), "{stored}: {committed}, perhaps {unknown}");
}
