//! The daemon's report about itself. The actors, the reload and the stats poller write it; metrics, HTTP,
//! systemd's notifications and the log read it.

mod clock_notes;
mod history;
mod json;
mod liveness;
mod queue;
mod summary;
mod viewers;
mod workers;

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use kvqueue_queue::{ClocksDiffer, ItemId, Recorder, Recording, millis};
use tokio::sync::watch;

pub(crate) use clock_notes::{ClockChange, lag};
pub(crate) use history::Sample;
#[cfg(test)]
pub(crate) use json::QueueStatsJson;
pub(crate) use json::{ConfigJson, ConsumerJson, DatabaseJson, Phase, QueueJson, Snapshot, SpaceJson};
pub(crate) use queue::QueueStats;
pub(crate) use summary::Summary;
pub(crate) use viewers::Viewers;
pub(crate) use workers::{Wait, Worker, WorkerCounts, WorkerJson, Workers, shortened};

use self::{clock_notes::ClockNotes, liveness::Liveness, queue::Entry};
use crate::{
    base::clock,
    config::Config,
    consumer::{
        breaker::Breaker,
        pause_state::PauseState,
        status::{Activity, ConsumerState, ConsumerStatus},
    },
    database::{identity, item_history},
    meters::Metrics,
};

/// The most workers in a snapshot.
const SHOWN_WORKERS: usize = 100;

/// The status of a daemon. A process has one.
#[derive(Debug)]
pub(crate) struct DaemonStatus {
    /// The counters and gauges.
    pub(crate) metrics: Metrics,
    /// Its viewers.
    pub(crate) viewers: Arc<Viewers>,
    /// Workers of other programs, which lease items over HTTP.
    pub(crate) workers: Arc<Workers>,
    /// By the clock of the machine, and by one that does not jump.
    started: (SystemTime, Instant),
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
    listener: OnceLock<PhaseListener>,
}

/// An item that a handler of this daemon has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    /// The number of its consumer.
    pub(crate) consumer: u64,
    /// How long ago the handler was called.
    pub(crate) lasted: Duration,
}

/// Is called with each phase as it begins, on the thread that begins it.
struct PhaseListener(Box<dyn Fn(Phase) + Send + Sync>);

impl std::fmt::Debug for PhaseListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PhaseListener")
    }
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// When the shutdown timeout ends.
    drain_ends: Option<Instant>,
    liveness: Liveness,
    database: DatabaseJson,
    config: ConfigJson,
    pause_states: BTreeMap<Arc<str>, PauseState>,
    breakers: BTreeMap<Arc<str>, Arc<Breaker>>,
    recorders: BTreeMap<Arc<str>, Recorder>,
    queues: BTreeMap<Arc<str>, Entry>,
    consumers: BTreeMap<u64, Arc<ConsumerStatus>>,
    clock: ClockNotes,
}

impl DaemonStatus {
    /// The status of a daemon that is about to start on this database.
    pub(crate) fn new(database: &str) -> Arc<Self> {
        let (url, identity) = (database.to_owned(), identity(database));
        let database = DatabaseJson { url, identity, up: false, error: None, answered_in: None, space: None };
        let inner = Inner {
            phase: Phase::Starting,
            drain_ends: None,
            liveness: Liveness::new(None),
            database,
            config: ConfigJson::default(),
            pause_states: BTreeMap::new(),
            breakers: BTreeMap::new(),
            recorders: BTreeMap::new(),
            queues: BTreeMap::new(),
            consumers: BTreeMap::new(),
            clock: ClockNotes::default(),
        };
        Arc::new(Self {
            metrics: Metrics::default(),
            viewers: Arc::default(),
            workers: Arc::default(),
            started: (clock::now(), Instant::now()),
            inner: Mutex::new(inner),
            changes: watch::Sender::new(0),
            listener: OnceLock::new(),
        })
    }

    /// Starts another phase.
    pub(crate) fn phase(&self, phase: Phase) {
        self.change(|inner| inner.phase = phase);
        if let Some(PhaseListener(listener)) = self.listener.get() {
            listener(phase);
        }
    }

    /// Starts the last phase; after this time, running handlers are cancelled.
    pub(crate) fn draining(&self, shutdown_timeout: Duration) {
        self.lock().drain_ends = Instant::now().checked_add(shutdown_timeout);
        self.phase(Phase::Draining);
    }

    /// When running handlers are cancelled, in a drain.
    pub(crate) fn drain_ends(&self) -> Option<Instant> {
        self.lock().drain_ends
    }

    /// Calls `listener` with each phase as it begins, so that it misses no phase, however short.
    /// There is one listener; returns false if there was one before.
    pub(crate) fn listen(&self, listener: impl Fn(Phase) + Send + Sync + 'static) -> bool {
        self.listener.set(PhaseListener(Box::new(listener))).is_ok()
    }

    /// Notes that the daemon works, or what is stuck. Must be called every few seconds.
    pub(crate) fn judge(&self, stuck: Option<String>) {
        // Not a change, since this repeats.
        self.lock().liveness = Liveness::new(stuck);
    }

