//! The fetcher of a queue: carries out the effects of its state machine.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture,
    dev::ContextFutureSpawner,
};
use kvqueue_queue::{FetchError, Fetched, Watch};
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{sleep, sleep_until},
};

use super::messages::{Closed, ExitGuard, Fetch, Gone, Join, Leave, Observer, StopFetcher, Withdraw};
use crate::{
    base::{
        backoff,
        causes::{root_cause, with_causes},
        clock,
    },
    consumer::{
        self,
        claimed::{Claimed, NotBegun},
        fetch::{
            Ask, FetchRequest, Fetching, most_together,
            state::{Effect, Event, NoItems, Phase, Request, State},
        },
        runtime::QueueRuntime,
        status::ConsumerState,
    },
    database::STORAGE_FAILED,
};

/// A fetch waits for up to this fraction of the previous fetch's duration, so that consumers which
/// that one has just served can join it. Later requests wait until the fetch ends.
const GATHER: u32 = 8;
/// The longest such wait.
const MOST_GATHER: Duration = Duration::from_micros(500);

/// The actor. It owns the session, and the requests of consumers that wait for items.
pub(super) struct Fetcher {
    runtime: Arc<QueueRuntime>,
    state: State,
    /// The requests in `state`, by member.
    asks: BTreeMap<u64, Ask>,
    /// How many of them wait; the future that gathers them reads it.
    waiting: Rc<Cell<usize>>,
    /// What the status shows waiting consumers to wait for.
    waiting_state: ConsumerState,
    /// Absent while a fetch or the session's end is under way.
    fetching: Option<Fetching>,
    /// The watch that the last fetch armed, and how long to wait on it.
    watch: Option<(Watch, Duration)>,
    /// Waits on the watch that is armed.
    watching: Option<SpawnHandle>,
    /// Watches lost in a row.
    lost: u32,
    /// Resolves when items may be fetched again; and the consumer that waits for its trial.
    hold: Option<(SpawnHandle, Option<u64>)>,
    /// Waits until a consumer has items for idle ones.
    is_sharing: bool,
    /// The consumers. A consumer that replaces one that panicked has its id, but is another member:
    /// a fetch for the first may still be under way.
    members: BTreeSet<u64>,
    /// The last consumer to leave waits until the session is closed.
    leaving: Option<oneshot::Sender<Closed>>,
    /// Its last consumer has ended.
    stopping: bool,
    observer: Option<Observer>,
    exit_guard: ExitGuard,
}

impl Fetcher {
    pub(super) fn new(runtime: Arc<QueueRuntime>, observer: Option<Observer>, exit_guard: ExitGuard) -> Self {
        let fetching = Fetching::new(runtime.approach.clone());
        Self {
            runtime,
            state: State::default(),
            asks: BTreeMap::new(),
            waiting: Rc::default(),
            waiting_state: ConsumerState::Idle,
            fetching: Some(fetching),
            watch: None,
            watching: None,
            lost: 0,
            hold: None,
            is_sharing: false,
            members: BTreeSet::new(),
            leaving: None,
            stopping: false,
            observer,
            exit_guard,
        }
    }

    fn on(&mut self, event: Event, context: &mut Context<Self>) {
        let is_wakening = matches!(event, Event::WatchFired | Event::PollDue | Event::LookAgain);
        if let Some(observer) = self.observer.as_ref().filter(|_| is_wakening)
            && !observer(0, consumer::state::Event::Woken)
        {
            return;
        }
        // Only the delay after a watch is random.
        let random = if event == Event::WatchFired { clock::random() } else { 0 };
        for effect in self.state.on(event, most_together(self.runtime.config.delivery), random) {
            self.carry_out(effect, context);
        }
        self.waiting.set(self.state.waiting().len());
        self.show();
        self.share(context);
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        match effect {
            Effect::Gather => self.gather(context),
            Effect::Fetch => self.fetch(context),
            Effect::Watch => self.wait_for_push(context),
            Effect::Delay(delay) => after(sleep(delay), Event::DelayOver, context),
            Effect::Backoff { failures } => {
                after(sleep(backoff::pause(failures)), Event::BackoffOver, context);
            }
            Effect::Reply(consumer, reason) => {
                if let Some(ask) = self.asks.get(&consumer) {
                    self.runtime.breaker.leave(ask.status.id);
                }
                self.reply(consumer, Err(reason));
            }
        }
    }

