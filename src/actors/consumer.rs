//! One consumer: carries out what its state machine says.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture, dev::ContextFutureSpawner,
};
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinHandle},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    crew::Shared,
    messages::{Drain, Ping, Spec},
    obituary::Obituary,
};
use crate::{
    board::{Pulse, Stage},
    causes::{root_cause, with_causes},
    config::Delivery,
    consumer::{
        backoff,
        batch::InHand,
        dispatch::Dispatcher,
        holder::Slice,
        idle::Place,
        state::{Effect, Event, Found, State},
        take::{self, Attempt, Seat, Wish},
    },
    database::STORAGE_FAILED,
};

/// What is taken ahead should be handled within this time: where a handler takes longer, a take is a small part of the whole.
const AHEAD: Duration = Duration::from_millis(10);

/// The longest that a take waits for what was given back to be ready again.
const BEFORE_A_TAKE: Duration = Duration::from_secs(10);

/// After this long a batch is slow: what was taken ahead waits for it no longer.
const SLOW: Duration = Duration::from_millis(50);

/// The actor. One batch is handled at a time. Beside it there may be what is left to be settled of the batch before, and a take of the
/// next one.
pub(super) struct Consumer {
    pulse: Arc<Pulse>,
    spec: Spec,
    shared: Arc<Shared>,
    state: State,
    /// Absent once it takes no more.
    seat: Option<Seat>,
    /// What takes have given: batches to dispatch, now or after the one that is handled...
    in_hand: VecDeque<InHand>,
    /// ...or what wakes.
    woken: Option<oneshot::Receiver<()>>,
    waiting: Option<SpawnHandle>,
    /// They resolve when what was dispatched last is settled.
    settling: Vec<oneshot::Receiver<()>>,
    /// The same for what was given back since the last take. The next one begins when that is ready again, for it comes first.
    given_back: Vec<oneshot::Receiver<()>>,
    /// Fires when the batch that is handled has become slow.
    slow: Option<SpawnHandle>,
    /// Among the queue's idle consumers.
    place: Place,
    /// Fires on drain: no take may begin any more, and items that are not begun are given back.
    stop: CancellationToken,
    obituary: Obituary,
}

impl Consumer {
    pub(super) fn new(spec: Spec, shared: Arc<Shared>, pulse: Arc<Pulse>, obituary: Obituary) -> Self {
        let seat = Some(spec.source.taker.join());
        let place = spec.source.idle.join();
        let stop = shared.signals.draining.child_token();
        Self {
            pulse,
            spec,
            shared,
            state: State::new(),
            seat,
            in_hand: VecDeque::new(),
            woken: None,
            waiting: None,
            settling: Vec::new(),
            given_back: Vec::new(),
            slow: None,
            place,
            stop,
            obituary,
        }
    }

    fn on(&mut self, event: Event, context: &mut Context<Self>) {
        if let Some(observer) = &self.shared.observer
            && !observer(self.pulse.id, event)
        {
            return;
        }
        if let Event::Dispatched { .. } = event {
            self.pulse.set(Stage::Taking);
        }
        for effect in self.state.on(event) {
            self.carry_out(effect, context);
        }
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        if let Some(stage) = stage(effect) {
            self.pulse.set(stage);
        }
        match effect {
            Effect::Take => self.take(1, false, context),
            Effect::TakeAhead(batches) => self.take(batches, true, context),
            Effect::GiveBack => self.give_back(),
            Effect::Dispatch => self.dispatch(context),
            Effect::Wait => self.wait(context),
            Effect::Pause { failures } => {
                let pause = tokio::time::sleep(backoff::pause(failures));
                let pause =
                    pause.into_actor(self).map(|(), actor, context| actor.on(Event::PauseOver, context));
                self.waiting = Some(context.spawn(pause));
            }
            Effect::StopWaiting => {
                if let Some(waiting) = self.waiting.take() {
                    context.cancel_future(waiting);
                }
            }
            Effect::Close => self.close(context),
            Effect::Stop => {
                self.obituary.stopped();
                actix::ActorContext::stop(context);
            }
        }
    }

    fn take(&mut self, batches: usize, ahead: bool, context: &mut Context<Self>) {
        let Spec { source, k } = self.spec.clone();
        let batches = NonZeroUsize::new(batches).unwrap_or(NonZeroUsize::MIN);
        let wish = Wish { member: self.place.member, k, batches, ahead };
        let (stop, pulse) = (self.stop.clone(), self.pulse.clone());
        let before = std::mem::take(&mut self.given_back);
        async move {
            // If releasing items fails, do not take.
            let _ = timeout(BEFORE_A_TAKE, settled(before)).await;
            take::take(source, wish, stop, pulse).await
        }
        .into_actor(self)
        .map(|attempt, actor, context| {
            let event = actor.taken(attempt);
            actor.on(event, context);
        })
        .spawn(context);
    }

