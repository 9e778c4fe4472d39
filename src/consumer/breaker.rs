//! Holds a queue's fetches back while its handler cannot work: a circuit breaker.
//!
//! ```text
//!   closed ── Outcome::Unavailable ──▶ open, pause of 100 ms ──▶ one consumer fetches one item: the trial
//!      ▲                                   ▲                        │ │
//!      │                                   └── Unavailable: the ────┘ │
//!      │                                       pause doubles, to 10 s │
//!      └────────────── any other outcome, or Context::works ──────────┘
//! ```
//!
//! Items that other consumers have fetched and not begun when the breaker opens go back to the queue.
//!
//! After [`Unavailable`](crate::handlers::Outcome::Unavailable) the first item of the queue is tried again. After
//! [`UnavailableAfter`](crate::handlers::Outcome::UnavailableAfter), where the item may be the reason, the first ones of a queue may all be such
//! items. So every second trial is about the last item of the queue, and one success is enough for all.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use tokio::{sync::Notify, time::sleep_until};

use crate::{
    base::{backoff, clock},
    handlers::{AnyHandler, Outcome},
};

/// The circuit breaker of one queue in this process. Each queue name has one; it outlives reloads.
#[derive(Debug)]
pub(crate) struct Breaker {
    queue: Arc<str>,
    /// Whether it is open; read without the state's lock before each fetch and each call.
    is_open: AtomicBool,
    state: Mutex<State>,
    /// Wakes the consumers that wait.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    /// The handler of the queue's active settings; none before [`Breaker::reset`].
    newest: Option<Tried>,
    /// How often the settings have changed.
    resets: u64,
    /// How many trials there have been.
    trials: u64,
}

/// A handler, and the settings that it is from.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) handling: AnyHandler,
    /// The number of those settings: later ones have a higher number.
    settings: u64,
}

/// An open breaker.
#[derive(Debug)]
struct Open {
    outage: Outage,
    since: Instant,
    /// The next trial may begin.
    next: Instant,
    /// Whether the item may have been the reason of the last try's failure.
    item_may_be_why: bool,
    trial: Option<Trial>,
}

/// A trial, from the permission to fetch an item for it to the end of the item's batch.
#[derive(Clone, Copy, Debug)]
struct Trial {
    consumer: u64,
    /// No other trial of this breaker has it.
    number: u64,
    /// A dispatcher has the item. Until then the consumer may ask again, as after a fetch that failed.
    has_begun: bool,
}

/// How long a handler has not been able to work, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// Since when.
    pub(crate) since: SystemTime,
    /// The handler's reason in the last try.
    pub(crate) reason: String,
    /// Tries in a row in which the handler could not work.
    pub(crate) tries: u32,
}

/// The answer to a consumer that asks for a trial.
enum Answer {
    Go,
    WaitUntil(Instant),
    /// Another consumer has the trial.
    Wait,
}

impl Breaker {
    /// A closed breaker.
    pub(crate) fn new(queue: Arc<str>) -> Self {
        Self { queue, is_open: AtomicBool::new(false), state: Mutex::default(), changed: Notify::new() }
    }

    /// Whether the handler could not work when it was called last.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// The status of an open breaker.
    pub(crate) fn outage(&self) -> Option<Outage> {
        Some(self.lock().open.as_ref()?.outage.clone())
    }

    /// Whether this consumer may not call the handler now.
    pub(crate) fn holds_back(&self, consumer: u64) -> bool {
        self.is_open() && self.lock().open.as_ref().is_some_and(|open| !open.is_tried_by(consumer))
    }

