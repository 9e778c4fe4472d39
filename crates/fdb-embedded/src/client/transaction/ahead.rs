//! Reads at a version that the database has yet to reach.
//!
//! A storage server lets such a read wait for a second at most, for the version may be reached meanwhile. Programs see the
//! second: a timeout can end it, and a read version that comes from a quicker clock is as good as any other.

use std::time::{Duration, Instant};

use super::State;
use crate::client::database::Database;
use crate::error::{Code, Result};
use crate::link::View;
use crate::network;

/// How long a read waits for its version.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after one look at the newest version the next one follows.
const PAUSE: Duration = Duration::from_millis(10);

/// What is known of the version that the client chose.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// It has been reached.
    is_reached: bool,
    /// The read that is being run has waited for as long as it may.
    is_impatient: bool,
    /// The read that has just missed something misses the version itself.
    is_awaited: bool,
}

impl State {
    /// The view at the read version, taken now if there is none yet. A version that lies ahead is missing as long as the
    /// read may wait for it.
    pub(super) fn obtain(&mut self, database: &Database) -> Result<View> {
        let view = match &self.view {
            Some(view) => view.clone(),
            None => match database.link().view(self.chosen_version) {
                Ok(view) => view,
                Err(code) => return Err(self.ahead(code)),
            },
        };
        if self.chosen_version.is_none() || self.ahead.is_reached {
            return Ok(view);
        }
        // Another process's engine says it in its answer, and only then is it read from.
        match view.version() {
            Ok(_) => self.ahead.is_reached = true,
            Err(Code::MISSING) => {
                self.view = Some(view);
                return Err(Code::MISSING);
            }
            Err(code) => return Err(self.ahead(code)),
        }
        Ok(view)
    }

    /// There is no view at the chosen version, or not yet.
    fn ahead(&mut self, code: Code) -> Code {
        if code != Code::FUTURE_VERSION {
            return code;
        }
        // The next look has to be at a new one.
        self.view = None;
        self.ahead.is_awaited = !self.ahead.is_impatient;
        if self.ahead.is_awaited { Code::MISSING } else { code }
    }

    /// Runs a read; one that is suspended `since` then may have waited for its version for as long as it may.
    pub(super) fn run<T>(
        &mut self,
        since: Option<Instant>,
        read: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.ahead.is_impatient = since.is_some_and(|since| since.elapsed() >= PATIENCE);
        self.ahead.is_awaited = false;
        read(self)
    }

    /// Is it the version that the read which has just failed was missing?
    pub(super) fn awaits_version(&self) -> bool {
        self.ahead.is_awaited
    }
}

/// Runs a read again after a while.
pub(super) fn look_again(again: Box<dyn FnOnce() + Send>) {
    network::schedule(Instant::now() + PAUSE, again);
}
