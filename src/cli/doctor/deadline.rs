//! How long the parties that are asked may take.

use std::time::{Duration, Instant};

/// However little of `--timeout` is left, each party gets this long to answer.
const LEAST: Duration = Duration::from_millis(250);

/// How long the parties that are asked may take together.
#[derive(Clone, Copy)]
pub(super) struct Deadline(pub(super) Option<Instant>);

impl Deadline {
    /// How long the next answer may take: not longer than `most`.
    pub(super) fn left(self, most: Duration) -> Duration {
        let left = self.0.map(|end| end.saturating_duration_since(Instant::now()).max(LEAST));
        left.map_or(most, |left| left.min(most))
    }
}
