//! One consumer: carries out what its state machine says.

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
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinHandle},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    context::ConsumerContext,
    exit_guard::ExitGuard,
    fetcher::Fetcher,
    messages::{ConsumerSpec, Drain, Fetch, Gone, Join, Leave, Ping, Withdraw},
};
use crate::{
    causes::with_causes,
    config::Delivery,
    consumer::{
        batch::{InHand, NotBegun},
        dispatch::Dispatcher,
        fetch::{Ask, FetchRequest, Reply},
        holder::Slice,
        state::{Effect, Event, Found, State},
    },
    database::STORAGE_FAILED,
    status::{ConsumerState, ConsumerStatus},
};

/// What is taken ahead should be handled within this time: where a handler takes longer, a take is a small part of the whole.
const AHEAD: Duration = Duration::from_millis(10);

/// The longest that a take waits for what was given back to be ready again.
const BEFORE_A_TAKE: Duration = Duration::from_secs(10);

/// After this long a batch is slow: what was taken ahead waits for it no longer.
const SLOW: Duration = Duration::from_millis(50);

/// The next consumer's [`Consumer::member`].
static NEXT_MEMBER: AtomicU64 = AtomicU64::new(1);

/// The actor. One batch is handled at a time. Beside it there may be what is left to be settled of the batch before, and a take of the
/// next one.
pub(super) struct Consumer {
    status: Arc<ConsumerStatus>,
    spec: ConsumerSpec,
    shared: Arc<ConsumerContext>,
    state: State,
    fetcher: Addr<Fetcher>,
    /// By which the fetcher knows it: a consumer that replaces this one has the same id and another number.
    member: u64,
    /// It asks the fetcher for nothing more.
    has_left: bool,
    /// Batches to dispatch, now or after the one that is handled.
    in_hand: NotBegun,
    /// They resolve when what was dispatched last is settled.
    settling: Vec<oneshot::Receiver<()>>,
    /// The same for what was given back since the last take. The next one begins when that is ready again, for it comes first.
    given_back: Vec<oneshot::Receiver<()>>,
    /// Fires when the batch that is handled has become slow.
    slow: Option<SpawnHandle>,
    /// Fires on drain: no take may begin any more, and items that are not begun are given back.
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
        let stop = shared.signals.draining.child_token();
        Self {
            status,
            spec,
            shared,
            state: State::new(),
            fetcher,
            member,
            has_left: false,
            in_hand: NotBegun::default(),
            settling: Vec::new(),
            given_back: Vec::new(),
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
            self.status.set(ConsumerState::Taking);
        }
        for effect in self.state.on(event) {
            self.carry_out(effect, context);
        }
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        if let Some(stage) = stage(effect) {
            self.status.set(stage);
        }
        match effect {
            Effect::Take => self.take(1, false, context),
            Effect::TakeAhead(batches) => self.take(batches, true, context),
            Effect::GiveBack => self.give_back(),
            Effect::Dispatch => self.dispatch(context),
            Effect::Close => self.close(context),
            Effect::Stop => {
                self.exit_guard.stopped();
                actix::ActorContext::stop(context);
            }
        }
    }

    fn take(&mut self, batches: usize, prefetch: bool, context: &mut Context<Self>) {
        let (reply, mut replied) = oneshot::channel();
        let request = FetchRequest::new(self.spec.k, batches);
        let fetch = Fetch(Ask { member: self.member, request, prefetch, status: self.status.clone(), reply });
        let (fetcher, member, stop) = (self.fetcher.clone(), self.member, self.stop.clone());
        let before = std::mem::take(&mut self.given_back);
        let unsent = if before.is_empty() {
            fetcher.do_send(fetch);
            None
        } else {
            Some(fetch)
        };
        async move {
            if let Some(fetch) = unsent {
                // If releasing items fails, do not fetch.
                let _ = timeout(BEFORE_A_TAKE, settled(before)).await;
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
            let event = actor.took(reply.unwrap_or(Reply::Withdrawn));
            actor.on(event, context);
        })
        .spawn(context);
    }

    fn took(&mut self, reply: Reply) -> Event {
        match reply {
            Reply::Withdrawn => Event::NotTaken,
            Reply::Nothing => Event::Took(Found::Nothing),
            Reply::Exhausted => Event::Took(Found::Rest),
            Reply::Batches(batches) => {
                let (queue, items) = (&self.spec.source.name, batches.items());
                tracing::debug!(
                    event = "items_fetched",
                    %queue,
                    consumer = self.status.id,
                    k = self.spec.k,
                    items,
                    "items fetched"
                );
                let found = Found::Batches(batches.len());
                self.in_hand.append(batches);
                Event::Took(found)
            }
        }
    }

    /// Hands the batch to the pool; its lease has a holder already. A panic in either is not the handler's, for that one is contained: it is
    /// ours, and becomes this actor's. The other goes on, and so do both when this actor panics.
    fn dispatch(&mut self, context: &mut Context<Self>) {
        let in_hand = self.in_hand.begin_next().expect("a dispatch follows a take");
        self.slow = Some(context.run_later(SLOW, |actor, context| actor.on(Event::Slow, context)));
        let before = std::mem::take(&mut self.settling);
        let begun = Instant::now();
        let handled = self.start(in_hand);
        let status = self.status.clone();
        async move {
            let handled = handled.await;
            let took = begun.elapsed();
            status.handled();
            settled(before).await;
            handled.map(|()| took)
        }
        .into_actor(self)
        .map(|done, actor, context| {
            if let Some(slow) = actor.slow.take() {
                context.cancel_future(slow);
            }
            let took = done.unwrap_or_else(|error| resume_panic(error));
            actor.on(Event::Dispatched { ahead: actor.ahead(took) }, context);
        })
        .spawn(context);
    }

    /// How many batches are to be taken ahead, where one takes so long.
    fn ahead(&self, took: Duration) -> usize {
        match self.spec.source.delivery {
            // They could not be given back.
            Delivery::AtMostOnce => 0,
            Delivery::AtLeastOnce | Delivery::ExactlyOnce => {
                let batches = AHEAD.as_micros() / took.as_micros().max(1);
                usize::try_from(batches).unwrap_or(usize::MAX)
            }
        }
    }

    /// What waits for the handler goes back to the queue; what was taken at most once never waits.
    fn give_back(&mut self) {
        let items = self.in_hand.items();
        if items > 0 {
            tracing::debug!(
                event = "items_released",
                queue = %self.spec.source.name,
                consumer = self.status.id,
                items,
                "items released"
            );
        }
        self.given_back.append(&mut self.in_hand.release());
    }

    fn start(&mut self, in_hand: InHand) -> JoinHandle<()> {
        let ConsumerContext { pool, work, .. } = &*self.shared;
        let (source, status) = (self.spec.source.clone(), self.status.clone());
        let dispatcher = Dispatcher { source, status, stop: self.stop.clone() };
        match in_hand {
            InHand::Taken(batch) => work.spawn_on(dispatcher.taken(batch), pool),
            InHand::Leased(Slice { items, holding, holder, settled }) => {
                self.status.held_by(holder);
                self.settling.push(settled);
                work.spawn_on(dispatcher.leased(items, holding), pool)
            }
        }
    }

    fn close(&mut self, context: &mut Context<Self>) {
        self.has_left = true;
        let (fetcher, member) = (self.fetcher.clone(), self.member);
        let mut settling = std::mem::take(&mut self.settling);
        settling.append(&mut self.given_back);
        async move {
            settled(settling).await;
            let (reply, closed) = oneshot::channel();
            fetcher.do_send(Leave { consumer: member, reply });
            // A fetcher that panicked has lost its session.
            closed.await.unwrap_or(Ok(None))
        }
        .into_actor(self)
        .map(|closed, actor, context| {
            let left = closed.unwrap_or_else(|error| {
                if error.code() == Some(STORAGE_FAILED) {
                    actor.shared.signals.storage_failed();
                }
                tracing::warn!(
                    event = "session_not_closed",
                    queue = %actor.spec.source.name,
                    consumer = actor.status.id,
                    error = with_causes(&error),
                    "cannot close the session; a later sweep removes its records"
                );
                None
            });
            let found = if left.is_some() { Found::Batches(1) } else { Found::Nothing };
            actor.in_hand.append(left.into_iter().collect());
            actor.on(Event::Closed(found), context);
        })
        .spawn(context);
    }
}

/// The stage that begins with an effect.
fn stage(effect: Effect) -> Option<ConsumerState> {
    match effect {
        Effect::Take => Some(ConsumerState::Taking),
        Effect::Dispatch => Some(ConsumerState::Handling),
        Effect::Close => Some(ConsumerState::Closing),
        Effect::TakeAhead(_) | Effect::GiveBack | Effect::Stop => None,
    }
}

/// Waits until batches are settled.
async fn settled(settling: Vec<oneshot::Receiver<()>>) {
    for settled in settling {
        settled.await.expect("the holder of a lease panics only by a fault of ours");
    }
}

fn resume_panic(error: JoinError) -> ! {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => panic!("nobody cancels a dispatch, and yet: {error}"),
    }
}

impl Actor for Consumer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        tracing::debug!(
            event = "consumer_started",
            queue = %self.spec.source.name,
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
        self.spec.source.breaker.leave(self.status.id);
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
