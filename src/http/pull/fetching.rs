//! The fetches from one queue, for the workers that ask. One transaction fetches for all who ask meanwhile: what comes when is decided by the
//! [state machine](state) that consumers' fetches follow, too.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::{FetchError, Fetched, Queue, RetryPolicy, Session, Share, Watch};
use mutant::mutant;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::sleep_until,
};

use super::{
    expired::{Expired, end_expired},
    unanswered::Unanswered,
};
use crate::{
    base::{clock, identity},
    consumer::fetch::{
        VersionClock,
        state::{self, Effect, Event, Phase, State},
    },
    http::{backend::Backend, error::ApiError, peer::Peer},
};

/// How often an empty queue is looked at although no push woke anybody.
const LOOK: Duration = Duration::from_secs(30);

/// How often a paused queue is looked at.
const PAUSED: Duration = Duration::from_secs(1);

/// The pause after a fetch of nothing but expired items that cannot be ended, or after a watch was lost.
const FAILED: Duration = Duration::from_secs(1);

/// How often the task looks for waiting workers that have closed their connections.
const CHECK: Duration = Duration::from_secs(5);

/// The most items that one transaction fetches for several workers, and the most workers.
const MOST_ITEMS: usize = 1_000;
const MOST_SHARES: usize = 64;

/// How long a fetch is tried. What it may have got by then comes with the next fetch.
pub(super) const FETCH: RetryPolicy =
    RetryPolicy { timeout: Some(Duration::from_secs(5)), max_attempts: None };

/// What a worker gets: a lease, or none, or the reason.
pub(super) type LeaseAnswer = Result<Option<Unanswered>, ApiError>;

/// A worker asks for items.
pub(super) struct LeaseRequest {
    /// The most items.
    pub(super) max: NonZeroUsize,
    /// How long the lease is.
    pub(super) length: Duration,
    /// Until when it waits. It gets what is ready in any case.
    pub(super) until: Instant,
    /// Its connection.
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) answer: oneshot::Sender<LeaseAnswer>,
}

impl LeaseRequest {
    /// Whether nobody waits for the answer any more.
    fn is_gone(&self) -> bool {
        self.answer.is_closed() || self.peer.as_ref().is_some_and(|peer| peer.is_gone())
    }

    fn give(self, answer: LeaseAnswer) {
        // A lease that nobody waits for is released.
        let _ = self.answer.send(answer);
    }
}

/// A task that fetches for workers. It ends when nobody can ask any more, and when the daemon has stopped.
pub(super) struct Fetching {
    backend: Arc<Backend>,
    queue: Queue,
    session: Session,
    /// Learns from each fetch which time belongs to its version.
    clock: Arc<VersionClock>,
    /// Bounded by the number of connections.
    arriving: UnboundedReceiver<LeaseRequest>,
    state: State,
    /// The requests in `state`, by their numbers there, which are in the order of arrival.
    requests: BTreeMap<u64, LeaseRequest>,
    /// The number of the next request.
    next: u64,
    /// Fires when there may be what the last fetch has not found.
    watch: Option<Watch>,
    /// When the event `PollDue` is due: the watch is then too old to be relied upon.
    look_at: Instant,
    /// The event that the state waits for, and when it is due.
    timer: Option<(Instant, Event)>,
    /// When to look for waiting workers that have gone.
    check_at: Instant,
}

impl Fetching {
    /// Returns the task for a queue, and the sender of its requests.
    pub(super) fn new(
        backend: &Arc<Backend>,
        queue: Queue,
        clock: Arc<VersionClock>,
    ) -> (Self, UnboundedSender<LeaseRequest>) {
        let (sender, arriving) = unbounded_channel();
        let session = Session::with_id(queue.clone(), identity::session_id())
            .with_policy(FETCH)
            .with_history(&backend.daemon.history);
        let now = Instant::now();
        let fetching = Self {
            backend: backend.clone(),
            queue,
            session,
            clock,
            arriving,
            state: State::default(),
            requests: BTreeMap::new(),
            next: 0,
            watch: None,
            look_at: now,
            timer: None,
            check_at: now + CHECK,
        };
        (fetching, sender)
    }

