//! How far the handler of a running item is.

use std::time::SystemTime;

/// The longest message of a progress that is kept, in bytes.
pub const MAX_PROGRESS_MESSAGE: usize = 200;

/// How far the handler of a running item is, as it has reported last. [`Lease::extend_with`](crate::Lease::extend_with) writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// When it was reported, by the clock of the lease's holder. Stored to the [millisecond](crate::millis).
    pub at: SystemTime,
    /// How much of it is done, if that is known: 0 to 100.
    pub percent: Option<u8>,
    /// What it does now; empty if it does not say.
    pub message: String,
}

impl Progress {
    /// A progress at a time. More than 100 % count as 100, and of a long message the beginning is kept.
    pub fn new(at: SystemTime, percent: Option<u8>, message: &str) -> Progress {
        let end = message.floor_char_boundary(MAX_PROGRESS_MESSAGE);
        let percent = percent.map(|percent| percent.min(100));
        Progress { at, percent, message: message[..end].to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_progress_is_bounded() {
        let long = Progress::new(UNIX_EPOCH, Some(101), &"é".repeat(101));
        assert_eq!((long.percent, long.message.len()), (Some(100), MAX_PROGRESS_MESSAGE));
        assert_eq!(Progress::new(UNIX_EPOCH, None, &"é".repeat(100)).message.len(), MAX_PROGRESS_MESSAGE);
        let odd = Progress::new(UNIX_EPOCH, Some(0), &format!("a{}", "é".repeat(100)));
        assert_eq!((odd.percent, odd.message.len()), (Some(0), MAX_PROGRESS_MESSAGE - 1));
    }
}
