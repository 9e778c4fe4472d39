//! The consumer: an actor that carries out the effects of its state machine (`consumer/state.rs`).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, SpawnHandle, WrapFuture,
    dev::ContextFutureSpawner,
};
use tokio::{sync::oneshot, task::JoinError, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    context::ConsumerContext,
    fetcher::Fetcher,
    messages::{ConsumerSpec, Drain, ExitGuard, Fetch, Gone, Join, Leave, Ping, Withdraw},
};
use crate::{
    base::causes::with_causes,
    config::Delivery,
    consumer::{
        claimed::{Claimed, NotBegun},
        dispatch::Dispatcher,
        fetch::{Ask, FetchRequest, state::NoItems},
        lease::Slice,
        state::{Effect, Event, Found, State},
        status::{ConsumerState, ConsumerStatus},
    },
    database::STORAGE_FAILED,
};

/// A consumer prefetches as many batches as its handler handles in this time. With a slower handler, a
/// fetch is a small part of the whole.
const PREFETCH_TIME: Duration = Duration::from_millis(10);

/// How long a fetch waits at most for released items to be ready again.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// A batch is slow after this time: prefetched batches do not wait for it.
const SLOW: Duration = Duration::from_millis(50);

/// The next consumer's [`Consumer::member`].
static NEXT_MEMBER: AtomicU64 = AtomicU64::new(1);

/// Handles one batch at a time. Meanwhile the previous batch may be acknowledged, and the next one
/// fetched.
pub(super) struct Consumer {
    status: Arc<ConsumerStatus>,
    spec: ConsumerSpec,
    shared: Arc<ConsumerContext>,
    state: State,
    fetcher: Addr<Fetcher>,
    /// Its number at the fetcher. A consumer that replaces this one has the same id but another number.
    member: u64,
    /// It has no more requests for the fetcher.
    has_left: bool,
    /// Batches that wait for the handler.
    claimed: NotBegun,
    /// They resolve when the batch dispatched last is acknowledged.
    acknowledging: Vec<oneshot::Receiver<()>>,
    /// They resolve when released items are ready again. The next fetch begins after that, because those
    /// items come first.
    releasing: Vec<oneshot::Receiver<()>>,
    /// Fires when the current batch is slow.
    slow: Option<SpawnHandle>,
    /// Fires on a drain: no fetch begins, and items that were not begun are released.
    stop: CancellationToken,
    exit_guard: ExitGuard,
}

impl Consumer {
    pub(super) fn new(
        spec: ConsumerSpec,
        shared: Arc<ConsumerContext>,
        status: Arc<ConsumerStatus>,
        fetcher: Addr<Fetcher>,
        exit_guard: ExitGuard,
    ) -> Self {
        let member = NEXT_MEMBER.fetch_add(1, Ordering::Relaxed);
        fetcher.do_send(Join(member));
        let stop = shared.shutdown.draining.child_token();
        Self {
            status,
            spec,
            shared,
            state: State::new(),
            fetcher,
            member,
            has_left: false,
            claimed: NotBegun::default(),
            acknowledging: Vec::new(),
            releasing: Vec::new(),
            slow: None,
            stop,
            exit_guard,
        }
    }

    fn on(&mut self, event: Event, context: &mut Context<Self>) {
        if let Some(observer) = &self.shared.observer
            && !observer(self.status.id, event)
        {
            return;
        }
        if let Event::Dispatched { .. } = event {
            self.status.set(ConsumerState::Fetching);
        }
        for effect in self.state.on(event) {
            self.carry_out(effect, context);
        }
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        if let Some(state) = consumer_state(effect) {
            self.status.set(state);
        }
        match effect {
            Effect::Fetch => self.fetch(1, false, context),
            Effect::Prefetch(batches) => self.fetch(batches, true, context),
            Effect::Release => self.release(),
            Effect::Dispatch => self.dispatch(context),
            Effect::Close => self.close(context),
            Effect::Stop => {
                self.exit_guard.stopped();
                actix::ActorContext::stop(context);
            }
        }
    }

    fn fetch(&mut self, batches: usize, prefetch: bool, context: &mut Context<Self>) {
        let (reply, mut replied) = oneshot::channel();
        let request = FetchRequest::new(self.spec.k, batches);
        let fetch = Fetch(Ask { member: self.member, request, prefetch, status: self.status.clone(), reply });
        let (fetcher, member, stop) = (self.fetcher.clone(), self.member, self.stop.clone());
        let before = std::mem::take(&mut self.releasing);
        let unsent = if before.is_empty() {
            fetcher.do_send(fetch);
            None
        } else {
            Some(fetch)
        };
        async move {
            if let Some(fetch) = unsent {
                // If releasing items fails, do not fetch.
                let _ = timeout(RELEASE_TIMEOUT, all_resolved(before)).await;
                fetcher.do_send(fetch);
            }
            tokio::select! {
                biased;
                reply = &mut replied => return reply,
                () = stop.cancelled() => fetcher.do_send(Withdraw(member)),
            }
            replied.await
        }
        .into_actor(self)
        .map(|reply, actor, context| {
            // A fetcher that panicked is replaced, and so are its consumers.
            let event = actor.on_reply(reply.unwrap_or(Err(NoItems::Withdrawn)));
            actor.on(event, context);
        })
        .spawn(context);
    }

    fn on_reply(&mut self, reply: Result<NotBegun, NoItems>) -> Event {
        match reply {
            Err(NoItems::Withdrawn) => Event::Withdrawn,
            Err(NoItems::Nothing) => Event::Fetched(Found::Nothing),
            Err(NoItems::Exhausted) => Event::Fetched(Found::Exhausted),
            Ok(batches) => {
                let (queue, items) = (&self.spec.runtime.name, batches.items());
                tracing::debug!(
                    event = "items_fetched",
                    %queue,
                    consumer = self.status.id,
                    k = self.spec.k,
                    items,
                    "items fetched"
                );
                let found = Found::Batches(batches.len());
                self.claimed.append(batches);
                Event::Fetched(found)
            }
        }
    }