    pub(super) async fn run(mut self) {
        let backend = self.backend.clone();
        loop {
            let over = self.requests.values().map(|request| request.until).min();
            let others = over.map(|_| self.look_at.min(self.check_at));
            let timer = self.timer.map(|(at, _)| at);
            let wake = [over, others, timer].into_iter().flatten().min();
            let mut events = VecDeque::new();
            tokio::select! {
                () = backend.stopping.cancelled() => return self.end(),
                request = self.arriving.recv() => match request {
                    Some(request) => self.arrived(request, &mut events),
                    None => return,
                },
                is_good = fired(self.watch.as_mut()), if over.is_some() => {
                    self.watch = None;
                    match is_good {
                        true => events.push_back(Event::WatchFired),
                        false => self.look_at = self.look_at.min(Instant::now() + FAILED),
                    }
                }
                () = at(wake) => {}
            }
            let now = Instant::now();
            if let Some((_, event)) = self.timer.take_if(|(at, _)| *at <= now) {
                events.push_back(event);
            }
            if over.is_some() && self.look_at <= now {
                self.watch = None;
                self.look_at = now + LOOK;
                events.push_back(Event::PollDue);
            }
            self.carry_on(events).await;
            let dismissed = self.dismiss();
            self.carry_on(dismissed).await;
        }
    }

    fn arrived(&mut self, request: LeaseRequest, events: &mut VecDeque<Event>) {
        // The queue is looked at for each request that arrives, also while it was paused a moment ago, or full.
        match self.state.phase() {
            Phase::Held => events.push_back(Event::Released),
            Phase::BackingOff => events.push_back(Event::BackoffOver),
            Phase::Resting | Phase::Delayed | Phase::Gathering | Phase::Fetching => {}
        }
        let asker = self.next;
        self.next += 1;
        events.extend([asked(asker, &request), Event::LookAgain]);
        self.requests.insert(asker, request);
    }

    /// Feeds events to the state, and carries out its effects, until none is left.
    async fn carry_on(&mut self, mut events: VecDeque<Event>) {
        while let Some(event) = events.pop_front()
            && !self.backend.stopping.is_cancelled()
        {
            for effect in self.state.on(event, MOST_ITEMS, clock::random()) {
                match effect {
                    Effect::Gather => self.gather(&mut events).await,
                    Effect::Fetch => self.fetch(&mut events).await,
                    // It is in `self.watch`, and `run` waits on it.
                    Effect::Watch => {}
                    Effect::Delay(delay) => self.timer = Some((Instant::now() + delay, Event::DelayOver)),
                    // Only `OnlyExpired` fails: other errors are answered.
                    Effect::Backoff { .. } => {
                        self.timer = Some((Instant::now() + FAILED, Event::BackoffOver));
                    }
                    Effect::Reply(asker, _) => {
                        if let Some(request) = self.requests.remove(&asker) {
                            request.give(Ok(None));
                        }
                    }
                }
            }
        }
    }

    /// Adds the requests that have come meanwhile, removes those of workers that have gone, and finds out whether the queue is paused.
    async fn gather(&mut self, events: &mut VecDeque<Event>) {
        while let Ok(request) = self.arriving.try_recv() {
            self.arrived(request, events);
        }
        // The fetch may be for these. An item that starts for a worker that has gone would count for a rate.
        let (mut alive, mut gone) = (0, Vec::new());
        for (asker, request) in &self.requests {
            if request.is_gone() {
                gone.push(Event::Withdrawn(*asker));
            } else {
                alive += 1;
                if alive == MOST_SHARES {
                    break;
                }
            }
        }
        events.extend(gone);
        match self.backend.is_paused(&self.queue).await {
            Ok(false) => events.push_back(Event::Gathered),
            Ok(true) => {
                self.timer = Some((Instant::now() + PAUSED, Event::Released));
                events.push_back(Event::Held);
            }
            Err(error) => {
                self.refuse(self.requests.keys().copied().collect(), &error, events);
            }
        }
    }

    /// Fetches for the requests that the state names, and gives each its lease.
    async fn fetch(&mut self, events: &mut VecDeque<Event>) {
        let askers: Vec<_> = self.state.fetching().iter().map(|request| request.asker).collect();
        let of_askers = askers.iter().filter_map(|asker| self.requests.get(asker));
        let shares: Vec<_> =
            of_askers.map(|request| Share { k: request.max, lease: request.length }).collect();
        match self.leases(&shares).await {
            Ok(Some(fetched)) => {
                events.push_back(Event::of(&fetched));
                if !fetched.got.is_empty() {
                    self.give(fetched.got, askers, events);
                } else if self.watch.is_none() || !mutant("watch-of-an-earlier-fetch-stays") {
                    // What an earlier fetch has waited for may be something else.
                    self.watch = fetched.watch;
                }
            }
            Ok(None) => events.push_back(Event::Failed),
            // The database does not answer the others either.
            Err(error @ (ApiError::Unavailable(_) | ApiError::NoSpace)) => {
                self.refuse(self.requests.keys().copied().collect(), &error, events);
            }
            Err(error) => self.refuse(askers, &error, events),
        }
    }

