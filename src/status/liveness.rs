//! The judgement whether the daemon works.

use std::time::{Duration, Instant};

/// The liveness is judged every few seconds, on the actors' thread. If it has not been for this
/// long, that thread is blocked.
const STALE: Duration = Duration::from_secs(45);

/// The last judgement of the liveness.
#[derive(Debug)]
pub(super) struct Liveness {
    at: Instant,
    stuck: Option<String>,
}

impl Liveness {
    /// A judgement of now: the daemon works, or this is stuck.
    pub(super) fn new(stuck: Option<String>) -> Self {
        Self { at: Instant::now(), stuck }
    }

    /// Whether the daemon works now. The error names what is stuck, and for how long.
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
    fn a_stuck_consumer_and_a_silent_thread_are_reported() {
        assert_eq!(Liveness::new(None).now(), Ok(()));
        assert_eq!(Liveness::new(Some("this is stuck".to_owned())).now(), Err("this is stuck".to_owned()));
        let Some(at) = Instant::now().checked_sub(STALE) else { return };
        let told = Liveness { at, stuck: None }.now().unwrap_err();
        assert!(told.contains("stood still for 45 s"), "{told}");
    }
}