    /// Waits until this consumer may call the handler. If the breaker is still open then, the call is the trial, and no
    /// other consumer gets one before [`fails`](Self::fails), [`works`](Self::works), [`leave`](Self::leave) or [`end`](Self::end).
    /// A consumer that prefetches while it has the trial waits, too.
    pub(crate) async fn admit(&self, consumer: u64) {
        loop {
            // Before the question: a change after it wakes this consumer.
            let changed = self.changed.notified();
            match self.ask(consumer) {
                Answer::Go => return,
                Answer::Wait => changed.await,
                Answer::WaitUntil(next) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(next.into()) => {}
                },
            }
        }
    }

    fn ask(&self, consumer: u64) -> Answer {
        let mut state = self.lock();
        let State { open: Some(open), trials, .. } = &mut *state else { return Answer::Go };
        match open.trial {
            Some(trial) if trial.consumer == consumer && !trial.has_begun => Answer::Go,
            Some(_) => Answer::Wait,
            None if Instant::now() < open.next => Answer::WaitUntil(open.next),
            None => {
                *trials += 1;
                open.trial = Some(Trial { consumer, number: *trials, has_begun: false });
                Answer::Go
            }
        }
    }

    /// Whether a trial that is fetched for now is to have the last item of the queue, and not the first one.
    pub(crate) fn tries_the_last(&self) -> bool {
        let is_second = |open: &Open| open.item_may_be_why && open.outage.tries % 2 == 1;
        self.is_open() && self.lock().open.as_ref().is_some_and(is_second)
    }

    /// A consumer's call of a handler ended with this outcome, [`Outcome::Unavailable`] or [`Outcome::UnavailableAfter`]. Returns the tries so
    /// far, if this was one of them. Calls that began before the breaker opened, those of a handler of earlier settings, and other outcomes are
    /// not counted.
    pub(crate) fn fails(&self, consumer: u64, tried: &Tried, outcome: &Outcome) -> Option<u32> {
        let (reason, item_may_be_why) = match outcome {
            Outcome::Unavailable(reason) => (reason, false),
            Outcome::UnavailableAfter(_, reason) => (reason, true),
            _ => return None,
        };
        let mut state = self.lock();
        if tried.settings < state.resets {
            return None;
        }
        let tries = match &mut state.open {
            None => {
                let outage = Outage { since: clock::now(), reason: reason.clone(), tries: 1 };
                let (since, next) = (Instant::now(), Instant::now() + backoff::pause(1));
                state.open = Some(Open { outage, since, next, item_may_be_why, trial: None });
                self.is_open.store(true, Ordering::Release);
                tracing::error!(
                    event = "handler_unavailable",
                    queue = %self.queue,
                    reason,
                    "the handler cannot work; items are released unspent, and one at a time is tried until it works"
                );
                1
            }
            Some(open) if open.is_tried_by(consumer) => {
                (open.trial, open.item_may_be_why) = (None, item_may_be_why);
                open.outage.tries = open.outage.tries.saturating_add(1);
                open.outage.reason.clone_from(reason);
                open.next = Instant::now() + backoff::pause(open.outage.tries);
                open.outage.tries
            }
            Some(_) => return None,
        };
        drop(state);
        self.changed.notify_waiters();
        Some(tries)
    }

    /// The handler could work in this consumer's trial.
    pub(crate) fn works(&self, consumer: u64) {
        if self.is_open() && !self.holds_back(consumer) {
            self.close("a trial succeeded");
        }
    }

    /// Gives up this consumer's trial, if it has it and has no item for it, so that another consumer can have it.
    pub(crate) fn leave(&self, consumer: u64) {
        self.give_up(|trial| trial.consumer == consumer && !trial.has_begun);
    }

    /// This consumer begins with a batch. Returns the trial's number, if the batch is one.
    pub(crate) fn begin(&self, consumer: u64) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        let mut state = self.lock();
        let trial = state.open.as_mut()?.trial.as_mut().filter(|trial| trial.consumer == consumer)?;
        trial.has_begun = true;
        Some(trial.number)
    }

    /// The batch of this trial has ended: another consumer can have the next trial. By then the same consumer may
    /// have a later one.
    pub(crate) fn end(&self, number: u64) {
        self.give_up(|trial| trial.number == number);
    }

    fn give_up(&self, is_it: impl Fn(&Trial) -> bool) {
        if self.is_open()
            && let Some(open) = &mut self.lock().open
            && open.trial.as_ref().is_some_and(is_it)
        {
            open.trial = None;
            self.changed.notify_waiters();
        }
    }

    /// The queue has new settings, and this handler.
    pub(crate) fn reset(&self, handling: AnyHandler) -> Tried {
        let tried = {
            let mut state = self.lock();
            state.resets += 1;
            let settings = state.resets;
            state.newest.insert(Tried { handling, settings }).clone()
        };
        self.close("the queue's settings have changed");
        tried
    }

    /// The handler of the active settings. Items that have left the queue wait for it if their own cannot work.
    pub(crate) fn newest(&self) -> Option<Tried> {
        self.lock().newest.clone()
    }

    fn close(&self, reason: &'static str) {
        let Some(Open { outage, since, .. }) = self.lock().open.take() else { return };
        self.is_open.store(false, Ordering::Release);
        self.changed.notify_waiters();
        let (lasted_ms, tries) = (since.elapsed().as_millis(), outage.tries);
        tracing::info!(
            event = "handler_available",
            queue = %self.queue,
            reason,
            lasted_ms,
            tries,
            "the handler gets items again"
        );
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl Open {
    fn is_tried_by(&self, consumer: u64) -> bool {
        self.trial.is_some_and(|trial| trial.consumer == consumer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::handlers::Log;

    /// A queue's breaker, and its handler.
    fn breaker() -> (Breaker, Tried) {
        let breaker = Breaker::new("q".into());
        let tried = breaker.reset(handling());
        (breaker, tried)
    }

    fn handling() -> AnyHandler {
        AnyHandler::Each(Arc::new(Log))
    }

    #[tokio::test]
    async fn an_open_breaker_admits_one_consumer_at_a_time() {
        let (breaker, tried) = breaker();
        assert!(breaker.admit(1).now_or_never().is_some() && !breaker.holds_back(1));
        assert_eq!(breaker.fails(1, &tried, &Outcome::unavailable("gone")), Some(1));
        assert_eq!(breaker.fails(2, &tried, &Outcome::unavailable("gone")), None, "its call began before");
        assert!(breaker.holds_back(1) && breaker.holds_back(2));
        breaker.admit(1).await;
        assert!(!breaker.holds_back(1) && breaker.holds_back(2));
        assert!(breaker.admit(2).now_or_never().is_none());
        breaker.works(2);
        assert!(breaker.is_open(), "its call began before, too");
        assert_eq!(breaker.fails(1, &tried, &Outcome::unavailable("still gone")), Some(2));
        let Outage { reason, tries, .. } = breaker.outage().unwrap();
        assert_eq!((&*reason, tries), ("still gone", 2));
        breaker.admit(2).await;
        breaker.works(2);
        assert!(!breaker.is_open() && breaker.outage().is_none() && !breaker.holds_back(1));
    }

    #[tokio::test]
    async fn every_second_trial_after_items_that_may_be_the_reason_is_about_the_last_item() {
        let (breaker, tried) = breaker();
        let postponed = Outcome::UnavailableAfter(Duration::from_secs(1), "503".to_owned());
        assert!(!breaker.tries_the_last());
        breaker.fails(1, &tried, &postponed);
        for is_last in [true, false, true] {
            assert_eq!(breaker.tries_the_last(), is_last);
            breaker.admit(1).await;
            breaker.fails(1, &tried, &postponed);
        }
        breaker.admit(1).await;
        // A connection that fails is no item's fault, so items keep their order.
        assert_eq!(breaker.fails(1, &tried, &Outcome::unavailable("refused")), Some(5));
        assert!(!breaker.tries_the_last());
        breaker.admit(1).await;
        breaker.works(1);
        assert!(!breaker.tries_the_last());
    }

    #[tokio::test]
    async fn an_abandoned_trial_passes_to_another_consumer() {
        let (breaker, tried) = breaker();
        breaker.fails(1, &tried, &Outcome::unavailable("gone"));
        breaker.admit(1).await;
        tokio::join!(breaker.admit(2), async { breaker.leave(1) });
        assert!(breaker.holds_back(1) && !breaker.holds_back(2));
    }

    #[tokio::test]
    async fn a_trial_that_has_begun_ends_with_its_own_batch_only() {
        let (breaker, tried) = breaker();
        assert_eq!(breaker.begin(1), None, "the batch in which the outage begins is no trial");
        breaker.fails(1, &tried, &Outcome::unavailable("gone"));
        breaker.admit(1).await;
        assert!(breaker.admit(1).now_or_never().is_some(), "its fetch may have failed");
        let first = breaker.begin(1).unwrap();
        assert_eq!(breaker.begin(2), None);
        assert!(breaker.admit(1).now_or_never().is_none(), "it prefetches");
        breaker.leave(1);
        assert!(!breaker.holds_back(1), "that its prefetch found nothing is no end of its trial");
        breaker.fails(1, &tried, &Outcome::unavailable("gone"));
        breaker.admit(1).await;
        breaker.end(first);
        assert!(!breaker.holds_back(1), "it has the next trial");
        let second = breaker.begin(1).unwrap();
        breaker.end(second);
        assert!(breaker.holds_back(1) && breaker.admit(2).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_change_of_settings_closes_the_breaker() {
        let (breaker, tried) = breaker();
        breaker.fails(1, &tried, &Outcome::unavailable("gone"));
        breaker.admit(1).await;
        let reset = async { breaker.reset(handling()) };
        let ((), (), newest) = tokio::join!(breaker.admit(2), breaker.admit(3), reset);
        assert!(!breaker.is_open());
        breaker.leave(1);
        assert_eq!(
            breaker.fails(1, &tried, &Outcome::unavailable("gone")),
            None,
            "it called the handler of the earlier settings"
        );
        assert!(!breaker.is_open());
        assert_eq!(breaker.fails(2, &newest, &Outcome::unavailable("gone")), Some(1));
    }
}