    /// Whether the daemon works. The error names what is stuck, and for how long.
    pub(crate) fn liveness(&self) -> Result<(), String> {
        self.lock().liveness.now()
    }

    /// The current phase.
    pub(crate) fn current_phase(&self) -> Phase {
        self.lock().phase
    }

    /// Takes over the configured queues. Queues that stay keep their status.
    pub(crate) fn configure(&self, path: Option<String>, config: &Config) {
        self.change(|inner| {
            inner.config.path = path;
            inner.config.loaded_at = millis(clock::now());
            inner.config.refused = None;
            inner.queues.retain(|name, _| config.queues.contains_key(&**name));
            for (name, queue) in &config.queues {
                let name: Arc<str> = name.as_str().into();
                if let Some(entry) = inner.queues.get_mut(&name) {
                    entry.configure(queue);
                    continue;
                }
                let pause = inner.pause_states.entry(name.clone()).or_default().clone();
                let breaker = breaker(&mut inner.breakers, &name);
                let meters = self.metrics.queue(&name);
                inner.queues.insert(name, Entry::new(queue, pause, breaker, meters));
            }
        });
    }

    /// The pause state of a queue, made at the first call. It stays when the queue is removed.
    pub(crate) fn pause_state(&self, queue: &Arc<str>) -> PauseState {
        self.lock().pause_states.entry(queue.clone()).or_default().clone()
    }

    /// The circuit breaker of a queue, made at the first call. It stays when the queue is removed.
    pub(crate) fn breaker(&self, queue: &Arc<str>) -> Arc<Breaker> {
        breaker(&mut self.lock().breakers, queue)
    }

    /// What records the ends of a configured queue's items, made at the first call. It stays when the queue is removed.
    pub(crate) fn recorder(&self, queue: &str) -> Recorder {
        let recorders = &mut self.lock().recorders;
        if let Some(recorder) = recorders.get(queue) {
            return recorder.clone();
        }
        let recorder = item_history::recorder(Recording::Off);
        recorders.insert(queue.into(), recorder.clone());
        recorder
    }

    /// Notes that a configuration was refused, for this reason.
    pub(crate) fn refused(&self, reason: String) {
        self.metrics.reloads_refused.inc();
        self.change(|inner| inner.config.refused = Some(reason));
    }

    /// Notes whether consumers of this queue still finish items under earlier settings.
    pub(crate) fn finishing(&self, queue: &str, is_finishing: bool) {
        self.change(|inner| {
            let finishing = &mut inner.config.finishing;
            if is_finishing { finishing.insert(queue.to_owned()) } else { finishing.remove(queue) }
        });
    }

    /// Adds a consumer that starts. `restarts` is how many failed before it under this number.
    pub(crate) fn join(
        &self,
        id: u64,
        queue: &Arc<str>,
        k: NonZeroUsize,
        restarts: u64,
    ) -> Arc<ConsumerStatus> {
        let status = Arc::new(ConsumerStatus::new(id, queue.clone(), k, restarts));
        self.change(|inner| inner.consumers.insert(id, status.clone()));
        status
    }

    /// Removes a consumer that has ended.
    pub(crate) fn leave(&self, id: u64) {
        self.change(|inner| inner.consumers.remove(&id));
    }

    /// All consumers.
    pub(crate) fn consumers(&self) -> Vec<Arc<ConsumerStatus>> {
        self.lock().consumers.values().cloned().collect()
    }

    /// The items of a queue that handlers of this daemon have now: by which consumer, and since when.
    pub(crate) fn handled(&self, queue: &str) -> HashMap<ItemId, Handled> {
        let mut found = HashMap::new();
        for status in self.lock().consumers.values().filter(|status| *status.queue == *queue) {
            let Activity { called, items, .. } = status.activity();
            let (Some(since), Some(items)) = (called, items) else { continue };
            let handled = Handled { consumer: status.id, lasted: since.elapsed() };
            found.extend(items.iter().map(|item| (item.id.clone(), handled)));
        }
        found
    }

    /// Notes the counts that the stats poller has read.
    pub(crate) fn set_queue_stats(&self, queue: &str, stats: QueueStats) {
        self.change(|inner| inner.queues.get_mut(queue).map(|entry| entry.set_queue_stats(stats)));
    }

    /// Notes how fast the database answers, or its error.
    pub(crate) fn set_database(&self, answer: Result<Duration, String>) {
        self.change(|inner| {
            let database = &mut inner.database;
            database.up = answer.is_ok();
            match answer {
                Ok(took) => (database.answered_in, database.error) = (Some(took.as_secs_f64()), None),
                Err(error) => database.error = Some(error),
            }
        });
    }

    /// Notes what a queue's sweeper has found out about this process's clock. Returns what is new.
    pub(crate) fn clock(&self, queue: &Arc<str>, clock: Option<ClocksDiffer>) -> Option<ClockChange> {
        let change = self.lock().clock.note(queue, clock);
        if change.is_some() {
            self.touch();
        }
        change
    }

    /// How far this process's clock is ahead of one that it does not outvote.
    pub(crate) fn clock_lag(&self) -> Duration {
        self.lock().clock.lag()
    }

