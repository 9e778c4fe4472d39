//! One lease of a worker: its items are handled, and it is kept until each has been acknowledged.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kvqueue_queue::{Item, ItemId, MAX_RESULT, Progress};
use serde_json::{Map, Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::{future::FutureExt, sync::CancellationToken};
use tracing::{Instrument, Span};

use super::worker::{Place, Turn, Worker};
use crate::{
    cli::{
        api_client::AskError,
        worker::{
            daemons::{PATIENCE, Until},
            leased::Leased,
        },
    },
    consumer::lease::{LeaseTimer, Next},
    handlers::{Context, Interruption, Outcome, ProgressNews, ScopeName, StopRequest, call, log_throttle},
    telemetry::span,
};

/// How long an outcome may wait for others to be acknowledged with.
const GATHER: Duration = Duration::from_millis(20);

/// The pause of a command's place after an item was released: the next lease may have that item
/// again.
const AFTER_RELEASE: Duration = Duration::from_millis(100);

/// The shortest time that an answer about a lease is waited for, however short the lease is.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(1);

/// The most outcomes of one acknowledgement, and the bytes of their JSON, but for a single one. A daemon accepts more; a proxy may not.
const MOST_OUTCOMES: usize = 100;
const MOST_BYTES: usize = 500_000;

/// The outcomes of a lease's items.
type Outcomes = mpsc::Sender<(ItemId, Outcome)>;

/// Handles the items of a lease. The place is for the first of them, and the turn is kept until all have one; `number` is the number
/// of the lease in this worker.
pub(super) async fn handle(worker: Arc<Worker>, number: u64, leased: Leased, right: (Turn, Place)) {
    let Leased { id, length, fetched_at, items } = leased;
    // There is room for all, so that no command waits for the keeper.
    let (sender, outcomes) = mpsc::channel(items.len().max(1));
    let keeper = Keeper {
        worker: worker.clone(),
        timer: LeaseTimer::new(length, fetched_at, false, items.len()),
        path: format!("{}/leases/{id}", worker.path),
        patience: (length / 3).clamp(SHORTEST_PATIENCE, PATIENCE),
        pending: VecDeque::new(),
        most_outcomes: MOST_OUTCOMES,
        lost: worker.cancelled.child_token(),
        cancelled: Arc::default(),
        progress: Arc::default(),
    };
    let calls = Calls {
        worker: worker.clone(),
        number,
        lost: keeper.lost.clone(),
        cancelled: keeper.cancelled.clone(),
        progress: keeper.progress.clone(),
        outcomes: sender,
    };
    tokio::join!(calls.begin(items, right), keeper.run(outcomes));
    worker.breaker.leave(number);
}

/// The items of a lease that commands have, and the cancelled ones: each with the token that stops its command.
#[derive(Debug, Default)]
struct Cancelled(Mutex<HashMap<ItemId, CancellationToken>>);

impl Cancelled {
    /// The token of an item.
    fn token(&self, item: &ItemId, lost: &CancellationToken) -> CancellationToken {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.entry(item.clone()).or_insert_with(|| lost.child_token()).clone()
    }
}

/// Calls the handler for the items of a lease.
#[derive(Clone)]
struct Calls {
    worker: Arc<Worker>,
    number: u64,
    /// Fires when the lease is lost, and when commands are ended.
    lost: CancellationToken,
    cancelled: Arc<Cancelled>,
    progress: Arc<ProgressNews>,
    outcomes: Outcomes,
}

impl Calls {
    /// Begins the items in their order, as places become free. When the worker stops, or the
    /// command cannot be started, the rest is released.
    async fn begin(self, items: Vec<Item>, (turn, place): (Turn, Place)) {
        let mut first = Some(place);
        for item in items {
            let place = match first.take() {
                Some(place) => Some(place),
                None => self.place().await,
            };
            let is_held_back = self.worker.stop.is_cancelled() || self.worker.breaker.holds_back(self.number);
            match place.filter(|_| !is_held_back && !self.lost.is_cancelled()) {
                Some(place) => drop(self.worker.tasks.spawn(self.clone().handle(item, place))),
                None => self.report(item.id, Outcome::Release),
            }
        }
        drop(turn);
    }

    /// A place for the next item, unless the items that are left need none any more.
    async fn place(&self) -> Option<Place> {
        let place = self.worker.place().with_cancellation_token(&self.lost);
        place.with_cancellation_token(&self.worker.stop).await.flatten()
    }

    /// One item.
    async fn handle(self, item: Item, place: Place) {
        let span = span::of(&self.worker.queue, "work", std::slice::from_ref(&item));
        let outcome = self.call(&item).instrument(span.clone()).await;
        span.in_scope(|| log(&item, &outcome));
        let is_released = matches!(outcome, Outcome::Release);
        self.report(item.id, outcome);
        // The keeper ends when it has all outcomes.
        drop(self.outcomes);
        if is_released {
            let _ = sleep(AFTER_RELEASE).with_cancellation_token(&self.worker.stop).await;
        }
        drop(place);
    }

    async fn call(&self, item: &Item) -> Outcome {
        let (worker, consumer) = (&self.worker, self.number);
        let context = Context {
            queue: worker.queue.clone(),
            consumer,
            deadline: None,
            cancelled: self.cancelled.token(&item.id, &self.lost),
            transaction: None,
            stop: StopRequest::default(),
            limit: None,
            runtime: None,
            progress: Some(self.progress.clone()),
        };
        let items: Arc<[Item]> = [item.clone()].into();
        let result = call(&worker.tried.handling, items, context, worker.limits.handler_timeout).await;
        match (&result.interruption, result.returned.first()) {
            (None, Some(outcome @ Outcome::Unavailable(_))) => {
                worker.breaker.fails(consumer, &worker.tried, outcome);
            }
            // A cancelled call proves nothing about the command.
            (Some(Interruption::Cancelled), _) => {}
            _ => worker.breaker.works(consumer),
        }
        result.outcomes(1, &Outcome::Release).pop().expect("there is an outcome for each item")
    }

    fn report(&self, item: ItemId, outcome: Outcome) {
        // A keeper that has lost the lease has ended.
        let _ = self.outcomes.try_send((item, outcome));
    }
}

/// Extends a lease and writes its acknowledgements, through whatever daemon answers.
struct Keeper {
    worker: Arc<Worker>,
    timer: LeaseTimer,
    /// The path of the lease in the API.
    path: String,
    /// How long one daemon may take to answer.
    patience: Duration,
    /// Outcomes to be acknowledged.
    pending: VecDeque<Value>,
    /// How many outcomes the next acknowledgement may have.
    most_outcomes: usize,
    /// Cancels the calls for the lease's items.
    lost: CancellationToken,
    cancelled: Arc<Cancelled>,
    /// What commands have reported since the last extension.
    progress: Arc<ProgressNews>,
}

/// Why a keeper does not have its lease any more.
enum Lost {
    /// It was not extended in time.
    Expired(Option<AskError>),
    /// The daemons refuse this worker.
    Refused(AskError),
    /// The body of the request is longer than is accepted on its way. The lease is as it was.
    TooLong(AskError),
}

impl Keeper {
    async fn run(mut self, mut outcomes: mpsc::Receiver<(ItemId, Outcome)>) {
        // In any case commands do not go on without a lease.
        let _guard = self.lost.clone().drop_guard();
        let error = match self.keep(&mut outcomes).await {
            Ok(()) => return,
            Err(Lost::Expired(error)) => error,
            Err(Lost::TooLong(error)) => Some(error),
            Err(Lost::Refused(error)) => {
                self.worker.fail(error);
                // Commands that run may end, as long as nobody else gets their items.
                let ended = async { while outcomes.recv().await.is_some() {} };
                let _ = timeout_at(self.timer.held_until(), ended).await;
                return;
            }
        };
        tracing::warn!(
            event = "lease_lost",
            queue = %self.worker.queue,
            items = self.timer.open(),
            reason = error.as_ref().map(|error| error as &dyn std::error::Error),
            "lease lost; its unacknowledged items will be redelivered"
        );
    }

    async fn keep(&mut self, outcomes: &mut mpsc::Receiver<(ItemId, Outcome)>) -> Result<(), Lost> {
        loop {
            match self.timer.next(Instant::now()) {
                Next::Acknowledge => self.acknowledge().await?,
                Next::Extend => {
                    let news = self.progress.take().into_iter().map(|(id, Progress { percent, message, .. })| {
                        json!({ "id": id.to_string(), "percent": percent, "message": message })
                    });
                    let news: Vec<_> = news.collect();
                    // Daemons of earlier versions know no body.
                    let body = if news.is_empty() { json!({}) } else { json!({ "progress": news }) };
                    match self.change("extend", &body, 0).await {
                        // What commands have reported can be missed; the extension cannot.
                        Err(Lost::TooLong(_)) => self.change("extend", &json!({}), 0).await?,
                        changed => changed?,
                    }
                }
                Next::Lost => return Err(Lost::Expired(None)),
                Next::End => return Ok(()),
                Next::Wait(until) => tokio::select! {
                    biased;
                    outcome = outcomes.recv() => self.on_outcome(outcome),
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    fn on_outcome(&mut self, outcome: Option<(ItemId, Outcome)>) {
        let Some((item, outcome)) = outcome else { return self.timer.close() };
        self.pending.push_back(shown(&item, outcome));
        let is_complete = self.pending.len() >= self.timer.open();
        let gather = if is_complete { Duration::ZERO } else { GATHER };
        self.timer.outcomes_pending(Instant::now(), gather);
    }

    /// Writes all outcomes, in requests of a bounded length. If one is too long on its way, it is halved, and at last the result is left out.
    async fn acknowledge(&mut self) -> Result<(), Lost> {
        while !self.pending.is_empty() {
            let count = self.next_outcomes();
            let outcomes: Vec<_> = self.pending.iter().take(count).collect();
            let body = json!({ "outcomes": outcomes });
            match self.change("acknowledge", &body, count).await {
                Ok(()) => drop(self.pending.drain(..count)),
                Err(Lost::TooLong(_)) if count > 1 => self.most_outcomes = count / 2,
                Err(Lost::TooLong(error)) => {
                    let first = self.pending.front_mut().and_then(Value::as_object_mut);
                    let had_result = first.is_some_and(|outcome| {
                        outcome.remove("result").is_some() | outcome.remove("result_base64").is_some()
                    });
                    if !had_result {
                        return Err(Lost::TooLong(error));
                    }
                    tracing::warn!(
                        event = "result_too_long",
                        error = &error as &dyn std::error::Error,
                        "the result of the item is too long and not kept; the item is done"
                    );
                }
                Err(lost) => return Err(lost),
            }
        }
        self.timer.outcomes_written();
        Ok(())
    }

    /// How many of the pending outcomes the next acknowledgement has: at least one.
    fn next_outcomes(&self) -> usize {
        let mut bytes = 0;
        let fitting = self.pending.iter().take(self.most_outcomes).take_while(|outcome| {
            bytes += outcome.to_string().len();
            bytes <= MOST_BYTES
        });
        fitting.count().max(1)
    }

    /// Ends the commands of items that were cancelled, as the answer to a change of the lease names them.
    fn stop_cancelled(&self, answer: &Value) {
        let named = answer["cancelled"].as_array().into_iter().flatten();
        for item in named.filter_map(|id| id.as_str()?.parse::<ItemId>().ok()) {
            let token = self.cancelled.token(&item, &self.lost);
            if !token.is_cancelled() {
                token.cancel();
                tracing::info!(
                    event = "item_cancelled",
                    queue = %self.worker.queue,
                    item = %item,
                    "running item cancelled; its handler is stopped"
                );
            }
        }
    }

    /// A request that changes the lease and acknowledges this number of items. It is repeated while
    /// the lease lasts.
    async fn change(&mut self, what: &str, body: &Value, acknowledged: usize) -> Result<(), Lost> {
        let path = format!("{}/{what}", self.path);
        let began = Instant::now();
        let until = Until::Time(self.timer.held_until());
        match self.worker.daemons.change(&path, body, self.patience, until).await {
            Ok(answer) => {
                self.timer.changed(began, acknowledged);
                self.stop_cancelled(&answer);
                Ok(())
            }
            Err(error) if error.is_denial() => Err(Lost::Refused(error)),
            Err(error) if error.is_too_long() => Err(Lost::TooLong(error)),
            Err(error) => Err(Lost::Expired(Some(error))),
        }
    }
}

/// An outcome as the API reads it.
fn shown(item: &ItemId, outcome: Outcome) -> Value {
    let id = item.to_string();
    match outcome {
        Outcome::Done => json!({ "id": id, "outcome": "done" }),
        // The daemon refuses one that is too long. The log has it.
        Outcome::DoneWith(result) if result.len() > MAX_RESULT => json!({ "id": id, "outcome": "done" }),
        Outcome::DoneWith(result) => {
            let mut object = Map::from_iter([("id".into(), id.into()), ("outcome".into(), "done".into())]);
            crate::base::json::insert_bytes(&mut object, "result", &result);
            object.into()
        }
        Outcome::Retry(reason) => json!({ "id": id, "outcome": "retry", "reason": reason }),
        Outcome::RetryAfter(pause, reason) => {
            json!({ "id": id, "outcome": "retry", "after_ms": pause.as_millis(), "reason": reason })
        }
        Outcome::Dead(reason) => json!({ "id": id, "outcome": "dead", "reason": reason }),
        Outcome::Throttle { scope, wait, reason } => {
            let scope = ScopeName::from(scope);
            json!({ "id": id, "outcome": "throttle", "scope": scope, "after_ms": wait.as_millis(), "reason": reason })
        }
        Outcome::Release | Outcome::Unavailable(_) | Outcome::UnavailableAfter(..) => {
            json!({ "id": id, "outcome": "release" })
        }
    }
}

/// Logs an outcome in its item's span. The daemon decides whether a failed item is tried again.
fn log(item: &Item, outcome: &Outcome) {
    match outcome {
        Outcome::Throttle { .. } => {
            span::outcome(Span::current, "throttled");
            log_throttle(item, outcome);
        }
        Outcome::Done => span::outcome(Span::current, "done"),
        Outcome::DoneWith(result) => {
            span::outcome(Span::current, "done");
            if result.len() > MAX_RESULT {
                tracing::warn!(
                    event = "result_too_long",
                    most_bytes = MAX_RESULT,
                    "the result of the item is too long and not kept; the item is done"
                );
            }
        }
        Outcome::Retry(reason) | Outcome::RetryAfter(_, reason) => {
            span::outcome(Span::current, "retry");
            tracing::warn!(
                event = "item_failed",
                reason,
                "item failed; it will be retried, unless that was its last attempt"
            );
        }
        Outcome::Dead(reason) => {
            span::outcome(Span::current, "dead");
            tracing::error!(event = "item_dead", reason, "item failed for good; it is now a dead letter");
        }
        Outcome::Release | Outcome::Unavailable(_) | Outcome::UnavailableAfter(..) => {
            span::outcome(Span::current, "released");
            tracing::debug!(event = "item_released", "item released");
        }
    }
}