    fn taken(&mut self, attempt: Attempt) -> Event {
        let queue = &self.spec.source.name;
        match attempt {
            Attempt::GivenUp => Event::NotTaken,
            Attempt::Failed(error) => {
                self.note(&*error, error.code(), "take failed, trying again");
                self.pulse.take_failed(root_cause(&*error));
                Event::TakeFailed
            }
            Attempt::NothingAhead => Event::Took(Found::NothingAhead),
            Attempt::AtRest => Event::Took(Found::Rest),
            Attempt::Nothing(woken) => {
                self.woken = Some(woken);
                Event::Took(Found::Nothing)
            }
            Attempt::Batches(batches) => {
                let items: usize = batches.iter().map(InHand::len).sum();
                tracing::debug!(%queue, consumer = self.pulse.id, k = self.spec.k, items, "took items");
                let found = Found::Batches(batches.len());
                self.in_hand.extend(batches);
                Event::Took(found)
            }
        }
    }

    fn note(&self, error: &(dyn std::error::Error + 'static), code: Option<i32>, what: &'static str) {
        if code == Some(STORAGE_FAILED) {
            self.shared.signals.storage_failed();
        }
        let error = with_causes(error);
        tracing::warn!(queue = %self.spec.source.name, consumer = self.pulse.id, error, "{what}");
    }

    /// Hands the batch to the pool; its lease has a holder already. A panic in either is not the handler's, for that one is contained: it is
    /// ours, and becomes this actor's. The other goes on, and so do both when this actor panics.
    fn dispatch(&mut self, context: &mut Context<Self>) {
        let in_hand = self.in_hand.pop_front().expect("a dispatch follows a take");
        self.slow = Some(context.run_later(SLOW, |actor, context| actor.on(Event::Slow, context)));
        let before = std::mem::take(&mut self.settling);
        let begun = Instant::now();
        let handled = self.start(in_hand);
        let pulse = self.pulse.clone();
        async move {
            let handled = handled.await;
            let took = begun.elapsed();
            pulse.handled();
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
        for batch in self.in_hand.drain(..) {
            if let InHand::Leased(slice) = batch {
                let items = slice.items.len();
                tracing::debug!(queue = %self.spec.source.name, consumer = self.pulse.id, items, "given back");
                self.given_back.push(slice.give_back());
            }
        }
    }

    fn start(&mut self, in_hand: InHand) -> JoinHandle<()> {
        let Shared { pool, work, .. } = &*self.shared;
        let (source, pulse) = (self.spec.source.clone(), self.pulse.clone());
        let dispatcher = Dispatcher { source, pulse, stop: self.stop.clone() };
        match in_hand {
            InHand::Taken(batch) => work.spawn_on(dispatcher.taken(batch), pool),
            InHand::Leased(Slice { items, holding, holder, settled }) => {
                self.pulse.held_by(holder);
                self.settling.push(settled);
                work.spawn_on(dispatcher.leased(items, holding), pool)
            }
        }
    }

    fn wait(&mut self, context: &mut Context<Self>) {
        tracing::debug!(queue = %self.spec.source.name, consumer = self.pulse.id, "waiting for push");
        let woken = self.woken.take().expect("a wait follows a take that found nothing");
        let woken = woken.into_actor(self).map(|_, actor, context| actor.on(Event::Woken, context));
        self.waiting = Some(context.spawn(woken));
    }

    fn close(&mut self, context: &mut Context<Self>) {
        let seat = self.seat.take().expect("a consumer leaves once");
        let source = self.spec.source.clone();
        let mut settling = std::mem::take(&mut self.settling);
        settling.append(&mut self.given_back);
        async move {
            settled(settling).await;
            take::close(&source, seat).await
        }
        .into_actor(self)
        .map(|left, actor, context| {
            let left = left.unwrap_or_else(|error| {
                actor.note(&error, error.code(), "session not closed, a later sweep removes what it leaves");
                None
            });
            let found = if left.is_some() { Found::Batches(1) } else { Found::Nothing };
            actor.in_hand.extend(left);
            actor.on(Event::Closed(found), context);
        })
        .spawn(context);
    }
}

/// The stage that begins with an effect.
fn stage(effect: Effect) -> Option<Stage> {
    match effect {
        Effect::Take => Some(Stage::Taking),
        Effect::Dispatch => Some(Stage::Handling),
        Effect::Wait => Some(Stage::Idle),
        Effect::Pause { .. } => Some(Stage::Backoff),
        Effect::Close => Some(Stage::Closing),
        Effect::TakeAhead(_) | Effect::GiveBack | Effect::StopWaiting | Effect::Stop => None,
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
        tracing::debug!(queue = %self.spec.source.name, consumer = self.pulse.id, k = self.spec.k, "consumer started");
        self.on(Event::Started, context);
    }
}

/// A consumer that panics may have the trial of its queue's handler.
impl Drop for Consumer {
    fn drop(&mut self) {
        self.spec.source.breaker.leave(self.pulse.id);
        self.give_back();
    }
}

impl Handler<Ping> for Consumer {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Context<Self>) {
        self.pulse.answer();
    }
}

impl Handler<Drain> for Consumer {
    type Result = ();

    fn handle(&mut self, _: Drain, context: &mut Context<Self>) {
        self.stop.cancel();
        self.on(Event::Drain, context);
    }
}
