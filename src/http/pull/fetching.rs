//! The fetches from one queue, for the workers that ask, in the order in which they ask. One transaction fetches for all who ask meanwhile.

use std::{
    collections::VecDeque,
    future::pending,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::{FetchError, Queue, RetryPolicy, Session, Share, Watch};
use mutant::mutant;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::sleep_until,
};

use super::unanswered::Unanswered;
use crate::{
    base::{clock_lag::ClockLag, identity},
    consumer::{expiry::Expiry, fetch::VersionClock},
    http::{app_state::AppState, error::ApiError, peer::Peer},
};

/// How often an empty queue is looked at although no push woke anybody.
const LOOK: Duration = Duration::from_secs(30);

/// How often a paused queue is looked at.
const PAUSED: Duration = Duration::from_secs(1);

/// The pause after a fetch of expired items that cannot be ended, or not yet.
const FAILED: Duration = Duration::from_secs(1);

/// How often the task looks for waiting workers that have closed their connections.
const CHECK: Duration = Duration::from_secs(5);

/// The most workers that one transaction fetches for, and the most items.
const MOST_SHARES: usize = 64;
const MOST_ITEMS: usize = 1_000;

/// How long a fetch is tried. What it may have got by then comes with the next fetch.
const FETCH: RetryPolicy = RetryPolicy { timeout: Some(Duration::from_secs(5)), max_attempts: None };

/// What a worker gets: a lease, or none, or the reason.
pub(super) type Fetched = Result<Option<Unanswered>, ApiError>;

/// A worker asks for items.
pub(super) struct Request {
    /// The most items.
    pub(super) max: NonZeroUsize,
    /// How long the lease is.
    pub(super) length: Duration,
    /// Until when it waits. It gets what is ready in any case.
    pub(super) until: Instant,
    /// Its connection.
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) answer: oneshot::Sender<Fetched>,
}

impl Request {
    /// Whether nobody waits for the answer any more.
    fn is_gone(&self) -> bool {
        self.answer.is_closed() || self.peer.as_ref().is_some_and(|peer| peer.is_gone())
    }

    fn give(self, fetched: Fetched) {
        // A lease that nobody waits for is released.
        let _ = self.answer.send(fetched);
    }
}

/// A task that fetches for workers. It ends when nobody can ask any more, and when the daemon has stopped.
pub(super) struct Fetching {
    app: Arc<AppState>,
    queue: Queue,
    session: Session,
    /// Learns from each fetch which time belongs to its version.
    clock: Arc<VersionClock>,
    /// Bounded by the number of connections.
    requests: UnboundedReceiver<Request>,
    /// Workers for whom nothing was ready.
    waiting: VecDeque<Request>,
    /// Fires when there may be what the last fetch has not found.
    watch: Option<Watch>,
    /// When to fetch again though nobody asked and the watch has not fired.
    look_at: Instant,
    /// When to look for waiting workers that have gone.
    check_at: Instant,
}

impl Fetching {
    /// Returns the task for a queue, and the sender of its requests.
    pub(super) fn new(
        app: &Arc<AppState>,
        queue: Queue,
        clock: Arc<VersionClock>,
    ) -> (Self, UnboundedSender<Request>) {
        let (sender, requests) = unbounded_channel();
        let session = Session::with_id(queue.clone(), identity::session_id())
            .with_policy(FETCH)
            .with_history(&app.daemon.history);
        let fetching = Self {
            app: app.clone(),
            queue,
            session,
            clock,
            requests,
            waiting: VecDeque::new(),
            watch: None,
            look_at: Instant::now(),
            check_at: Instant::now() + CHECK,
        };
        (fetching, sender)
    }

