//! Waiting for items: one watch and one slow look for all idle consumers of a queue in this process. What is decided is in
//! [`state`]; it is carried out here.

mod state;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use kvqueue_queue::Watch;
use tokio::{
    sync::oneshot,
    task::AbortHandle,
    time::{Instant, sleep, sleep_until},
};

use self::state::{Effect, Event, State};
use super::{ambient, backoff};
use crate::metrics::QueueMeters;

pub(crate) use self::state::Member;

/// The idle consumers of a queue, and what wakes them. Its tasks run on the actors' runtime, where it is to be used.
pub(crate) struct Idle {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    queue: Arc<str>,
    meters: Arc<QueueMeters>,
    state: State,
    next: Member,
    /// By which the idle ones are woken.
    wakers: BTreeMap<Member, oneshot::Sender<()>>,
    /// The task that waits on the watch.
    sentinel: Option<AbortHandle>,
    /// How long a watch is relied on.
    slow_look: Duration,
    /// Watches lost in a row.
    lost: u32,
}

/// A consumer's place among the consumers of its queue. Dropped with the consumer, it passes on what the consumer was woken for.
pub(crate) struct Place {
    shared: Arc<Mutex<Shared>>,
    /// Which one it is.
    pub(crate) member: Member,
}

impl Idle {
    /// Without members. After `slow_look` somebody looks in any case.
    pub(crate) fn new(queue: Arc<str>, slow_look: Duration, meters: Arc<QueueMeters>) -> Self {
        let shared = Shared {
            queue,
            meters,
            state: State::default(),
            next: 1,
            wakers: BTreeMap::new(),
            sentinel: None,
            slow_look,
            lost: 0,
        };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// After which somebody looks in any case.
    pub(crate) fn slow_look(&self) -> Duration {
        lock(&self.shared).slow_look
    }

    /// Takes in a consumer.
    pub(crate) fn join(&self) -> Place {
        let mut shared = lock(&self.shared);
        let member = shared.next;
        shared.next += 1;
        Place { shared: self.shared.clone(), member }
    }

    /// Whether a take that begins now should ask for a watch. Takes begin and report one after the other.
    pub(crate) fn wants_watch(&self) -> bool {
        lock(&self.shared).state.wants_watch()
    }

    /// A take found items.
    pub(crate) fn found(&self, member: Member, conflicts: bool) {
        on(&self.shared, Event::Found { member, conflicts }, None);
    }

    /// A take found nothing. The member is idle until what is returned resolves.
    pub(crate) fn empty(&self, member: Member, watch: Option<Watch>) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        lock(&self.shared).wakers.insert(member, wake);
        on(&self.shared, Event::Empty { member, watched: watch.is_some() }, watch);
        woken
    }

    /// An idle consumer is to look, for another reason than a push.
    pub(crate) fn nudge(&self) {
        on(&self.shared, Event::Nudged, None);
    }

    /// All idle consumers are to see that the queue has come to rest.
    pub(crate) fn rested(&self) {
        on(&self.shared, Event::Rested, None);
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(sentinel) = lock(&self.shared).sentinel.take() {
            sentinel.abort();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.shared).wakers.remove(&self.member);
        on(&self.shared, Event::Gone(self.member), None);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("nothing panics while it holds the lock")
}

/// Has the state decide, and carries it out.
fn on(this: &Arc<Mutex<Shared>>, event: Event, mut watch: Option<Watch>) {
    let mut shared = lock(this);
    // Chance matters to nothing but how far to keep away from others that a watch wakes.
    let random = match event {
        Event::Fired => {
            shared.meters.wakeups.inc();
            ambient::random()
        }
        _ => 0,
    };
    for effect in shared.state.on(event, random) {
        match effect {
            Effect::Watch => {
                if let Some(watch) = watch.take() {
                    let sentinel = tokio::spawn(stand(Arc::downgrade(this), watch, shared.slow_look));
                    shared.sentinel = Some(sentinel.abort_handle());
                    tracing::debug!(queue = %shared.queue, "watching for pushes");
                }
            }
            Effect::Wake { member, after } => shared.wake(member, after),
        }
    }
}

impl Shared {
    fn wake(&mut self, member: Member, after: Duration) {
        // Whoever is gone by now has said so, and somebody else is woken.
        let Some(waker) = self.wakers.remove(&member) else { return };
        if after.is_zero() {
            let _ = waker.send(());
            return;
        }
        tokio::spawn(async move {
            sleep(after).await;
            let _ = waker.send(());
        });
    }
}

/// Waits on a watch, but not for longer than it is relied on.
async fn stand(shared: Weak<Mutex<Shared>>, watch: Watch, slow_look: Duration) {
    let look_at = Instant::now() + slow_look;
    let end = tokio::select! {
        fired = watch => fired.map(|()| Event::Fired),
        () = sleep_until(look_at) => Ok(Event::Expired),
    };
    let pause = {
        let Some(this) = shared.upgrade() else { return };
        let error = match end {
            Ok(event) => {
                lock(&this).lost = 0;
                return on(&this, event, None);
            }
            Err(error) => error,
        };
        let mut shared = lock(&this);
        shared.lost = shared.lost.saturating_add(1);
        tracing::debug!(queue = %shared.queue, %error, "watch lost");
        backoff::pause(shared.lost)
    };
    // The watch is gone, not the queue. But a database that takes no watches is not to be asked without end.
    sleep_until(look_at.min(Instant::now() + pause)).await;
    if let Some(shared) = shared.upgrade() {
        on(&shared, Event::Expired, None);
    }
}
