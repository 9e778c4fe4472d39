//! How often each kind of thing happened, so that the simulation cannot become an empty one.

use std::collections::BTreeMap;

/// How often each kind of thing happened.
#[derive(Debug, Default, Clone)]
pub(crate) struct Coverage(BTreeMap<String, u64>);

/// What has to happen in every thousand seeds, at least so often.
const WANTED: &[(&str, u64)] = &[("push", 1000)];

impl Coverage {
    pub(crate) fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Coverage) {
        for (what, n) in &other.0 {
            *self.0.entry(what.clone()).or_default() += n;
        }
    }

    /// Panics if something hardly happened in so many seeds.
    pub(crate) fn check(&self, seeds: u64) {
        for (what, n) in &self.0 {
            println!("{n:>9} {what}");
        }
        for (what, per_thousand) in WANTED {
            let (n, least) = (self.0.get(*what).copied().unwrap_or(0), per_thousand * seeds / 1_000);
            assert!(
                n >= least,
                "{what:?} happened {n} times in {seeds} seeds, and should at least {least} times"
            );
        }
    }
}
