//! Whether the daemon moves.

use std::time::{Duration, Instant};

/// Who judges does so every few seconds, on the actors' thread; one who does not for so long stands still with it.
const STALE: Duration = Duration::from_secs(45);

/// What was said last of whether the daemon moves.
#[derive(Debug)]
pub(super) struct Liveness {
    at: Instant,
    stuck: Option<String>,
}

impl Liveness {
    /// It moves, or this is stuck.
    pub(super) fn new(stuck: Option<String>) -> Self {
        Self { at: Instant::now(), stuck }
    }

    /// The same for whoever asks now. An error says what does not move, and for how long.
    pub(super) fn now(&self) -> Result<(), String> {
        if let Some(stuck) = &self.stuck {
            return Err(stuck.clone());
        }
        match self.at.elapsed() {
            silent if silent < STALE => Ok(()),
            silent => Err(format!("the actors' thread has stood still for {} s", silent.as_secs())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stuck_is_told_and_silence_is_no_good_sign() {
        assert_eq!(Liveness::new(None).now(), Ok(()));
        assert_eq!(Liveness::new(Some("this is stuck".to_owned())).now(), Err("this is stuck".to_owned()));
        let Some(at) = Instant::now().checked_sub(STALE) else { return };
        let told = Liveness { at, stuck: None }.now().unwrap_err();
        assert!(told.contains("stood still for 45 s"), "{told}");
    }
}
