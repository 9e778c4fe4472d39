//! Deliberately wrong versions of single steps, for tests of the tests: `.ci/mutants` lists them and checks that each is found.

/// True if the environment variable `KVQUEUE_MUTANT` selects the wrong version `name`.
#[cfg(feature = "mutants")]
pub fn mutant(name: &str) -> bool {
    use std::sync::LazyLock;
    static SELECTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("KVQUEUE_MUTANT").ok());
    SELECTED.as_deref() == Some(name)
}

/// Without the feature `mutants` no wrong version exists in the program.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant(_name: &str) -> bool {
    false
}
