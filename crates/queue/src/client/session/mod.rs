//! One sequential actor's identity at a queue: pushes and takes that survive an unknown outcome.
//!
//! When a commit's outcome is unknown (error 1021, a timeout, a future dropped half-way), repeating a push could
//! store its payloads twice, and repeating a take could lose what the first had removed. So every attempt has a
//! number, unique in its session, and writes it to the session's token slot in its own transaction. The next attempt
//! reads the slot first. If it holds the number of an earlier attempt of unknown outcome, that attempt committed;
//! the session kept what it had taken, and returns it. If not, it did not commit by then, and will not after: each
//! attempt has a read conflict on the slot, so it fails once a later one has written it.
//!
//! The cost in the ordinary case is one write and one conflict range, and no read.

mod aside;
mod asked;
mod avoidance;
mod choose;
mod close;
mod fetch;
mod fetched;
mod keyed;
mod known_partitions;
mod lease;
mod options;
mod partitions;
mod plan;
mod push;
mod request;
mod suspects;
mod take;
mod unresolved;
pub(crate) use std::collections::VecDeque;

pub use crate::client::session::fetched::{Fetched, Share};
pub use crate::client::session::options::FetchOptions;
pub use push::Pushed;

use crate::client::queue::Queue;
use crate::client::session::asked::Asked;
use crate::client::session::avoidance::Avoidance;
use crate::client::session::known_partitions::KnownPartitions;
use crate::client::suspects::{Quarantine, Ward};
use crate::model::item::Item;
use crate::model::rng::Rng;
pub use crate::model::session_id::SessionId;
use crate::run::retry::RetryPolicy;
use crate::run::version_history::VersionHistory;
use suspects::Passed;
use unresolved::{Unresolved, Unsure};

/// A producer's or consumer's identity at one queue. It does one thing at a time: its methods want `&mut self`.
///
/// # One session for many operations
/// A session that pushes, or takes for good, has a token slot of about 60 bytes in the queue. [`Session::close`] clears it. A session that is only dropped
/// leaves its slot for a day, until [`sweep_tokens`](crate::sweep_tokens) clears it. So do not make a session for each request:
/// keep one and use it again, push through a [`Producer`](crate::Producer) that all requests share, or close each session.
///
/// # Pushes of many sessions
/// At most 256 pushes use a [`Database`](foundationdb::Database) at a time. The others wait for their turns, in order, within the time limit of their policy. All transactions of
/// a process pass through one thread of FoundationDB's client library, so more pushes at a time would be no faster, and would delay every fetch of the process.
/// A push keeps its turn until it has ended or is dropped: poll what you have begun. Many tasks push several times as many items a second through
/// one [`Producer`](crate::Producer), which puts up to 1,000 items into a transaction.
///
/// # Dropping a future
/// A push that is dropped before it is done may or may not have happened; the session forgets it. A take that is
/// dropped is kept in mind: if it had removed items, the next take returns them, or [`Session::close`]. Items are
/// lost, as at-most-once delivery has it, only with the session itself.
#[derive(Debug)]
pub struct Session {
    queue: Queue,
    id: SessionId,
    policy: RetryPolicy,
    /// The number of the last attempt. The first is 1.
    attempt: u64,
    /// Attempts that may have committed.
    unresolved: Unresolved,
    /// The last version at which the queue was seen not to be frozen.
    unfrozen: Option<u64>,
    /// Items of a take that turned out to have committed, still to be handed out.
    recovered: VecDeque<Item>,
    /// Leases of takes that may have committed, oldest first. At most one of the takes did.
    unsure: VecDeque<Unsure>,
    /// Requests to be served that may stand in the line.
    asked: Asked,
    /// Whether versions were seen to be ahead of the queue's items.
    knows_versions: bool,
    rng: Rng,
    /// The quarantine that it shares with other sessions of its process.
    quarantine: Quarantine,
    /// The place in it of the lease that is about to be made.
    ward: Option<Ward>,
    /// How far takes have passed over suspects.
    passed: Option<Passed>,
    /// The clock that its leases are measured by.
    history: Option<VersionHistory>,
    /// How its fetches from a keyed queue avoid conflicts.
    avoidance: Avoidance,
    /// How long a row is that a take finds, key and value, on average. 0: not known yet.
    row_bytes: usize,
    /// What it knows of the queue's partitions.
    partitions: KnownPartitions,
}

impl Session {
    /// A session at `queue` with a new id, retrying without end. Nothing is written before its first
    /// operation.
    pub fn new(queue: Queue) -> Session {
        Session::with_id(queue, SessionId::new())
    }

    /// A session with an id of the caller's; see [`SessionId`] for what that has to be. Simulations use
    /// it, so that a run can be repeated.
    pub fn with_id(queue: Queue, id: SessionId) -> Session {
        Session {
            queue,
            id,
            policy: RetryPolicy::default(),
            attempt: 0,
            unresolved: Unresolved::default(),
            unfrozen: None,
            recovered: VecDeque::new(),
            unsure: VecDeque::new(),
            asked: Asked::default(),
            knows_versions: false,
            rng: Rng::of(id),
            quarantine: Quarantine::default(),
            ward: None,
            passed: None,
            history: None,
            avoidance: Avoidance::new(&mut Rng::of(id).split()),
            row_bytes: 0,
            partitions: KnownPartitions::default(),
        }
    }

    /// The same session with bounds on each operation's retries.
    #[must_use]
    pub fn with_policy(self, policy: RetryPolicy) -> Session {
        Session { policy, ..self }
    }

    /// The same session with a quarantine that it shares with others. The sessions of a process should share
    /// one: an item that kills the process ends all leases of the process with it.
    #[must_use]
    pub fn with_quarantine(self, quarantine: &Quarantine) -> Session {
        Session { quarantine: quarantine.clone(), ..self }
    }

    /// The same session with the version history of its process, whose clock it measures its leases by.
    ///
    /// When a cluster recovers, the outcome of commits is unknown, and versions jump past the deadlines of
    /// all leases. The clock still proves that nobody can have returned a lease's items. So if the lease is
    /// gone, its own acknowledgement has committed. Without a history it counts as a lost lease.
    #[must_use]
    pub fn with_history(self, history: &VersionHistory) -> Session {
        Session { history: Some(history.clone()), ..self }
    }

    /// The queue it pushes to and takes from.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The number of a new attempt.
    fn next_attempt(&mut self) -> u64 {
        self.attempt += 1;
        self.attempt
    }
}
