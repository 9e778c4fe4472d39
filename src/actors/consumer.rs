//! One consumer: carries out what its state machine says.

use std::sync::Arc;

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture, dev::ContextFutureSpawner,
};
use tokio::{
    sync::oneshot,
    task::{JoinError, JoinHandle},
};
use tokio_util::sync::CancellationToken;

use super::{
    crew::Shared,
    messages::{Drain, Spec},
    obituary::Obituary,
};
use crate::{
    consumer::{
        backoff,
        batch::InHand,
        dispatch::Dispatcher,
        holder::Slice,
        idle::Place,
        state::{Effect, Event, Found, State},
        take::{self, Attempt, Seat},
    },
    database::STORAGE_FAILED,
};

/// The actor. Only one thing is under way at a time: a take, a batch, or a wait; and beside it what is left to be settled of the batch
/// before.
pub(super) struct Consumer {
    id: u64,
    spec: Spec,
    shared: Arc<Shared>,
    state: State,
    /// Absent once it takes no more.
    seat: Option<Seat>,
    /// What the last take gave: items to dispatch...
    in_hand: Option<InHand>,
    /// ...or what wakes.
    woken: Option<oneshot::Receiver<()>>,
    waiting: Option<SpawnHandle>,
    /// Resolves when the batch that was dispatched last is settled.
    settling: Option<oneshot::Receiver<()>>,
    /// Among the queue's idle consumers.
    place: Place,
    /// Fires on drain: no take may begin any more, and items that are not begun are given back.
    stop: CancellationToken,
    obituary: Obituary,
}

impl Consumer {
    pub(super) fn new(id: u64, spec: Spec, shared: Arc<Shared>, obituary: Obituary) -> Self {
        let seat = Some(spec.source.taker.join());
        let place = spec.source.idle.join();
        let stop = shared.signals.draining.child_token();
        Self {
            id,
            spec,
            shared,
            state: State::new(),
            seat,
            in_hand: None,
            woken: None,
            waiting: None,
            settling: None,
            place,
            stop,
            obituary,
        }
    }

    fn on(&mut self, event: Event, context: &mut Context<Self>) {
        if let Some(observer) = &self.shared.observer {
            observer(self.id, event);
        }
        for effect in self.state.on(event) {
            self.carry_out(effect, context);
        }
    }

    fn carry_out(&mut self, effect: Effect, context: &mut Context<Self>) {
        match effect {
            Effect::Take => self.take(context),
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

    fn take(&mut self, context: &mut Context<Self>) {
        let Spec { source, k } = self.spec.clone();
        take::take(source, self.place.member, k, self.stop.clone())
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
                Event::TakeFailed
            }
            Attempt::AtRest => Event::Took(Found::Rest),
            Attempt::Nothing(woken) => {
                self.woken = Some(woken);
                Event::Took(Found::Nothing)
            }
            Attempt::Items(items) => {
                let count = items.len();
                tracing::debug!(%queue, consumer = self.id, k = self.spec.k, items = count, "took items");
                self.in_hand = Some(items);
                Event::Took(Found::Items(count))
            }
        }
    }

    fn note(&self, error: &(dyn std::error::Error + 'static), code: Option<i32>, what: &'static str) {
        if code == Some(STORAGE_FAILED) {
            self.shared.signals.storage_failed();
        }
        tracing::warn!(queue = %self.spec.source.name, consumer = self.id, error, "{what}");
    }

    /// Hands the batch to the pool; its lease has a holder already. A panic in either is not the handler's, for that one is contained: it is
    /// ours, and becomes this actor's. The other goes on, and so do both when this actor panics.
    fn dispatch(&mut self, context: &mut Context<Self>) {
        let in_hand = self.in_hand.take().expect("a dispatch follows a take");
        let before = self.settling.take();
        let handled = self.start(in_hand);
        async move {
            let handled = handled.await;
            settled(before).await;
            handled
        }
        .into_actor(self)
        .map(|done, actor, context| {
            resume_panic(done);
            actor.on(Event::Dispatched, context);
        })
        .spawn(context);
    }

    fn start(&mut self, in_hand: InHand) -> JoinHandle<()> {
        let Shared { pool, work, .. } = &*self.shared;
        let (source, consumer) = (self.spec.source.clone(), self.id);
        let dispatcher = Dispatcher { source, consumer, stop: self.stop.clone() };
        match in_hand {
            InHand::Taken(batch) => work.spawn_on(dispatcher.taken(batch), pool),
            InHand::Leased(Slice { items, holding, settled }) => {
                self.settling = Some(settled);
                work.spawn_on(dispatcher.leased(items, holding), pool)
            }
        }
    }

    fn wait(&mut self, context: &mut Context<Self>) {
        tracing::debug!(queue = %self.spec.source.name, consumer = self.id, "waiting for push");
        let woken = self.woken.take().expect("a wait follows a take that found nothing");
        let woken = woken.into_actor(self).map(|_, actor, context| actor.on(Event::Woken, context));
        self.waiting = Some(context.spawn(woken));
    }

    fn close(&mut self, context: &mut Context<Self>) {
        let seat = self.seat.take().expect("a consumer leaves once");
        let source = self.spec.source.clone();
        let settling = self.settling.take();
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
            let found = left.as_ref().map_or(Found::Nothing, |left| Found::Items(left.len()));
            actor.in_hand = left;
            actor.on(Event::Closed(found), context);
        })
        .spawn(context);
    }
}

/// Waits until a batch is settled.
async fn settled(settling: Option<oneshot::Receiver<()>>) {
    if let Some(settling) = settling {
        settling.await.expect("the holder of a lease panics only by a fault of ours");
    }
}

fn resume_panic(done: Result<(), JoinError>) {
    if let Err(error) = done
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

impl Actor for Consumer {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        tracing::debug!(queue = %self.spec.source.name, consumer = self.id, k = self.spec.k, "consumer started");
        self.on(Event::Started, context);
    }
}

impl Handler<Drain> for Consumer {
    type Result = ();

    fn handle(&mut self, _: Drain, context: &mut Context<Self>) {
        self.stop.cancel();
        self.on(Event::Drain, context);
    }
}
