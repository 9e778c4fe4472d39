//! Versions of the database, each with a time at which it had been read: how old something is, at least. Pure.
//!
//! Versions are not a clock. They stand still on a quiet cluster for up to two seconds, run up to a tenth fast, and jump ahead
//! when a cluster recovers. But a version that was read at some time is evidence: everything with a lower version was there before
//! that time. No jump can make such an age too great.

/// Up to this share of its age, an age may come out too small: so close together are sightings kept.
const SHARE: u64 = 16;

/// A version, and a time at which it had been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) version: u64,
    pub(crate) at: u64,
}

/// Sightings in the order of their versions and of their times. The unit of time is the caller's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sightings(Vec<Sighting>);

impl Sightings {
    /// Those of a list; `None` if they are out of order.
    pub(crate) fn new(list: Vec<Sighting>) -> Option<Sightings> {
        let in_order = list.is_sorted_by(|a, b| a.version < b.version && a.at <= b.at);
        in_order.then_some(Sightings(list))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sighting> {
        self.0.iter()
    }

    /// The newest.
    pub(crate) fn last(&self) -> Option<Sighting> {
        self.0.last().copied()
    }

    /// Adds one, and keeps `most` at the most.
    ///
    /// A higher version that was seen before is from another life of the database, before versions went back. A later time that was
    /// noted before is from a clock that was wrong. Neither says anything any more.
    pub(crate) fn note(&mut self, version: u64, at: u64, most: usize) {
        self.0.retain(|seen| seen.version <= version && seen.at <= at);
        if self.0.last().is_some_and(|last| last.version == version) {
            return;
        }
        self.0.push(Sighting { version, at });
        let mut share = SHARE;
        self.thin(at, share);
        while self.0.len() > most && share > 1 {
            share /= 2;
            self.thin(at, share);
        }
    }

    /// Drops those without which no age becomes smaller by more than one part in `share`.
    fn thin(&mut self, now: u64, share: u64) {
        let mut kept: Vec<Sighting> = Vec::with_capacity(self.0.len());
        for (at, sighting) in self.0.iter().enumerate() {
            let is_needed = match (kept.last(), self.0.get(at + 1)) {
                (Some(before), Some(next)) => next.at - before.at > (now - next.at) / share,
                _ => true,
            };
            if is_needed {
                kept.push(*sighting);
            }
        }
        self.0 = kept;
    }

    /// How long ago, at least, something of this version was there; `None` if nothing tells.
    pub(crate) fn age(&self, version: u64, now: u64) -> Option<u64> {
        let first_above = self.0.partition_point(|seen| seen.version <= version);
        self.0.get(first_above).map(|seen| now.saturating_sub(seen.at))
    }

    /// When the highest version up to this one had been read: something of this version was not there much earlier.
    pub(crate) fn time_before(&self, version: u64) -> Option<u64> {
        self.0.iter().rev().find(|seen| seen.version <= version).map(|seen| seen.at)
    }

    /// The highest version that was read at this time or before: everything below it is older.
    pub(crate) fn version_at(&self, at: u64) -> Option<u64> {
        self.0.iter().rev().find(|seen| seen.at <= at).map(|seen| seen.version)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 64;

    #[test]
    fn an_age_counts_from_the_first_higher_version() {
        let mut seen = Sightings::default();
        assert_eq!(seen.age(0, 100), None);
        seen.note(1_000, 10, MOST);
        seen.note(2_000, 50, MOST);
        assert_eq!(seen.age(999, 60), Some(50));
        // It may have been written after version 1,000 was read.
        assert_eq!(seen.age(1_000, 60), Some(10));
        assert_eq!(seen.age(2_000, 60), None);
        assert_eq!(
            (seen.version_at(49), seen.version_at(50), seen.version_at(9)),
            (Some(1_000), Some(2_000), None)
        );
        assert_eq!(
            (seen.time_before(999), seen.time_before(1_000), seen.time_before(5_000)),
            (None, Some(10), Some(50))
        );
    }

    #[test]
    fn a_version_jump_makes_no_version_older() {
        let mut seen = Sightings::default();
        seen.note(1_000, 10, MOST);
        seen.note(100_000_000, 12, MOST);
        assert_eq!(seen.age(1_500, 13), Some(1));
    }

    #[test]
    fn sightings_are_forgotten_when_versions_or_times_go_back() {
        let mut seen = Sightings::default();
        seen.note(1_000, 10, MOST);
        seen.note(9_000, 20, MOST);
        seen.note(2_000, 30, MOST);
        assert_eq!(seen.age(5_000, 40), None);
        assert_eq!(seen.age(500, 40), Some(30));
        seen.note(3_000, 25, MOST);
        assert_eq!(seen.age(1_500, 40), Some(15));
    }

    #[test]
    fn a_version_that_stands_still_counts_from_when_it_was_read_first() {
        let mut seen = Sightings::default();
        seen.note(1_000, 10, MOST);
        seen.note(1_000, 20, MOST);
        assert_eq!(seen.age(999, 30), Some(20));
        assert_eq!(seen.age(1_000, 30), None);
    }

    proptest! {
        #[test]
        fn kept_sightings_are_few_and_never_overstate_ages(
            steps in prop::collection::vec((1..1_000_000_u64, 1..1_000_000_u64), 1..2_000),
            most in prop_oneof![Just(MOST), Just(512_usize)],
        ) {
            let (mut seen, mut all, mut now) = (Sightings::default(), Vec::new(), 0);
            let mut version = 0;
            for (by, time) in steps {
                (version, now) = (version + by, now + time);
                seen.note(version, now, most);
                all.push(Sighting { version, at: now });
                prop_assert!(seen.0.len() <= most.max(64));
            }
            for at in (0..all.len()).step_by(7) {
                let exact = now - all[at].at;
                let age = seen.age(all[at].version - 1, now).expect("a higher version was seen");
                prop_assert!(age <= exact);
                if most == 512 {
                    prop_assert!(age + age / SHARE + 1_000_000 >= exact, "{age} of {exact}");
                }
            }
            prop_assert!(Sightings::new(seen.0.clone()).is_some());
        }
    }
}
