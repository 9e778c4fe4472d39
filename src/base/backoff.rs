//! Pauses after failures in a row.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// The pause after a number of failures in a row: 100 ms, doubled each time, at most 10 s.
pub(crate) fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_limit() {
        let millis: Vec<_> = [1, 2, 3, 7, 8, u32::MAX].map(|n| pause(n).as_millis()).into();
        assert_eq!(millis, [100, 200, 400, 6_400, 10_000, 10_000]);
    }
}
