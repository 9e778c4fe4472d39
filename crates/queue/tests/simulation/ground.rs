//! The database on which runs take place, one after the other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use fdb_embedded::Holdings;
use foundationdb::Database;
use foundationdb::options::DatabaseOption;
use futures::executor::block_on;
use kvqueue_queue::{End, Ending, Kind, Packing};
use mutant::Bounds;
use tempfile::TempDir;

use crate::coverage::Coverage;
use crate::place::Place;
use crate::rng::Rng;
use crate::simulation::Simulation;
use crate::world::World;

/// Bounds that are not drawn, since the model has them or the scheduler cannot see what waits for them. Of schedules the model expects that
/// a sweep fires all that are due.
const KEPT: &[&str] = &[
    "due-schedule-bytes",
    "due-schedule-items",
    "due-schedule-rows",
    "due-schedules",
    "history-clear-slice",
    "items-served",
    "pushes-at-a-time",
    "transaction-part-bytes",
];
/// All runs together may leave a file of this many bytes, and no rows in it.
const LEFT_FILE: u64 = 32 << 20;
/// How much of a run that failed is printed.
const LAST_LINES: usize = 60;
/// The variable with another number of lines.
const LINES: &str = "KVQUEUE_TEST_LINES";
/// Kinds of queues; half of all runs are on a FIFO.
const KINDS: [Kind; 6] = [
    Kind::Fifo,
    Kind::Fifo,
    Kind::Fifo,
    Kind::Recipe(Packing::Raw),
    Kind::Priority(End::Min, Packing::Tuple),
    Kind::Priority(End::Max, Packing::Raw),
];
/// Kinds of queues with schedules.
const KINDS_WITH_SCHEDULES: [Kind; 6] = [
    Kind::Fifo,
    Kind::Fifo,
    Kind::Keyed,
    Kind::Recipe(Packing::Raw),
    Kind::Priority(End::Min, Packing::Tuple),
    Kind::Priority(End::Max, Packing::Raw),
];

/// Kinds of queues whose items are changed.
const KINDS_WITH_CHANGES: [Kind; 6] = [
    Kind::Fifo,
    Kind::Fifo,
    Kind::Keyed,
    Kind::Keyed,
    Kind::Recipe(Packing::Raw),
    Kind::Priority(End::Max, Packing::Tuple),
];

/// What the runs of a test are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Queues of all kinds but one.
    Plain,
    /// Keyed queues.
    Keyed,
    /// Queues that an operator divides into partitions.
    Divided,
    /// Queues of all kinds with schedules; some are divided.
    Scheduled,
    /// Queues of all kinds whose items are changed, one by one; some are divided.
    Changed,
}

impl Setting {
    pub(crate) const ALL: [Setting; 5] =
        [Setting::Plain, Setting::Keyed, Setting::Divided, Setting::Scheduled, Setting::Changed];

    fn kinds(self) -> &'static [Kind] {
        match self {
            Setting::Plain => &KINDS,
            Setting::Keyed => &[Kind::Keyed],
            Setting::Divided => &[Kind::Fifo],
            Setting::Scheduled => &KINDS_WITH_SCHEDULES,
            Setting::Changed => &KINDS_WITH_CHANGES,
        }
    }

    /// Whether an operator divides the queue of a run.
    pub(crate) fn is_divided(self, seed: u64, kind: Kind) -> bool {
        self == Setting::Divided
            || (matches!(self, Setting::Scheduled | Setting::Changed)
                && kind == Kind::Fifo
                && seed.is_multiple_of(2))
    }

    /// Whether there is a second queue, which has members of the batches of the first.
    pub(crate) fn has_second(self, seed: u64) -> bool {
        self == Setting::Changed && seed % 3 == 1
    }

    /// What the name of its test has and no other.
    fn test(self) -> &'static str {
        match self {
            Setting::Plain => "simulated_runs_keep",
            Setting::Keyed => "keyed",
            Setting::Divided => "divided",
            Setting::Scheduled => "schedules",
            Setting::Changed => "changed",
        }
    }
}

/// A database.
pub(crate) struct Ground {
    db: Rc<Database>,
    url: String,
    _dir: TempDir,
}

/// What came of a run that kept all promises.
pub(crate) struct Run {
    pub(crate) history: Vec<String>,
    pub(crate) coverage: Coverage,
}

/// A run in which a promise was broken.
pub(crate) struct Failed {
    seed: u64,
    kind: Kind,
    setting: Setting,
    bounds: Bounds,
    history: Vec<String>,
    panic: Box<dyn Any + Send>,
}