    /// Releases the batches of a consumer that has ended.
    fn reply(&mut self, consumer: u64, reply: Result<NotBegun, NoItems>) {
        let Some(ask) = self.asks.remove(&consumer) else { return };
        // The items of a reply that nobody receives are released.
        let _ = ask.reply.send(reply);
    }

    /// Shows in the status what the consumers wait for, if that has changed.
    fn show(&mut self) {
        let state = match self.state.phase() {
            Phase::Resting | Phase::Delayed => ConsumerState::Idle,
            Phase::Gathering | Phase::Fetching => ConsumerState::Fetching,
            Phase::BackingOff => ConsumerState::Backoff,
            Phase::Held if !self.runtime.pause.allows_fetches() => ConsumerState::Paused,
            Phase::Held => ConsumerState::Unavailable,
        };
        if state == self.waiting_state {
            return;
        }
        self.waiting_state = state;
        let requests = self.state.waiting().iter().chain(self.state.fetching());
        for request in requests.filter(|request| !request.prefetch) {
            if let Some(ask) = self.asks.get(&request.asker) {
                ask.status.set(state);
                if state == ConsumerState::Idle {
                    tracing::debug!(
                        event = "consumer_idle",
                        queue = %self.runtime.name,
                        consumer = ask.status.id,
                        "waiting for a push"
                    );
                }
            }
        }
    }

    /// Waits for consumers that are about to ask. It does not sleep, since a timer is too coarse.
    fn gather(&mut self, context: &mut Context<Self>) {
        if !self.runtime.pause.allows_fetches() || self.runtime.breaker.is_open() {
            self.hold(context);
            return;
        }
        let (served, took) =
            self.fetching.as_ref().map_or((0, Duration::ZERO), |last| (last.requests, last.took));
        // Before the first fetch all consumers are about to ask.
        let expected = if served == 0 { self.members.len() } else { served };
        self.waiting.set(self.state.waiting().len());
        if self.waiting.get() >= expected {
            return self.on(Event::Gathered, context);
        }
        let waiting = self.waiting.clone();
        let until = Instant::now() + (took / GATHER).min(MOST_GATHER);
        async move {
            loop {
                yield_now().await;
                if waiting.get() >= expected || Instant::now() >= until {
                    return;
                }
            }
        }
        .into_actor(self)
        .map(|(), actor, context| {
            match actor.runtime.pause.allows_fetches() && !actor.runtime.breaker.is_open() {
                true => actor.on(Event::Gathered, context),
                false => actor.hold(context),
            }
        })
        .spawn(context);
    }

    /// Waits until the queue is not paused, and then until its handler may be called.
    fn hold(&mut self, context: &mut Context<Self>) {
        self.on(Event::Held, context);
        let Some(trial) = self.state.waiting().front().map(|request| request.asker) else {
            return self.on(Event::Released, context);
        };
        let runtime = self.runtime.clone();
        let is_open = runtime.pause.allows_fetches();
        let consumer = self.asks.get(&trial).map(|ask| ask.status.id);
        let released = async move {
            match consumer.filter(|_| is_open) {
                Some(consumer) => runtime.breaker.admit(consumer).await,
                None => runtime.pause.allowed().await,
            }
        };
        let released = released.into_actor(self).map(move |(), actor, context| {
            actor.hold = None;
            let is_trial = is_open && actor.runtime.pause.allows_fetches() && actor.runtime.breaker.is_open();
            actor.on(if is_trial { Event::Admitted(trial) } else { Event::Released }, context);
        });
        self.hold = Some((context.spawn(released), is_open.then_some(trial)));
    }

    fn fetch(&mut self, context: &mut Context<Self>) {
        let mut fetching = self.fetching.take().expect("one fetch at a time");
        let is_trial = self.runtime.breaker.is_open();
        let asks = self.state.fetching().iter().filter_map(|request| self.asks.get(&request.asker));
        let requests: Vec<_> =
            asks.map(|ask| if is_trial { FetchRequest::TRIAL } else { ask.request }).collect();
        let last = is_trial && self.runtime.breaker.tries_the_last();
        let (runtime, watch) = (self.runtime.clone(), self.state.wants_watch());
        async move {
            let fetched = fetching.fetch(&runtime, &requests, (watch, last)).await;
            (fetching, fetched)
        }
        .into_actor(self)
        .map(|(fetching, fetched), actor, context| {
            actor.runtime.fetches.beat();
            actor.fetching = Some(fetching);
            let event = actor.fetched(fetched);
            actor.on(event, context);
            actor.close_if_left(context);
            actor.stop_if_idle(context);
        })
        .spawn(context);
    }

