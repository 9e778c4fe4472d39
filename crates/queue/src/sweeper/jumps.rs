//! Versions that run ahead of time.
//!
//! FoundationDB's versions jump ahead, by a hundred million or so, when a cluster recovers, and an embedded database's by a few seconds when another
//! process takes over as its host. All leases seem to have run out then, though their holders are alive and about to extend them. A sweeper
//! that sees such a jump gives them the time of a lease to do so.

use crate::meta::Millis;

/// Read versions of a cluster without commits stand still, for up to two seconds, and then catch up. That is no jump, and on a quiet cluster
/// there is always one more of it: whoever took it for one would leave leases alone for ever.
const STANDSTILL: u64 = 3_000_000;

/// What a sweeper knows of how versions and its own clock go along.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    /// Version and time of the first look of the sweep before.
    last: Option<(u64, Millis)>,
    /// Until this version no lease counts as run out.
    until: u64,
}

impl Jumps {
    /// Takes the first look of a sweep into account: at `version`, at the time `now`, where leases have this length in versions. Returns
    /// the version until which leases are left alone, if they are.
    ///
    /// Only the first: `now` stands still while a sweep goes on, and versions do not.
    pub(super) fn begins(&mut self, version: u64, now: Millis, lease: u64) -> Option<u64> {
        if let Some((last_version, last_time)) = self.last.replace((version, now)) {
            if version < last_version {
                // Another life of the database, in which there was no jump.
                self.until = 0;
            }
            let expected = now.saturating_sub(last_time).saturating_mul(1_000);
            // A holder extends at a third of its lease, so what is less does it no harm.
            if version.saturating_sub(last_version) > expected.saturating_add(STANDSTILL.max(lease / 3)) {
                self.until = version.saturating_add(lease);
            }
        }
        self.left_until(version)
    }

    /// The version until which leases are left alone, if they are.
    pub(super) fn left_until(&self, version: u64) -> Option<u64> {
        (version < self.until).then_some(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 30_000_000;

    #[test]
    fn versions_that_keep_to_the_clock_give_no_reason_to_wait() {
        let mut jumps = Jumps::default();
        for second in 0..100 {
            assert_eq!(jumps.begins(7 + second * 1_000_000, second * 1_000, LEASE), None);
        }
        // Or lag behind it: the database was away.
        assert_eq!(jumps.begins(100_000_000, 500_000, LEASE), None);
    }

    #[test]
    fn after_a_jump_leases_get_their_length_once_more() {
        let mut jumps = Jumps::default();
        jumps.begins(0, 0, LEASE);
        let until = Some(100_000_000 + LEASE);
        assert_eq!(jumps.begins(100_000_000, 2_000, LEASE), until);
        assert_eq!(jumps.begins(110_000_000, 12_000, LEASE), until);
        assert_eq!(jumps.begins(130_000_000, 32_000, LEASE), None);
    }

    #[test]
    fn versions_that_go_back_end_it() {
        let mut jumps = Jumps::default();
        jumps.begins(0, 0, LEASE);
        assert!(jumps.begins(100_000_000, 2_000, LEASE).is_some());
        assert_eq!(jumps.begins(1_000_000, 3_000, LEASE), None);
    }

    #[test]
    fn versions_that_stand_still_and_catch_up_are_no_jump() {
        let mut jumps = Jumps::default();
        for ms in (0..100_000).step_by(700) {
            let version = ms / 2_000 * 2_000_000;
            assert_eq!(jumps.begins(version, ms, 1_000_000), None);
        }
    }

    #[test]
    fn a_sweep_that_takes_long_is_no_jump() {
        let mut jumps = Jumps::default();
        assert_eq!(jumps.begins(0, 1_000, LEASE), None);
        // Look after look of the same sweep, half a minute long; and the next one.
        for second in 1..30 {
            assert_eq!(jumps.left_until(second * 1_000_000), None);
        }
        assert_eq!(jumps.begins(30_000_000, 31_000, LEASE), None);
        // What was seen before lasts while a sweep goes on.
        let until = jumps.begins(100_000_000, 32_000, LEASE);
        assert_eq!(until, Some(100_000_000 + LEASE));
        assert_eq!(jumps.left_until(110_000_000), until);
        assert_eq!(jumps.left_until(130_000_000), None);
    }

    #[test]
    fn a_sweeper_of_leases_without_length_waits_for_nothing() {
        let mut jumps = Jumps::default();
        jumps.begins(0, 0, 0);
        assert_eq!(jumps.begins(100_000_000, 0, 0), None);
    }
}
