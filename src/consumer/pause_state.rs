//! Whether items of a queue may be fetched: a queue can be paused for all daemons, or by this one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::Pause;
use tokio::sync::watch;

/// The pauses of one queue. There is one for each queue name, and it survives changes of the queue's
/// settings. Clones share their state. Nothing is fetched before the database has answered, because
/// a pause has to be reliable.
#[derive(Clone, Debug, Default)]
pub(crate) struct PauseState {
    pauses: Arc<watch::Sender<Pauses>>,
}

#[derive(Debug, Default)]
struct Pauses {
    /// In the database, for all daemons.
    global: Option<Pause>,
    /// Of this daemon.
    local: bool,
    /// The database has answered whether there is a global pause.
    is_known: bool,
    /// When the first of the present pauses began.
    since: Option<Instant>,
}

impl Pauses {
    fn allow_fetches(&self) -> bool {
        self.is_known && self.global.is_none() && !self.local
    }

    fn is_frozen(&self) -> bool {
        !self.is_known || self.global.as_ref().is_some_and(|pause| pause.frozen)
    }

    /// To be called after each change.
    fn update_since(&mut self) {
        self.since = (!self.allow_fetches()).then(|| self.since.unwrap_or_else(Instant::now));
    }
}

impl PauseState {
    pub(crate) fn allows_fetches(&self) -> bool {
        self.pauses.borrow().allow_fetches()
    }

    /// How long fetches have not been allowed; `None` if they are.
    pub(crate) fn paused_for(&self) -> Option<Duration> {
        self.pauses.borrow().since.map(|since| since.elapsed())
    }

    /// Waits until fetches are allowed.
    pub(crate) async fn allowed(&self) {
        self.until(Pauses::allow_fetches).await;
    }

    /// Waits until sweepers may change the queue.
    pub(crate) async fn unfrozen(&self) {
        self.until(|pauses| !pauses.is_frozen()).await;
    }

    async fn until(&self, wanted: impl FnMut(&Pauses) -> bool) {
        let mut pauses = self.pauses.subscribe();
        // It cannot fail: the sender is in `self`.
        let _ = pauses.wait_for(wanted).await;
    }

    /// The pause for all daemons, or that there is none; `None` if that is not known.
    pub(crate) fn known(&self) -> Option<Option<Pause>> {
        let pauses = self.pauses.borrow();
        pauses.is_known.then(|| pauses.global.clone())
    }

    /// The last known pause for all daemons.
    pub(crate) fn global(&self) -> Option<Pause> {
        self.pauses.borrow().global.clone()
    }

    /// Whether this daemon has paused the queue for itself.
    pub(crate) fn is_paused_locally(&self) -> bool {
        self.pauses.borrow().local
    }

    /// Sets the pause that the database has. Returns whether that is a change.
    pub(crate) fn set_global(&self, pause: Option<Pause>) -> bool {
        self.pauses.send_if_modified(|pauses| {
            let was_known = std::mem::replace(&mut pauses.is_known, true);
            let same = was_known && pauses.global == pause;
            pauses.global = pause;
            pauses.update_since();
            !same
        })
    }

    /// The database does not answer.
    pub(crate) fn mark_unknown(&self) {
        self.pauses.send_modify(|pauses| {
            pauses.is_known = false;
            pauses.update_since();
        });
    }

    /// Pauses or resumes the queue for this daemon. Returns whether that is a change.
    pub(crate) fn pause_locally(&self, local: bool) -> bool {
        self.pauses.send_if_modified(|pauses| {
            pauses.local != local && {
                pauses.local = local;
                pauses.update_since();
                true
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn fetches_are_allowed_without_any_pause() {
        let state = PauseState::default();
        let pause = Pause { reason: "why".to_owned(), ..Pause::default() };
        assert!(!state.allows_fetches() && state.known().is_none(), "nobody has asked the database");
        assert!(state.set_global(None) && state.allows_fetches());
        assert_eq!(state.known(), Some(None));
        assert!(state.set_global(Some(pause.clone())) && !state.set_global(Some(pause)));
        assert!(state.pause_locally(true));
        let since = state.pauses.borrow().since;
        assert!(since.is_some());
        assert!(state.set_global(None) && state.allowed().now_or_never().is_none());
        assert_eq!(state.pauses.borrow().since, since, "the first pause began then");
        assert!(state.pause_locally(false) && state.allowed().now_or_never().is_some());
        assert_eq!(state.paused_for(), None);
    }

    #[test]
    fn an_unknown_pause_and_a_freeze_stop_sweepers_too() {
        let state = PauseState::default();
        state.set_global(None);
        state.mark_unknown();
        assert!(
            state.known().is_none() && !state.allows_fetches() && state.unfrozen().now_or_never().is_none()
        );
        assert!(state.set_global(None) && !state.set_global(None));
        assert!(state.allows_fetches() && state.unfrozen().now_or_never().is_some());
        let pause = Pause::default();
        state.set_global(Some(pause.clone()));
        assert!(!state.allows_fetches() && state.unfrozen().now_or_never().is_some());
        state.set_global(Some(Pause { frozen: true, ..pause }));
        assert!(state.unfrozen().now_or_never().is_none());
    }
}