    fn fetched(&mut self, fetched: Result<Option<Fetched<Vec<NotBegun>>>, FetchError>) -> Event {
        let is_full = matches!(&fetched, Ok(Some(Fetched { is_full: true, .. })));
        self.runtime.wants_slots.store(is_full, Ordering::Relaxed);
        match fetched {
            Ok(Some(fetched)) => {
                let event = Event::of(&fetched);
                let Fetched { got, watch, look_again_in, .. } = fetched;
                let poll = self.runtime.poll_interval;
                let wait = look_again_in.map_or(poll, |wait| wait.min(poll));
                self.watch = watch.map(|watch| (watch, wait));
                let consumers: Vec<_> = self.state.fetching().iter().map(|it| it.asker).collect();
                for (consumer, batches) in consumers.into_iter().zip(got) {
                    self.reply(consumer, Ok(batches));
                }
                event
            }
            Ok(None) => Event::Exhausted,
            Err(error) => {
                if error.code() == Some(STORAGE_FAILED) {
                    self.runtime.shutdown.storage_failed();
                }
                tracing::warn!(
                    event = "fetch_failed",
                    queue = %self.runtime.name,
                    consumers = self.state.fetching().len(),
                    error = with_causes(&error),
                    "fetch failed; retrying"
                );
                for request in self.state.fetching() {
                    if let Some(ask) = self.asks.get(&request.asker) {
                        ask.status.fetch_failed(root_cause(&error));
                    }
                }
                Event::Failed
            }
        }
    }

    /// Waits on the watch, but not for longer than the poll interval, and not beyond the time at which a rate or a
    /// throttle allows further items.
    fn wait_for_push(&mut self, context: &mut Context<Self>) {
        let Some((watch, wait)) = self.watch.take() else { return };
        if let Some(observer) = &self.observer {
            observer(0, consumer::state::Event::Idle);
        }
        tracing::debug!(event = "watch_armed", queue = %self.runtime.name, "watching for pushes");
        let look_at = tokio::time::Instant::now() + wait;
        let watching = async move {
            tokio::select! {
                fired = watch => fired.map(|()| Event::WatchFired),
                () = sleep_until(look_at) => Ok(Event::PollDue),
            }
        };
        let watching = watching.into_actor(self).map(move |end, actor: &mut Self, context| match end {
            Ok(event) => {
                actor.lost = 0;
                if event == Event::WatchFired {
                    actor.runtime.meters.wakeups.inc();
                }
                actor.on(event, context);
            }
            // The watch has failed, so look again; but with a delay, because a database that refuses
            // watches would be asked without end.
            Err(error) => {
                actor.lost = actor.lost.saturating_add(1);
                tracing::debug!(
                    event = "watch_lost",
                    queue = %actor.runtime.name,
                    %error,
                    "watch lost"
                );
                let pause = tokio::time::Instant::now() + backoff::pause(actor.lost);
                after(sleep_until(look_at.min(pause)), Event::PollDue, context);
            }
        });
        if let Some(earlier) = self.watching.replace(context.spawn(watching)) {
            context.cancel_future(earlier);
        }
    }

    /// Fetches again when another part of the daemon requests it.
    fn listen(&self, context: &mut Context<Self>) {
        let runtime = self.runtime.clone();
        async move { runtime.look_again.notified().await }
            .into_actor(self)
            .map(|(), actor, context| {
                actor.on(Event::LookAgain, context);
                actor.listen(context);
            })
            .spawn(context);
    }