impl Ground {
    pub(crate) fn new() -> Ground {
        let _network = fdb_embedded::testing::network();
        // In memory, if there is such a place: it is not the disk that is judged.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let url = format!("embedded:{}", dir.path().join("db").display());
        let db = Database::from_path(&url).unwrap();
        // Nobody gets faster by waiting here.
        db.set_option(DatabaseOption::TransactionMaxRetryDelay(0)).unwrap();
        Ground { db: Rc::new(db), url, _dir: dir }
    }

    /// Runs a seed, which draws the bounds, too.
    pub(crate) fn run(&self, seed: u64, setting: Setting) -> Result<Run, Failed> {
        let bounds = Bounds::drawn(seed).keep(KEPT).enter();
        let mut rng = Rng::new(seed);
        let kind = setting.kinds()[rng.below(setting.kinds().len())];
        let world = Rc::new(World::new(Rc::clone(&self.db), seed, setting, kind, &mut rng));
        let simulation = || Simulation::new(Rc::clone(&world), &self.url, rng).run();
        let ended = catch_unwind(AssertUnwindSafe(simulation));
        let history = world.oracle.borrow().history.lines().to_vec();
        ended.map_err(|panic| Failed {
            seed,
            kind,
            setting,
            bounds: bounds.used(),
            history: history.clone(),
            panic,
        })?;
        drop(bounds);
        self.clear(&world.place);
        let mut coverage = world.coverage.take();
        let oracle = world.oracle.borrow();
        coverage.count_many("items are passed over", oracle.jumps());
        coverage.count_many(
            "items are fetched from a partition",
            oracle.models().map(|model| model.parted).sum(),
        );
        coverage.count_many(
            "a holder keeps a lease that is past its deadline",
            oracle.models().map(|model| model.spared).sum(),
        );
        let ends = oracle.models().skip(1).map(|model| model.member_ends).sum();
        coverage.count_many("a member ends in another queue than its batch is in", ends);
        let ends = oracle.models().map(|model| model.joined_ends).sum();
        coverage.count_many("an item ends on the lease on which it has joined a batch", ends);
        let returns = oracle.models().map(|model| model.joined_returns).sum();
        coverage.count_many("an item comes back from the lease on which it has joined a batch", returns);
        let freed = oracle.models().map(|model| model.keys_freed).sum();
        coverage.count_many("a unique key is free, since its time is over", freed);
        let taken = oracle.models().map(|model| model.keys_taken_over).sum();
        coverage.count_many("a push takes over the unique key of an item that does not wait", taken);
        for model in oracle.models() {
            let (recorded, [unrecorded, found]) = model.recorded_ends();
            for (code, n) in recorded {
                coverage
                    .count_many(format!("an end is recorded: {:?}", Ending::ALL[usize::from(*code) - 1]), *n);
            }
            coverage.count_many("an end is not recorded, since no history is kept", unrecorded);
            coverage.count_many("an end is found by an attribute", found);
        }
        coverage.count_many("the mark of a schedule is taken back", oracle.model(0).taken_back);
        Ok(Run { history, coverage })
    }

    /// Whether the database is as it was before all runs: they leave no rows, and nothing in memory.
    pub(crate) fn check_holdings(&self) {
        let held = Holdings::at_rest(&self.url).unwrap();
        assert!(held.left_over().is_empty(), "there are {}", held.left_over().join(", "));
        assert!(held.rows == 0 && held.data_file <= LEFT_FILE, "{held:?}");
    }

    fn clear(&self, place: &Place) {
        let (begin, end) = place.range();
        loop {
            let tr = self.db.create_trx().unwrap();
            tr.clear_range(&begin, &end);
            match block_on(tr.commit()) {
                Ok(_) => return,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }
}

impl Failed {
    /// Prints what happened and how to repeat it, and panics on.
    pub(crate) fn report(self) -> ! {
        let Failed { seed, kind, setting, bounds, history, panic } = self;
        let lines =
            std::env::var(LINES).map_or(LAST_LINES, |lines| lines.parse().expect("a number of lines"));
        let last = history[history.len().saturating_sub(lines)..].join("\n  ");
        eprintln!(
            "seed {seed}, {kind:?}, with the bounds {bounds}, failed:\n  {last}\nrepeat it with\n  \
             KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test simulation {}",
            setting.test()
        );
        resume_unwind(panic)
    }
}
