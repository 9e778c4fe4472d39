//! Mutants: deliberately wrong versions of single steps, which check that the tests find them. See
//! `.ci/mutants`.

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
