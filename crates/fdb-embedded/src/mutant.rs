//! Deliberately wrong versions of single steps, for tests of the tests: `.ci/mutants` lists them and checks that each is found.

/// True if the environment variable `KVQUEUE_MUTANT` selects the wrong version `name`.
#[cfg(debug_assertions)]
pub fn mutant(name: &str) -> bool {
    use std::sync::LazyLock;
    static SELECTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("KVQUEUE_MUTANT").ok());
    SELECTED.as_deref() == Some(name)
}

/// Without debug assertions, as in a release build, no wrong version exists in the program.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn mutant(_name: &str) -> bool {
    false
}
