//! What tests may change in the code that they test: whether a step is done wrongly (a *mutant*, see `.ci/mutants`), and
//! how much fits into one page, reply or transaction (a *bound*). Both are constants without debug assertions, as in a
//! release build.

mod bounds;

pub use bounds::{Bounds, DrawnBounds, bound};

/// True if the environment variable `KVQUEUE_MUTANT` selects the mutant `name`.
#[cfg(debug_assertions)]
pub fn mutant(name: &str) -> bool {
    use std::sync::LazyLock;
    static SELECTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("KVQUEUE_MUTANT").ok());
    SELECTED.as_deref() == Some(name)
}

/// Always false without debug assertions, as in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn mutant(_name: &str) -> bool {
    false
}