    pub(super) async fn run(mut self) {
        let app = self.app.clone();
        loop {
            let until = self.waiting.iter().map(|request| request.until).min();
            let until = until.map(|until| until.min(self.look_at).min(self.check_at));
            tokio::select! {
                () = app.stopping.cancelled() => return self.end(),
                request = self.requests.recv() => match request {
                    Some(request) => {
                        self.waiting.push_back(request);
                        self.look_at = Instant::now();
                    }
                    None => return,
                },
                () = fired(self.watch.as_mut()), if until.is_some() => {
                    self.watch = None;
                    self.look_at = Instant::now();
                }
                () = at(until) => {}
            }
            if self.look_at <= Instant::now() {
                self.serve().await;
            }
            self.dismiss();
        }
    }

    /// Fetches for the waiting workers, until nothing is ready or no worker waits.
    async fn serve(&mut self) {
        self.look_at = Instant::now() + LOOK;
        while !self.app.stopping.is_cancelled() {
            while let Ok(request) = self.requests.try_recv() {
                self.waiting.push_back(request);
            }
            let group = self.first();
            if group.is_empty() {
                return;
            }
            match self.fetch(&group).await {
                Ok(leases) => {
                    let is_over = leases.is_empty();
                    let mut group = group.into_iter();
                    for (lease, request) in leases.into_iter().zip(&mut group) {
                        // The lease of a worker that has gone is dropped, and so released.
                        if !request.is_gone() {
                            request.give(Ok(Some(lease)));
                        }
                    }
                    self.put_back(group);
                    if is_over {
                        return;
                    }
                }
                // The database does not answer the others either.
                Err(error @ (ApiError::Unavailable(_) | ApiError::NoSpace)) => {
                    self.put_back(group.into_iter());
                    return self.waiting.drain(..).for_each(|request| request.give(Err(error.clone())));
                }
                Err(error) => group.into_iter().for_each(|request| request.give(Err(error.clone()))),
            }
        }
    }

    /// The workers that have waited longest, as many as one transaction fetches for.
    fn first(&mut self) -> Vec<Request> {
        let (mut group, mut items) = (Vec::<Request>::new(), 0);
        while group.len() < MOST_SHARES
            && let Some(request) = self.waiting.pop_front()
        {
            if request.is_gone() {
                continue;
            }
            items += request.max.get();
            if items > MOST_ITEMS && !group.is_empty() {
                self.waiting.push_front(request);
                break;
            }
            group.push(request);
        }
        group
    }

    fn put_back(&mut self, group: impl DoubleEndedIterator<Item = Request>) {
        group.rev().for_each(|request| self.waiting.push_front(request));
    }

    /// Leases for the first of these workers. None: nothing is ready, or the queue is paused.
    async fn fetch(&mut self, group: &[Request]) -> Result<Vec<Unanswered>, ApiError> {
        let shares: Vec<_> =
            group.iter().map(|request| Share { k: request.max, lease: request.length }).collect();
        loop {
            if self.app.is_paused(&self.queue).await? {
                self.look_at = Instant::now() + PAUSED;
                return Ok(Vec::new());
            }
            let began = Instant::now();
            let fetched =
                self.session.fetch_for(&self.app.daemon.db, &shares, true).await.map_err(failure)?;
            self.clock.learn(fetched.version);
            // What an earlier fetch has waited for may be something else.
            if self.watch.is_none() || !mutant("watch-of-an-earlier-fetch-stays") {
                self.watch = fetched.watch;
            }
            if let Some(wait) = fetched.look_again_in {
                self.look_at = self.look_at.min(Instant::now() + wait);
            }
            let leases = fetched.leases.into_iter().map(|lease| Unanswered::new(&self.app, lease, began));
            let mut leases: Vec<_> = leases.collect();
            // While the clocks are compared, the leases run.
            let patience = shares.iter().map(|share| share.lease).min().unwrap_or_default() / 3;
            let expired = end_expired(&self.app, self.queue.name(), &self.clock, &mut leases, patience).await;
            if leases.is_empty() && expired != Expired::Nothing {
                // The next fetch follows at once, after workers whose waiting time is over have been answered. If items could not be ended,
                // it gets them again, so it waits.
                let wait = if expired == Expired::Left { FAILED } else { Duration::ZERO };
                self.look_at = Instant::now() + wait;
                return Ok(leases);
            }
            // What an earlier fetch has got is released: its workers have been told that it failed.
            if !fetched.recovered {
                return Ok(leases);
            }
        }
    }

