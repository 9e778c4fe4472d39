//! Reads at a future version, which the database has not reached.
//!
//! A storage server lets such a read wait for up to one second, because the version may be reached
//! meanwhile. Programs can observe this: a timeout can end the wait, and a read version from a
//! slightly faster clock still works.

use std::time::{Duration, Instant};

use super::TransactionState;
use crate::client::database::Database;
use crate::error::{Code, Result};
use crate::link::View;
use crate::network;

/// How long a read waits for its version.
const PATIENCE: Duration = Duration::from_secs(1);
/// The delay between two checks of the newest version.
const PAUSE: Duration = Duration::from_millis(10);

impl TransactionState {
    /// The view at the read version, which is opened if there is none. A future version counts as
    /// missing while the read may wait for it.
    pub(super) fn obtain(&mut self, database: &Database) -> Result<View> {
        if self.view.take_if(|view| view.is_replaceable()).is_some() {
            self.ahead.is_reached = false;
        }
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
        // A remote engine reports a future version when the view is first used.
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
        // The next check needs a new view.
        self.view = None;
        self.ahead.is_awaited = !self.ahead.is_impatient;
        if self.ahead.is_awaited { Code::MISSING } else { code }
    }

    /// Runs a read. If it was suspended at `since`, its wait may be over.
    pub(super) fn run<T>(
        &mut self,
        since: Option<Instant>,
        read: impl FnOnce(&mut TransactionState) -> Result<T>,
    ) -> Result<T> {
        self.ahead.is_impatient =
            since.is_some_and(|since| baton::now().saturating_duration_since(since) >= PATIENCE);
        self.ahead.is_awaited = false;
        read(self)
    }

    /// True if the last read failed because its version was not reached.
    pub(super) fn awaits_version(&self) -> bool {
        self.ahead.is_awaited
    }
}

/// Runs a read again after a delay.
pub(super) fn retry_later(again: Box<dyn FnOnce() + Send>) {
    network::schedule(baton::now() + PAUSE, again);
}
