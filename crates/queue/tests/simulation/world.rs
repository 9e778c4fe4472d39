//! What the workers of a run share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use foundationdb::Database;
use kvqueue_queue::{Kind, Millis, Queue};

use crate::coverage::Coverage;
use crate::oracle::Oracle;
use crate::place::Place;
use crate::rng::Rng;

/// Where clocks begin.
const EPOCH: Millis = 1_800_000_000_000;

/// What the workers of a run share.
pub(crate) struct World {
    pub(crate) db: Rc<Database>,
    pub(crate) place: Place,
    pub(crate) queue: Queue,
    pub(crate) oracle: RefCell<Oracle>,
    pub(crate) coverage: RefCell<Coverage>,
    /// By which approach all consumers take, if they agree.
    pub(crate) approach: Option<usize>,
    /// What a right clock says.
    pub(crate) clock: Cell<Millis>,
    /// No more faults and no more crashes: what there is to do is to be done.
    pub(crate) is_calm: Cell<bool>,
    /// How many sessions there have been.
    sessions: Cell<u64>,
}

impl World {
    /// A world with an empty queue.
    pub(crate) fn new(db: Rc<Database>, seed: u64, kind: Kind, rng: &mut Rng) -> World {
        let place = Place::new(seed);
        World {
            db,
            queue: place.queue(kind),
            place,
            oracle: RefCell::new(Oracle::new(kind)),
            coverage: RefCell::default(),
            approach: [None, Some(0), Some(1), Some(2)][rng.below(4)],
            clock: Cell::new(EPOCH),
            is_calm: Cell::new(false),
            sessions: Cell::new(0),
        }
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

    /// Tells of something that happened and is no commit.
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.oracle.borrow_mut().history.note(line);
    }
}
