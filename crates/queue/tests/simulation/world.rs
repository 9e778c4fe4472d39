//! What the workers of a run share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foundationdb::Database;
use kvqueue_queue::{Kind, NewItem, Queue, VersionHistory};

use crate::coverage::Coverage;
use crate::ground::Setting;
use crate::oracle::Oracle;
use crate::place::Place;
use crate::rng::Rng;

/// A time of a clock, in milliseconds since 1970: the model reckons with numbers, as rows have them.
pub(crate) type Millis = u64;

/// Where clocks begin.
const EPOCH: Millis = 1_800_000_000_000;

/// Items by the number of a queue and the name of an operation there.
type Named = BTreeMap<(usize, Vec<u8>), Vec<NewItem>>;

/// What the workers of a run share.
pub(crate) struct World {
    pub(crate) db: Rc<Database>,
    pub(crate) place: Place,
    /// The queue; and perhaps another one, which has members of its batches.
    pub(crate) queues: Vec<Queue>,
    /// Whether operators divide the queue into partitions.
    pub(crate) is_divided: bool,
    /// Whether operators make schedules.
    pub(crate) has_schedules: bool,
    /// Whether operators change single items.
    pub(crate) has_changes: bool,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) coverage: RefCell<Coverage>,
    /// By which approach all consumers take, if they agree.
    pub(crate) approach: Option<usize>,
    /// The true time: microseconds since the beginning. Every monotonic clock shows it, and no clock on a wall.
    time: Arc<AtomicU64>,
    /// How far clocks on walls have been set ahead, in milliseconds.
    turned: Arc<AtomicI64>,
    /// The same, each time they were set counted as if it had been ahead.
    turns: Cell<u64>,
    /// What those of the sweepers have seen of the versions that belong to one process.
    pub(crate) history: VersionHistory,
    /// No more faults and no more crashes: what there is to do is to be done.
    pub(crate) is_calm: Cell<bool>,
    /// How many sessions there have been.
    sessions: Cell<u64>,
    /// What a producer pushed last to a queue under a name, or tried to.
    pub(crate) named: RefCell<Named>,
}

impl World {
    /// A world with an empty queue.
    pub(crate) fn new(db: Rc<Database>, seed: u64, setting: Setting, kind: Kind, rng: &mut Rng) -> World {
        let place = Place::new(seed);
        let kinds = if setting.has_second(seed) { vec![kind, Kind::Fifo] } else { vec![kind] };
        let queues = kinds.iter().enumerate().map(|(at, kind)| place.queue(at, *kind)).collect();
        let time = Arc::<AtomicU64>::default();
        World {
            db,
            queues,
            is_divided: setting.is_divided(seed, kind),
            has_schedules: setting == Setting::Scheduled,
            has_changes: setting == Setting::Changed,
            place,
            oracle: RefCell::new(Oracle::new(&kinds)),
            coverage: RefCell::default(),
            approach: [None, Some(0), Some(1), Some(2)][rng.below(4)],
            history: history(&time),
            time,
            turned: Arc::default(),
            turns: Cell::new(0),
            is_calm: Cell::new(false),
            sessions: Cell::new(0),
            named: RefCell::default(),
        }
    }

    /// The true time.
    pub(crate) fn time(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    /// What a clock on a wall says that is as right as any.
    pub(crate) fn clock(&self) -> Millis {
        self.clock_of(0)()
    }

    /// A clock on a wall that is wrong by so many milliseconds.
    pub(crate) fn clock_of(&self, skew: i64) -> impl Fn() -> Millis + Send + Sync + 'static {
        let (time, turned) = (Arc::clone(&self.time), Arc::clone(&self.turned));
        move || {
            let right = EPOCH + time.load(Ordering::Relaxed) / 1_000;
            right.saturating_add_signed(turned.load(Ordering::Relaxed) + skew)
        }
    }

    /// How much those clocks were set, there and back, in milliseconds.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Time passes.
    pub(crate) fn pass(&self, by: u64) {
        self.time.fetch_add(by, Ordering::Relaxed);
    }

    /// Clocks on walls are set.
    pub(crate) fn turn(&self, by: i64) {
        self.turned.fetch_add(by, Ordering::Relaxed);
        self.turns.update(|turns| turns + by.unsigned_abs());
    }

    /// The history of a process that has seen nothing yet.
    pub(crate) fn new_history(&self) -> VersionHistory {
        history(&self.time)
    }

    /// The number of a new session.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.update(|n| n + 1);
        self.sessions.get()
    }

    /// Counts something that happened.
    pub(crate) fn count(&self, what: impl Into<String>) {
        self.coverage.borrow_mut().count(what);
    }

    /// Counts something, if it happened.
    pub(crate) fn count_if(&self, happened: bool, what: &str) {
        if happened {
            self.count(what);
        }
    }

    /// Tells of something that happened and is no commit.
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.oracle.borrow_mut().history.note(line);
    }
}

fn history(time: &Arc<AtomicU64>) -> VersionHistory {
    let time = Arc::clone(time);
    VersionHistory::new(move || Duration::from_micros(time.load(Ordering::Relaxed)))
}
