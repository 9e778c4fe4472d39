//! Whether takes of a queue may begin: a queue can be paused, for all daemons or for this one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::Pause;
use tokio::sync::watch;

/// What holds a queue's takes back. One for a name, whatever becomes of the queue's settings; clones are the same gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    hold: Option<Pause>,
    here: bool,
    /// Whether there is a hold could not be read yet.
    unknown: bool,
    /// When the gate closed, if it is closed.
    closed_at: Option<Instant>,
}

impl State {
    fn is_open(&self) -> bool {
        self.hold.is_none() && !self.here && !self.unknown
    }

    fn is_frozen(&self) -> bool {
        self.unknown || self.hold.as_ref().is_some_and(|hold| hold.frozen)
    }

    /// Notes when the gate closed. Called after each change.
    fn note_closed(&mut self) {
        self.closed_at = (!self.is_open()).then(|| self.closed_at.unwrap_or_else(Instant::now));
    }
}

impl Gate {
    /// Whether takes may begin.
    pub(crate) fn is_open(&self) -> bool {
        self.state.borrow().is_open()
    }

    /// How long the gate has been closed; none if it is open.
    pub(crate) fn closed_for(&self) -> Option<Duration> {
        self.state.borrow().closed_at.map(|at| at.elapsed())
    }

    /// Waits until they may.
    pub(crate) async fn opened(&self) {
        self.until(State::is_open).await;
    }

    /// Waits until sweepers need not leave the queue alone.
    pub(crate) async fn thawed(&self) {
        self.until(|state| !state.is_frozen()).await;
    }

    async fn until(&self, wanted: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        // The sender is in `self`.
        let _ = state.wait_for(wanted).await;
    }

    /// Why all daemons are held back, if they are.
    pub(crate) fn hold(&self) -> Option<Pause> {
        self.state.borrow().hold.clone()
    }

    /// Whether this daemon is held back by itself.
    pub(crate) fn is_paused_locally(&self) -> bool {
        self.state.borrow().here
    }

    /// What the database says. Returns whether it said something else before.
    pub(crate) fn set_hold(&self, hold: Option<Pause>) -> bool {
        self.state.send_if_modified(|state| {
            let known = !std::mem::take(&mut state.unknown);
            let same = known && state.hold == hold;
            state.hold = hold;
            state.note_closed();
            !same
        })
    }

    /// The database does not say. Until it does, nothing is taken: whoever paused the queue may rely on it.
    pub(crate) fn doubt(&self) {
        self.state.send_modify(|state| {
            state.unknown = true;
            state.note_closed();
        });
    }

    /// What this daemon was told. Returns whether it was told something else before.
    pub(crate) fn pause_locally(&self, here: bool) -> bool {
        self.state.send_if_modified(|state| {
            state.here != here && {
                state.here = here;
                state.note_closed();
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
    fn both_have_to_let_go() {
        let gate = Gate::default();
        let hold = Pause { at: 1, reason: "why".to_owned(), frozen: false };
        assert!(gate.is_open());
        assert!(gate.set_hold(Some(hold.clone())) && !gate.set_hold(Some(hold)));
        assert!(gate.pause_locally(true));
        let closed_at = gate.state.borrow().closed_at;
        assert!(closed_at.is_some());
        assert!(gate.set_hold(None) && gate.opened().now_or_never().is_none());
        assert_eq!(gate.state.borrow().closed_at, closed_at, "it has been closed since the first of them");
        assert!(gate.pause_locally(false) && gate.opened().now_or_never().is_some());
        assert_eq!(gate.closed_for(), None);
    }

    #[test]
    fn what_is_not_known_is_closed_and_a_freeze_holds_sweepers_too() {
        let gate = Gate::default();
        gate.doubt();
        assert!(!gate.is_open() && gate.thawed().now_or_never().is_none());
        assert!(gate.set_hold(None) && !gate.set_hold(None));
        assert!(gate.is_open() && gate.thawed().now_or_never().is_some());
        let hold = Pause { at: 1, ..Pause::default() };
        gate.set_hold(Some(hold.clone()));
        assert!(!gate.is_open() && gate.thawed().now_or_never().is_some());
        gate.set_hold(Some(Pause { frozen: true, ..hold }));
        assert!(gate.thawed().now_or_never().is_none());
    }
}
