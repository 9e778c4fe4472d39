//! Running one seed of a model.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use mutant::Bounds;

/// Bounds that decide how much one sweep, one acknowledgement or one page of dead letters does, and the one beyond which counts are estimates. Models of what
/// these leave, and of counts, keep them.
pub(crate) const OF_ONE_STEP: &[&str] = &[
    "dead-page-bytes",
    "due-schedule-bytes",
    "due-schedule-items",
    "due-schedule-rows",
    "due-schedules",
    "history-clear-slice",
    "lease-bytes-counted",
    "looks-of-a-sweep",
    "pages-of-a-sweep",
    "transaction-part-bytes",
];

/// Runs a seed, which draws the sizes of pages, too, but for those in `kept`. If it fails, prints how to repeat it, with what the test named `test` has in its name and no other.
pub(crate) async fn run_seed(
    seed: u64,
    test: &str,
    kept: &'static [&'static str],
    run: impl Future<Output = ()>,
) {
    let bounds = Bounds::drawn(seed).keep(kept).enter();
    if let Err(panic) = AssertUnwindSafe(run).catch_unwind().await {
        eprintln!(
            "seed {seed}, with the bounds {}, failed; repeat it with\n  \
             KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it {test}",
            bounds.used()
        );
        resume_unwind(panic);
    }
}
