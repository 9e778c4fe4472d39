//! The database on which runs take place, one after the other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::OnceLock;

use fdb_embedded::Network;
use foundationdb::Database;
use foundationdb::options::DatabaseOption;
use futures::executor::block_on;
use kvqueue_queue::{End, Kind, Packing};
use tempfile::TempDir;

use crate::coverage::Coverage;
use crate::place::Place;
use crate::rng::Rng;
use crate::simulation::Simulation;
use crate::world::World;

/// How much of a run that failed is printed.
const LAST_LINES: usize = 60;
/// Kinds of queues; half of all runs are on a FIFO.
pub(crate) const KINDS: [Kind; 6] = [
    Kind::Fifo,
    Kind::Fifo,
    Kind::Fifo,
    Kind::Recipe(Packing::Raw),
    Kind::Priority(End::Min, Packing::Tuple),
    Kind::Priority(End::Max, Packing::Raw),
];

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
    is_divided: bool,
    history: Vec<String>,
    panic: Box<dyn Any + Send>,
}

impl Ground {
    pub(crate) fn new() -> Ground {
        static NETWORK: OnceLock<Network> = OnceLock::new();
        NETWORK.get_or_init(|| Network::start().unwrap());
        // In memory, if there is such a place: it is not the disk that is judged.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let url = format!("embedded:{}", dir.path().join("db").display());
        let db = Database::from_path(&url).unwrap();
        // Nobody gets faster by waiting here.
        db.set_option(DatabaseOption::TransactionMaxRetryDelay(0)).unwrap();
        Ground { db: Rc::new(db), url, _dir: dir }
    }

    /// Runs a seed on a queue of one of these kinds, which an operator divides into partitions or does not.
    pub(crate) fn run(&self, seed: u64, kinds: &[Kind], is_divided: bool) -> Result<Run, Failed> {
        let mut rng = Rng::new(seed);
        let kind = kinds[rng.below(kinds.len())];
        let world = Rc::new(World::new(Rc::clone(&self.db), seed, kind, is_divided, &mut rng));
        let simulation = || Simulation::new(Rc::clone(&world), &self.url, rng).run();
        let ended = catch_unwind(AssertUnwindSafe(simulation));
        let history = world.oracle.borrow().history.lines().to_vec();
        ended.map_err(|panic| Failed { seed, kind, is_divided, history: history.clone(), panic })?;
        self.clear(&world.place);
        let mut coverage = world.coverage.take();
        let oracle = world.oracle.borrow();
        coverage.count_many("items are passed over", oracle.jumps());
        coverage.count_many("items are fetched from a partition", oracle.model.parted);
        coverage.count_many("a holder keeps a lease that is past its deadline", oracle.model.spared);
        Ok(Run { history, coverage })
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
        let Failed { seed, kind, is_divided, history, panic } = self;
        let last = history[history.len().saturating_sub(LAST_LINES)..].join("\n  ");
        eprintln!(
            "seed {seed}, {kind:?}, failed:\n  {last}\nrepeat it with\n  \
             KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test simulation {}",
            match kind {
                Kind::Keyed => "keyed",
                _ if is_divided => "divided",
                _ => "one_thousand_simulated_runs_keep",
            }
        );
        resume_unwind(panic)
    }
}