    /// Gives each of the first askers its lease.
    fn give(&mut self, leases: Vec<Option<Unanswered>>, askers: Vec<u64>, events: &mut VecDeque<Event>) {
        let mut given = 0;
        for (lease, asker) in leases.into_iter().zip(askers) {
            let Some(lease) = lease else {
                // All its items had expired, so it asks again.
                events.extend(self.requests.get(&asker).map(|request| asked(asker, request)));
                continue;
            };
            given += 1;
            let Some(request) = self.requests.remove(&asker) else { continue };
            // The lease of a worker that has gone is dropped, and so released.
            if !request.is_gone() {
                request.give(Ok(Some(lease)));
            }
        }
        if given == 0 {
            events.extend(self.dismiss());
        }
    }

    /// Answers these requests with an error, and ends the fetch.
    fn refuse(&mut self, askers: Vec<u64>, error: &ApiError, events: &mut VecDeque<Event>) {
        for asker in askers {
            if let Some(request) = self.requests.remove(&asker) {
                request.give(Err(error.clone()));
                events.push_back(Event::Withdrawn(asker));
            }
        }
        events.push_back(Event::Refused);
    }

    /// Leases for the first of these workers, in their order; `None` in the place of a lease of which all items had expired. Returns `None` if
    /// there were only items that have expired and cannot be ended.
    async fn leases(
        &mut self,
        shares: &[Share],
    ) -> Result<Option<Fetched<Vec<Option<Unanswered>>>>, ApiError> {
        let mut conflicts = 0;
        loop {
            let began = Instant::now();
            let mut fetched =
                self.session.fetch_for(&self.backend.daemon.db, shares, true).await.map_err(failure)?;
            conflicts += fetched.attempts.conflicts;
            fetched.attempts.conflicts = conflicts;
            self.clock.learn(fetched.version);
            self.look_at = Instant::now() + fetched.look_again_in.map_or(LOOK, |wait| wait.min(LOOK));
            let unanswered = |lease| Some(Unanswered::new(&self.backend, lease, began));
            let mut fetched = fetched.map(|leases| leases.into_iter().map(unanswered).collect::<Vec<_>>());
            if fetched.got.is_empty() {
                return Ok(Some(fetched));
            }
            // While the clocks are compared, the leases run.
            let patience = shares.iter().map(|share| share.lease).min().unwrap_or_default() / 3;
            let (queue, leases) = (self.queue.name(), &mut fetched.got);
            match end_expired(&self.backend, queue, &self.clock, leases, patience).await {
                // The next fetch would get them again, so it waits.
                Expired::Left if fetched.got.iter().all(Option::is_none) => return Ok(None),
                // What an earlier fetch has got is released: its workers have been told that it failed.
                _ if fetched.recovered => {}
                _ => return Ok(Some(fetched)),
            }
        }
    }

    /// The requests to withdraw: of workers whose waiting time is over, and now and then also of workers that have gone.
    fn dismiss(&mut self) -> VecDeque<Event> {
        let now = Instant::now();
        let checks = self.check_at <= now;
        if checks {
            self.check_at = now + CHECK;
        }
        let is_over = |request: &LeaseRequest| {
            request.until <= now || request.answer.is_closed() || (checks && request.is_gone())
        };
        let over = self.requests.iter().filter(|(_, request)| is_over(request));
        over.map(|(asker, _)| Event::Withdrawn(*asker)).collect()
    }

    fn end(mut self) {
        self.arriving.close();
        while let Ok(request) = self.arriving.try_recv() {
            request.give(Ok(None));
        }
        self.requests.into_values().for_each(|request| request.give(Ok(None)));
    }
}

/// The event that a worker asks for items.
fn asked(asker: u64, request: &LeaseRequest) -> Event {
    // It counts for so many items that one transaction has at most `MOST_SHARES` of them.
    let items = request.max.get().max(MOST_ITEMS.div_ceil(MOST_SHARES));
    Event::Asked(state::Request { asker, items, prefetch: false })
}

/// Waits until the watch fires; false if it is lost.
async fn fired(watch: Option<&mut Watch>) -> bool {
    match watch {
        Some(watch) => watch.await.is_ok(),
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