    /// Notes how much space is free on the database's disk.
    pub(crate) fn space(&self, space: SpaceJson) {
        self.change(|inner| inner.database.space = Some(space));
    }

    /// Why pushes are refused, if they are. Fetches go on.
    pub(crate) fn refuses_pushes(&self) -> Option<String> {
        self.lock().database.space.as_ref()?.pushes_refused.clone()
    }

    /// Problems of a daemon that works: pushes that are refused, a clock that differs from others, handlers that cannot work,
    /// fetches that fail.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let refused = self.refuses_pushes().map(|why| format!("pushes are refused: {why}"));
        let inner = self.lock();
        let outage = |(name, entry): (&Arc<str>, &Entry)| {
            let reason = entry.outage()?.reason;
            Some(format!("the handler of queue {name:?} cannot work: {reason}"))
        };
        let fetches = fetch_errors(&inner).into_iter();
        let fetches = fetches.map(|(queue, error)| format!("fetches from queue {queue:?} fail: {error}"));
        refused
            .into_iter()
            .chain(inner.clock.text())
            .chain(inner.queues.iter().filter_map(outage))
            .chain(fetches)
            .collect()
    }

    /// Wakes the viewers: something has changed that the status only refers to, such as a pause.
    pub(crate) fn touch(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// A receiver that each change wakes.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The last hour of a queue; none if there is no such queue.
    pub(crate) fn history(&self, queue: &str) -> Option<Vec<Sample>> {
        Some(self.lock().queues.get(queue)?.history.samples())
    }

    /// Why the daemon is not ready; empty if it is.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        not_ready(&self.lock())
    }

    /// The status in a few numbers.
    pub(crate) fn summary(&self) -> Summary {
        Summary::from(&*self.lock())
    }

    /// The whole status.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut workers = self.workers.counts();
        let (shown_workers, omitted_workers) = self.workers.list(None, SHOWN_WORKERS);
        let inner = self.lock();
        let (started_at, started) = self.started;
        let consumers: Vec<_> =
            inner.consumers.values().map(|status| consumer(status, &inner.pause_states)).collect();
        let mut by_queue = HashMap::<&str, usize>::new();
        consumers.iter().for_each(|it| *by_queue.entry(&it.queue).or_default() += 1);
        let consumers_of = |name: &str| by_queue.get(name).copied().unwrap_or_default();
        let mut fetch_errors = fetch_errors(&inner);
        let queues = inner.queues.iter();
        let queues = queues.map(|(name, entry)| QueueJson {
            workers: workers.remove(name).unwrap_or_default(),
            ..entry.view(name, consumers_of(name), fetch_errors.remove(name))
        });
        let queues = queues.collect();
        Snapshot {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            phase: inner.phase,
            started_at: millis(started_at),
            up_seconds: started.elapsed().as_secs_f64(),
            not_ready: not_ready(&inner),
            clock: inner.clock.text(),
            database: inner.database.clone(),
            config: inner.config.clone(),
            queues,
            consumers,
            workers: shown_workers,
            omitted_workers,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) {
        change(&mut self.lock());
        self.touch();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it holds the lock")
    }
}

fn breaker(breakers: &mut BTreeMap<Arc<str>, Arc<Breaker>>, queue: &Arc<str>) -> Arc<Breaker> {
    let breaker = breakers.entry(queue.clone());
    breaker.or_insert_with(|| Arc::new(Breaker::new(queue.clone()))).clone()
}

/// Why fetches fail, by their queues.
fn fetch_errors(inner: &Inner) -> BTreeMap<Arc<str>, String> {
    let failing = |status: &Arc<ConsumerStatus>| Some((status.queue.clone(), status.activity().fetch_error?));
    inner.consumers.values().filter_map(failing).collect()
}

fn not_ready(inner: &Inner) -> Vec<String> {
    let phase = match inner.phase {
        Phase::Ready | Phase::Reloading => None,
        Phase::Starting => Some("the daemon is starting: the database has not answered yet".to_owned()),
        Phase::Draining => Some("the daemon is stopping".to_owned()),
    };
    let database = (!inner.database.up && inner.phase != Phase::Starting).then(|| {
        let error = inner.database.error.as_deref().unwrap_or("it has not been asked yet");
        format!("the database does not answer: {error}")
    });
    phase.into_iter().chain(database).collect()
}

/// An idle consumer learns of a pause only when it is woken, and a paused queue wakes no consumer.
/// So the pause state decides what is shown.
fn consumer(status: &ConsumerStatus, pause_states: &BTreeMap<Arc<str>, PauseState>) -> ConsumerJson {
    let (state, lasted) = status.state();
    let paused_for = pause_states.get(&status.queue).and_then(PauseState::paused_for);
    let (state, lasted) = match paused_for {
        Some(paused_for) if state == ConsumerState::Idle => (ConsumerState::Paused, lasted.min(paused_for)),
        _ => (state, lasted),
    };
    ConsumerJson {
        id: status.id,
        queue: status.queue.to_string(),
        k: status.k.get(),
        state,
        for_seconds: lasted.as_secs_f64(),
        restarts: status.restarts,
    }
}