    /// Answers workers whose waiting time is over. Now and then it also drops requests of workers that have gone.
    fn dismiss(&mut self) {
        let now = Instant::now();
        let checks = self.check_at <= now;
        if checks {
            self.check_at = now + CHECK;
        }
        for _ in 0..self.waiting.len() {
            match self.waiting.pop_front() {
                Some(request) if request.until <= now => request.give(Ok(None)),
                Some(request) if request.answer.is_closed() || (checks && request.is_gone()) => {}
                Some(request) => self.waiting.push_back(request),
                None => {}
            }
        }
    }

    fn end(mut self) {
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            self.waiting.push_back(request);
        }
        self.waiting.drain(..).for_each(|request| request.give(Ok(None)));
    }
}

/// What became of the items of leases that have expired before their first attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expired {
    /// There were none.
    Nothing,
    /// They were ended.
    Ended,
    /// Those of a lease could not be ended, and are in the queue again.
    Left,
}

/// Ends the items that have expired before their first attempt, and drops the leases that have no other.
///
/// A lease whose expired items cannot be ended, or whose items seem to have expired by a clock that is not compared with others within `patience`, is dropped, too,
/// and so released: no worker gets these items, and the others get theirs.
async fn end_expired(
    app: &AppState,
    queue: &[u8],
    clock: &VersionClock,
    leases: &mut Vec<Unanswered>,
    patience: Duration,
) -> Expired {
    let config = app.config();
    let name = str::from_utf8(queue).unwrap_or_default();
    let expiry = config.queues.get(name).map(Expiry::of).unwrap_or_default();
    let meters = config.queues.contains_key(name).then(|| app.daemon.status.metrics.queue(&name.into()));
    // Of a queue that is not configured here this process has no sweeper.
    let by_others = meters.is_none().then(|| ClockLag::of(app.daemon.status.clock_lag()));
    let lag = by_others.as_ref().or(meters.as_ref().map(|meters| &meters.clock_lag));
    let began = Instant::now();
    let (mut ended, mut failed) = (Expired::Nothing, Vec::new());
    for (at, lease) in leases.iter_mut().enumerate() {
        let (Some(lease), Some(lag)) = (lease.lease(), lag) else { continue };
        let open: Vec<_> = lease.open().collect();
        let patience = patience.saturating_sub(began.elapsed());
        let Some(mut expired) = expiry.expired_within(lease.items(), clock, lag, patience).await else {
            failed.push(at);
            continue;
        };
        expired.retain(|(index, _)| open.contains(index));
        if expired.is_empty() {
            continue;
        }
        if let Err(error) = lease.acknowledge(&app.daemon.db, &FETCH, &expired).await {
            tracing::debug!(event = "expiry_failed", queue = name, %error, "cannot end expired items; their lease is released");
            failed.push(at);
            continue;
        }
        ended = Expired::Ended;
        for (index, _) in &expired {
            tracing::info!(
                event = "item_expired",
                queue = name,
                item = %lease.items()[*index].id,
                "item expired before its first attempt began"
            );
        }
        if let Some(meters) = &meters {
            meters.expired.inc_by(expired.len() as u64);
        }
    }
    let mut at = 0..;
    leases.retain(|lease| at.next().is_some_and(|at| !failed.contains(&at)) && !lease.is_acknowledged());
    if failed.is_empty() { ended } else { Expired::Left }
}

/// Waits until the watch fires. An error means that the watch is gone.
async fn fired(watch: Option<&mut Watch>) {
    match watch {
        Some(watch) => drop(watch.await),
        None => pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => pending().await,
    }
}

fn failure(error: FetchError) -> ApiError {
    match error {
        FetchError::Retry(error) => ApiError::of(&error),
        other => ApiError::TooLarge(other.to_string()),
    }
}
