//! Answers to HTTP requests, counted.

use std::{collections::BTreeMap, sync::Mutex};

/// By the route, as the list of routes has it, and by the status. Neither is what a client says, so their number is bounded.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl Requests {
    /// A request to this route was answered with this status.
    pub(crate) fn count(&self, route: &'static str, code: u16) {
        *self.lock().entry((route, code)).or_default() += 1;
    }

    /// All of them.
    pub(super) fn read(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(&'static str, u16), u64>> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }
}