    /// Hands the batch to a dispatcher on the handlers' threads. Its lease already has a keeper. A panic
    /// of the dispatcher is a bug of ours, since handlers' panics are contained: it becomes this
    /// actor's panic. Dispatcher and keeper go on if this actor panics.
    fn dispatch(&mut self, context: &mut Context<Self>) {
        let claimed = self.claimed.begin_next().expect("a dispatch follows a fetch");
        self.slow = Some(context.run_later(SLOW, |actor, context| actor.on(Event::Slow, context)));
        let before = std::mem::take(&mut self.acknowledging);
        let ConsumerContext { pool, work, .. } = &*self.shared;
        let (runtime, status) = (self.spec.runtime.clone(), self.status.clone());
        let dispatcher = Dispatcher { runtime, status: status.clone(), stop: self.stop.clone() };
        let begun = Instant::now();
        let handled = match claimed {
            Claimed::Taken(batch) => work.spawn_on(dispatcher.at_most_once(batch), pool),
            Claimed::Leased(Slice { items, handle, acknowledged }) => {
                status.set_lease_keeper(handle.heartbeat.clone());
                self.acknowledging.push(acknowledged);
                work.spawn_on(dispatcher.at_least_once(items, handle), pool)
            }
        };
        async move {
            let handled = handled.await;
            let took = begun.elapsed();
            status.handled();
            all_resolved(before).await;
            handled.map(|()| took)
        }
        .into_actor(self)
        .map(|done, actor, context| {
            if let Some(slow) = actor.slow.take() {
                context.cancel_future(slow);
            }
            let took = done.unwrap_or_else(|error| resume_panic(error));
            actor.on(Event::Dispatched { prefetch: actor.batches_to_prefetch(took) }, context);
        })
        .spawn(context);
    }

    /// How many batches to prefetch if one takes this time.
    fn batches_to_prefetch(&self, took: Duration) -> usize {
        match self.spec.runtime.config.delivery {
            // They could not be released.
            Delivery::AtMostOnce => 0,
            Delivery::AtLeastOnce | Delivery::ExactlyOnce => {
                let batches = PREFETCH_TIME.as_micros() / took.as_micros().max(1);
                usize::try_from(batches).unwrap_or(usize::MAX)
            }
        }
    }

    /// Releases all batches that wait for the handler.
    fn release(&mut self) {
        let items = self.claimed.items();
        if items > 0 {
            tracing::debug!(
                event = "items_released",
                queue = %self.spec.runtime.name,
                consumer = self.status.id,
                items,
                "items released"
            );
        }
        self.releasing.append(&mut self.claimed.release());
    }

    fn close(&mut self, context: &mut Context<Self>) {
        self.has_left = true;
        let (fetcher, member) = (self.fetcher.clone(), self.member);
        let mut acknowledging = std::mem::take(&mut self.acknowledging);
        acknowledging.append(&mut self.releasing);
        async move {
            all_resolved(acknowledging).await;
            let (reply, closed) = oneshot::channel();
            fetcher.do_send(Leave { consumer: member, reply });
            // A fetcher that panicked has lost its session.
            closed.await.unwrap_or(Ok(None))
        }
        .into_actor(self)
        .map(|closed, actor, context| {
            let left = closed.unwrap_or_else(|error| {
                if error.code() == Some(STORAGE_FAILED) {
                    actor.shared.shutdown.storage_failed();
                }
                tracing::warn!(
                    event = "session_not_closed",
                    queue = %actor.spec.runtime.name,
                    consumer = actor.status.id,
                    error = with_causes(&error),
                    "cannot close the session; a later sweep removes its records"
                );
                None
            });
            let found = if left.is_some() { Found::Batches(1) } else { Found::Nothing };
            actor.claimed.append(left.into_iter().collect());
            actor.on(Event::Closed(found), context);
        })
        .spawn(context);
    }
}

/// The consumer's state from an effect on.
fn consumer_state(effect: Effect) -> Option<ConsumerState> {
    match effect {
        Effect::Fetch => Some(ConsumerState::Fetching),
        Effect::Dispatch => Some(ConsumerState::Handling),
        Effect::Close => Some(ConsumerState::Closing),
        Effect::Prefetch(_) | Effect::Release | Effect::Stop => None,
    }
}

/// Waits until all of them have resolved.
async fn all_resolved(receivers: Vec<oneshot::Receiver<()>>) {
    for resolved in receivers {
        resolved.await.expect("a lease keeper does not panic");
    }
}

fn resume_panic(error: JoinError) -> ! {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => panic!("a dispatcher was cancelled: {error}"),
    }
}

impl Actor for Consumer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        tracing::debug!(
            event = "consumer_started",
            queue = %self.spec.runtime.name,
            consumer = self.status.id,
            k = self.spec.k,
            "consumer started"
        );
        self.on(Event::Started, context);
    }
}

/// A consumer that panics may have the trial of its queue's handler.
impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.has_left {
            self.fetcher.do_send(Gone(self.member));
        }
        self.spec.runtime.breaker.leave(self.status.id);
    }
}

impl Handler<Ping> for Consumer {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Context<Self>) {
        self.status.answer();
    }
}

impl Handler<Drain> for Consumer {
    type Result = ();

    fn handle(&mut self, _: Drain, context: &mut Context<Self>) {
        self.stop.cancel();
        self.on(Event::Drain, context);
    }
}
