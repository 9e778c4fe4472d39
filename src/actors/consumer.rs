//! One consumer: carries out what its state machine says.

use std::sync::Arc;

use actix::{
    Actor, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, WrapFuture, dev::ContextFutureSpawner,
};
use kvqueue_queue::{Item, Session, Watch};
use tokio_util::sync::CancellationToken;

use super::{
    crew::Shared,
    messages::{Drain, Spec},
    obituary::Obituary,
};
use crate::consumer::{
    backoff,
    batch::Batch,
    dispatch::Dispatcher,
    state::{Effect, Event, Found, State},
    take::{self, Attempt},
};

/// FoundationDB's `io_error`: an embedded database says it from its first failed write until it is opened again.
const STORAGE_FAILED: i32 = 1510;

/// The actor. Only one thing is under way at a time: a take, a batch, or a wait.
pub(super) struct Consumer {
    id: u64,
    spec: Spec,
    shared: Arc<Shared>,
    state: State,
    /// Absent while a take has it, and once it is closed.
    session: Option<Session>,
    /// What the last take gave: items to dispatch...
    batch: Option<Batch>,
    /// ...or a watch to wait on.
    watch: Option<Watch>,
    waiting: Option<SpawnHandle>,
    /// Fires on drain: no take may begin any more.
    stop: CancellationToken,
    obituary: Obituary,
}

impl Consumer {
    pub(super) fn new(id: u64, spec: Spec, shared: Arc<Shared>, obituary: Obituary) -> Self {
        let session = Some(take::session(&spec.source));
        let state = State::new(spec.until_empty);
        let stop = CancellationToken::new();
        Self { id, spec, shared, state, session, batch: None, watch: None, waiting: None, stop, obituary }
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
                self.watch = None;
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
        let session = self.session.take().expect("a consumer takes one batch at a time");
        take::take(self.spec.source.clone(), session, self.spec.k, self.stop.clone())
            .into_actor(self)
            .map(|(session, attempt), actor, context| {
                actor.session = Some(session);
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
                if error.code() == Some(STORAGE_FAILED) {
                    self.shared.stop.request(
                        "the database's storage failed and takes no more commits; a restart opens it again"
                            .to_owned(),
                    );
                }
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%queue, consumer = self.id, error, "take failed, trying again");
                Event::TakeFailed
            }
            Attempt::Taken(taken) => {
                let items = taken.items.len();
                self.watch = taken.watch;
                if items > 0 {
                    tracing::debug!(%queue, consumer = self.id, k = self.spec.k, items, "took items");
                }
                Event::Took(self.hold(taken.items))
            }
        }
    }

    /// Hands the batch to the pool. A panic there is not the handler's, for that one is contained: it is ours, and
    /// becomes this actor's.
    fn dispatch(&mut self, context: &mut Context<Self>) {
        let batch = self.batch.take().expect("a dispatch follows a take");
        let dispatcher = Dispatcher {
            source: self.spec.source.clone(),
            consumer: self.id,
            cancelled: self.shared.cancelled.clone(),
            stop: self.shared.stop.clone(),
        };
        self.shared
            .pool
            .spawn(dispatcher.run(batch))
            .into_actor(self)
            .map(|done, actor, context| {
                if let Err(error) = done
                    && let Ok(panic) = error.try_into_panic()
                {
                    std::panic::resume_unwind(panic);
                }
                actor.on(Event::Dispatched, context);
            })
            .spawn(context);
    }

    fn wait(&mut self, context: &mut Context<Self>) {
        let (queue, id) = (self.spec.source.name.clone(), self.id);
        tracing::debug!(%queue, consumer = id, "waiting for push");
        let watch = self.watch.take();
        let slow_look = tokio::time::sleep(self.spec.source.slow_look);
        let woken = async move {
            let pushed = async {
                match watch {
                    // The watch is gone, not the queue. The slow look bounds how often this can happen.
                    Some(watch) => watch.await.inspect_err(|error| {
                        tracing::debug!(%queue, consumer = id, %error, "watch lost");
                    }),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = pushed => {}
                () = slow_look => {}
            }
        };
        let woken = woken.into_actor(self).map(|(), actor, context| actor.on(Event::Woken, context));
        self.waiting = Some(context.spawn(woken));
    }

    fn close(&mut self, context: &mut Context<Self>) {
        let session = self.session.take();
        let source = self.spec.source.clone();
        async move {
            let Some(session) = session else { return Vec::new() };
            session.close(&source.db).await.unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(queue = %source.name, error, "session not closed, a later sweep removes its token");
                Vec::new()
            })
        }
        .into_actor(self)
        .map(|left, actor, context| {
            let found = actor.hold(left);
            actor.on(Event::Closed(found), context);
        })
        .spawn(context);
    }

    /// Keeps items for the dispatch that follows.
    fn hold(&mut self, items: Vec<Item>) -> Found {
        match items.len() {
            0 => Found::Nothing,
            count => {
                self.batch = Some(Batch::new(self.spec.source.name.clone(), items));
                Found::Items(count)
            }
        }
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
