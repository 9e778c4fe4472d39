//! How old operations and the slots of sessions are: by the times at which sweepers have read versions.

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::{Space, times};
use crate::model::error::QueueError;
use crate::model::sightings::Sightings;
use crate::model::time::Millis;
use crate::run::version::now;

/// The most pairs of a version and a time.
fn most_pairs() -> usize {
    bound("noted-times", 64)
}

/// A new pair is noted after this part of the time for which something is kept.
const PART: u64 = 16;

/// The times that are noted. A record that this version does not know says nothing, and is replaced.
pub(crate) async fn read(space: &Space, tr: &Transaction, snapshot: bool) -> Result<Sightings, QueueError> {
    let value = tr.get(&space.times, snapshot).await?;
    Ok(value.as_deref().and_then(times::decode).unwrap_or_default())
}

/// Notes that `known` had been read at the time `at`, if it is time to note another pair. Returns whether it wrote that.
///
/// The transaction's own version will not do: it may have been read long after the time was.
pub(crate) async fn note(
    space: &Space,
    tr: &Transaction,
    known: u64,
    at: Millis,
    kept: u64,
) -> Result<bool, QueueError> {
    let mut times = read(space, tr, false).await?;
    let is_due = is_due(&times, known, now(tr).await?, at, kept);
    if is_due {
        times.note(known, at, most_pairs());
        tr.set(&space.times, &times::encode(&times));
    }
    Ok(is_due)
}

/// Everything before this version is older than `kept` versions, and older than as many microseconds; 0 if nothing is known to be.
///
/// Neither a jump of the versions alone nor a wrong clock alone makes anything old.
pub(crate) fn old_before(times: &Sightings, version: u64, at: Millis, kept: u64) -> u64 {
    let by_time = at.checked_sub(millis(kept)).and_then(|at| times.version_at(at)).unwrap_or(0);
    by_time.min(version.saturating_sub(kept))
}

/// Whether it is time to note another pair, if something is kept for this many versions. `known` had been read at the time `at`.
pub(crate) fn is_due(times: &Sightings, known: u64, version: u64, at: Millis, kept: u64) -> bool {
    let Some(last) = times.last() else { return true };
    // From another life of the database; or from a clock that was wrong; or old.
    let is_over = last.at > at || at - last.at >= millis(kept).div_ceil(PART).max(1);
    last.version > version || (known > last.version && is_over)
}

/// Versions are microseconds, as long as nothing goes wrong.
fn millis(versions: u64) -> Millis {
    versions.div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 seconds.
    const KEPT: u64 = 100_000_000;

    fn times(pairs: &[(u64, Millis)]) -> Sightings {
        let mut times = Sightings::default();
        pairs.iter().for_each(|(version, at)| times.note(*version, *at, most_pairs()));
        times
    }

    #[test]
    fn records_are_old_only_by_both_version_and_clock() {
        let seen = times(&[(1_000, 50_000), (9_000, 60_000)]);
        assert_eq!(old_before(&seen, KEPT + 5_000, 149_999, KEPT), 0);
        assert_eq!(old_before(&seen, KEPT + 5_000, 150_000, KEPT), 1_000);
        assert_eq!(old_before(&seen, KEPT + 500, 150_000, KEPT), 500);
        assert_eq!(old_before(&seen, KEPT + 5_000, 1_000_000, KEPT), 5_000);
        assert_eq!(old_before(&seen, u64::MAX, 160_000, KEPT), 9_000);
        assert_eq!(old_before(&Sightings::default(), u64::MAX, u64::MAX, KEPT), 0);
        // The clock says less than that anything is kept for.
        assert_eq!(old_before(&seen, u64::MAX, 99_999, KEPT), 0);
    }

    #[test]
    fn a_time_is_noted_periodically_and_after_a_wrong_clock() {
        assert!(is_due(&Sightings::default(), 0, 0, 0, KEPT));
        let seen = times(&[(1_000, 50_000)]);
        let is_due = |version, at, kept| is_due(&seen, version, version, at, kept);
        assert!(!is_due(2_000, 50_000, KEPT) && !is_due(2_000, 56_249, KEPT));
        assert!(is_due(2_000, 56_250, KEPT));
        assert!(is_due(2_000, 49_999, KEPT) && is_due(999, 50_000, KEPT));
        assert!(!is_due(2_000, 50_000, 0));
        // Nothing that is newer is known.
        assert!(!super::is_due(&seen, 1_000, 2_000, 56_250, KEPT));
    }
}