    /// Gives idle consumers items that others have fetched and not begun, when there are any.
    fn share(&mut self, context: &mut Context<Self>) {
        if self.is_sharing || self.state.idle().is_none() {
            return;
        }
        self.is_sharing = true;
        let runtime = self.runtime.clone();
        async move { runtime.sharing.any().await }
            .into_actor(self)
            .map(|(), actor, context| {
                while let Some(consumer) = actor.state.idle()
                    && let Some(batch) = actor.runtime.sharing.lend()
                {
                    actor.on(Event::Lent(consumer), context);
                    actor.reply(consumer, Ok([batch].into_iter().collect()));
                }
                actor.is_sharing = false;
                actor.share(context);
            })
            .spawn(context);
    }

    fn withdraw(&mut self, consumer: u64, context: &mut Context<Self>) {
        self.on(Event::Withdrawn(consumer), context);
        if self.hold.as_ref().is_some_and(|(_, trial)| *trial == Some(consumer))
            && let Some((hold, _)) = self.hold.take()
        {
            context.cancel_future(hold);
            self.on(Event::Released, context);
        }
    }

    /// Ends a fetcher without consumers, but not before the fetch under way: its items are released.
    fn stop_if_idle(&mut self, context: &mut Context<Self>) {
        if self.stopping && self.fetching.is_some() {
            self.exit_guard.stopped();
            context.stop();
        }
    }

    /// Closes the session if its last consumer waits for that, and no fetch is under way.
    fn close_if_left(&mut self, context: &mut Context<Self>) {
        let Some(fetching) = self.fetching.as_mut().filter(|_| self.leaving.is_some()) else { return };
        let session = fetching.session.take();
        let (Some(reply), runtime) = (self.leaving.take(), self.runtime.clone()) else { return };
        async move {
            let closed = match session {
                None => Ok(None),
                Some(session) => session.close(&runtime.db).await.map(|left| {
                    runtime.meters.fetched.inc_by(left.len() as u64);
                    (!left.is_empty()).then(|| Claimed::Taken(runtime.batch(left)))
                }),
            };
            // If the consumer has ended, the batch logs the loss when it is dropped.
            let _ = reply.send(closed);
        }
        .into_actor(self)
        .spawn(context);
    }
}

/// Feeds an event to the state machine when the future resolves.
fn after(future: impl Future<Output = ()> + 'static, event: Event, context: &mut Context<Fetcher>) {
    context.spawn(actix::fut::wrap_future(future).map(move |(), actor: &mut Fetcher, context| {
        actor.on(event, context);
    }));
}

impl Actor for Fetcher {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.listen(context);
    }
}

impl Handler<Fetch> for Fetcher {
    type Result = ();

    fn handle(&mut self, Fetch(ask): Fetch, context: &mut Context<Self>) {
        let consumer = ask.member;
        let request = Request { asker: consumer, items: ask.request.items().get(), prefetch: ask.prefetch };
        self.asks.insert(consumer, ask);
        self.on(Event::Asked(request), context);
        // Consumers show as fetching by default, which is wrong while the fetcher waits.
        if let Some(ask) = self
            .asks
            .get(&consumer)
            .filter(|ask| !ask.prefetch && self.waiting_state != ConsumerState::Fetching)
        {
            ask.status.set(self.waiting_state);
        }
    }
}

impl Handler<Withdraw> for Fetcher {
    type Result = ();

    fn handle(&mut self, Withdraw(consumer): Withdraw, context: &mut Context<Self>) {
        self.withdraw(consumer, context);
    }
}

impl Handler<Join> for Fetcher {
    type Result = ();

    fn handle(&mut self, Join(consumer): Join, _: &mut Context<Self>) {
        self.members.insert(consumer);
    }
}

impl Handler<Gone> for Fetcher {
    type Result = ();

    fn handle(&mut self, Gone(consumer): Gone, context: &mut Context<Self>) {
        self.members.remove(&consumer);
        self.withdraw(consumer, context);
    }
}

impl Handler<Leave> for Fetcher {
    type Result = ();

    fn handle(&mut self, Leave { consumer, reply }: Leave, context: &mut Context<Self>) {
        self.members.remove(&consumer);
        if self.members.is_empty() {
            self.leaving = Some(reply);
            self.close_if_left(context);
        } else {
            let _ = reply.send(Ok(None));
        }
    }
}

impl Handler<StopFetcher> for Fetcher {
    type Result = ();

    fn handle(&mut self, _: StopFetcher, context: &mut Context<Self>) {
        self.stopping = true;
        self.stop_if_idle(context);
    }
}
