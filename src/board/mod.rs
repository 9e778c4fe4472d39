//! What the daemon shows of itself. Written by whoever does something, read by whoever tells others: metrics, HTTP, systemd, the log.
//!
//! | file | role |
//! |---|---|
//! | `audience` | who looks at it |
//! | `pulse` | what one consumer is at |
//! | `beat` | a sign that something goes on |
//! | `verdict` | whether the daemon moves |
//! | `queue` | what is known of one queue |
//! | `history` | what a queue was like in the last hour |
//! | `view` | what others see: the shapes of JSON |

mod audience;
mod beat;
mod history;
mod pulse;
mod queue;
mod verdict;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::{Duration, Instant},
};

use kvqueue_queue::ItemId;
use tokio::sync::watch;

pub(crate) use audience::Audience;
pub(crate) use beat::Beat;
pub(crate) use history::Sample;
pub(crate) use pulse::{Doing, Pulse, Stage};
pub(crate) use queue::Survey;
#[cfg(test)]
pub(crate) use view::SurveyView;
pub(crate) use view::{
    ConfigView, ConsumerView, DatabaseView, PauseView, Phase, QueueView, Snapshot, SpaceView,
};

use self::{queue::Entry, verdict::Verdict};
use crate::{
    config::Config,
    consumer::{ambient, breaker::Breaker, gate::Gate},
    database::identity,
    metrics::Metrics,
};

/// The board. One per process.
#[derive(Debug)]
pub(crate) struct Board {
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// Who looks at it.
    pub(crate) audience: Arc<Audience>,
    started_at: u64,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
    listener: OnceLock<Listener>,
}

/// A handler of this daemon has an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    /// The number of its consumer.
    pub(crate) consumer: u64,
    /// How long ago the handler was called.
    pub(crate) lasted: Duration,
}

/// Hears of each phase as it begins, on the thread that begins it.
struct Listener(Box<dyn Fn(Phase) + Send + Sync>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// When the grace of a drain ends.
    grace_ends: Option<Instant>,
    verdict: Verdict,
    database: DatabaseView,
    config: ConfigView,
    gates: BTreeMap<Arc<str>, Gate>,
    breakers: BTreeMap<Arc<str>, Arc<Breaker>>,
    queues: BTreeMap<Arc<str>, Entry>,
    consumers: BTreeMap<u64, Arc<Pulse>>,
}

impl Board {
    /// For a daemon that is about to start on this database.
    pub(crate) fn new(database: &str) -> Arc<Self> {
        let (url, identity) = (database.to_owned(), identity(database));
        let database = DatabaseView { url, identity, up: false, error: None, answered_in: None, space: None };
        let inner = Inner {
            phase: Phase::Starting,
            grace_ends: None,
            verdict: Verdict::new(None),
            database,
            config: ConfigView::default(),
            gates: BTreeMap::new(),
            breakers: BTreeMap::new(),
            queues: BTreeMap::new(),
            consumers: BTreeMap::new(),
        };
        Arc::new(Self {
            metrics: Metrics::default(),
            audience: Arc::default(),
            started_at: ambient::now(),
            inner: Mutex::new(inner),
            changes: watch::Sender::new(0),
            listener: OnceLock::new(),
        })
    }

    /// Another phase begins.
    pub(crate) fn phase(&self, phase: Phase) {
        self.change(|inner| inner.phase = phase);
        if let Some(Listener(listener)) = self.listener.get() {
            listener(phase);
        }
    }

    /// The last phase begins; after this time what is in hand is given up.
    pub(crate) fn draining(&self, grace: Duration) {
        self.lock().grace_ends = Instant::now().checked_add(grace);
        self.phase(Phase::Draining);
    }

    /// When what is in hand is given up, in a drain.
    pub(crate) fn grace_ends(&self) -> Option<Instant> {
        self.lock().grace_ends
    }

    /// Has `listener` hear of each phase as it begins, so that none is missed however short it is. There is one listener; false if there
    /// was one before.
    pub(crate) fn listen(&self, listener: impl Fn(Phase) + Send + Sync + 'static) -> bool {
        self.listener.set(Listener(Box::new(listener))).is_ok()
    }

    /// The daemon moves, or this is stuck. To be said every few seconds.
    pub(crate) fn judge(&self, stuck: Option<String>) {
        // Not a change: it is said again and again.
        self.lock().verdict = Verdict::new(stuck);
    }

    /// Whether the daemon moves. An error says what is stuck, and for how long.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        self.lock().verdict.now()
    }

    /// The phase it is in.
    pub(crate) fn current_phase(&self) -> Phase {
        self.lock().phase
    }

    /// These are the queues now. What is known of those that stay, stays.
    pub(crate) fn configure(&self, path: Option<String>, config: &Config) {
        self.change(|inner| {
            inner.config.path = path;
            inner.config.loaded_at = ambient::now();
            inner.config.refused = None;
            inner.queues.retain(|name, _| config.queues.contains_key(&**name));
            for (name, queue) in &config.queues {
                let name: Arc<str> = name.as_str().into();
                if let Some(entry) = inner.queues.get_mut(&name) {
                    entry.configure(queue);
                    continue;
                }
                let gate = inner.gates.entry(name.clone()).or_default().clone();
                let breaker = breaker(&mut inner.breakers, &name);
                let meters = self.metrics.queue(&name);
                inner.queues.insert(name, Entry::new(queue, gate, breaker, meters));
            }
        });
    }

    /// The gate of a queue, made when it is first asked for. It stays when the queue goes.
    pub(crate) fn gate(&self, queue: &Arc<str>) -> Gate {
        self.lock().gates.entry(queue.clone()).or_default().clone()
    }

    /// The circuit breaker of a queue, made when it is first asked for. It stays when the queue goes.
    pub(crate) fn breaker(&self, queue: &Arc<str>) -> Arc<Breaker> {
        breaker(&mut self.lock().breakers, queue)
    }

    /// A configuration was refused, for this reason.
    pub(crate) fn refused(&self, reason: String) {
        self.metrics.reloads_refused.inc();
        self.change(|inner| inner.config.refused = Some(reason));
    }

    /// Whether consumers of this queue still finish items under earlier settings.
    pub(crate) fn finishing(&self, queue: &str, is_finishing: bool) {
        self.change(|inner| {
            let finishing = &mut inner.config.finishing;
            if is_finishing { finishing.insert(queue.to_owned()) } else { finishing.remove(queue) }
        });
    }

    /// A consumer starts, in the place of so many that failed.
    pub(crate) fn join(&self, id: u64, queue: &Arc<str>, k: NonZeroUsize, restarts: u64) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::new(id, queue.clone(), k, restarts));
        self.change(|inner| inner.consumers.insert(id, pulse.clone()));
        pulse
    }

    /// A consumer has ended.
    pub(crate) fn leave(&self, id: u64) {
        self.change(|inner| inner.consumers.remove(&id));
    }

    /// All consumers.
    pub(crate) fn pulses(&self) -> Vec<Arc<Pulse>> {
        self.lock().consumers.values().cloned().collect()
    }

    /// The items of a queue that handlers of this daemon have now: by which consumer, and since when.
    pub(crate) fn handled(&self, queue: &str) -> HashMap<ItemId, Handled> {
        let mut found = HashMap::new();
        for pulse in self.lock().consumers.values().filter(|pulse| *pulse.queue == *queue) {
            let Doing { called, items, .. } = pulse.doing();
            let (Some(since), Some(items)) = (called, items) else { continue };
            let handled = Handled { consumer: pulse.id, lasted: since.elapsed() };
            found.extend(items.iter().map(|item| (item.id.clone(), handled)));
        }
        found
    }

    /// What a look into the database found of a queue.
    pub(crate) fn surveyed(&self, queue: &str, survey: Survey) {
        self.change(|inner| inner.queues.get_mut(queue).map(|entry| entry.surveyed(survey)));
    }

    /// Whether the database answers, and how fast; or what is wrong.
    pub(crate) fn database(&self, answer: Result<Duration, String>) {
        self.change(|inner| {
            let database = &mut inner.database;
            database.up = answer.is_ok();
            match answer {
                Ok(took) => (database.answered_in, database.error) = (Some(took.as_secs_f64()), None),
                Err(error) => database.error = Some(error),
            }
        });
    }

    /// How much space is free on the database's disk.
    pub(crate) fn space(&self, space: SpaceView) {
        self.change(|inner| inner.database.space = Some(space));
    }

    /// Why pushes are refused, if they are. Takes, and the daemon itself, go on.
    pub(crate) fn refuses_pushes(&self) -> Option<String> {
        self.lock().database.space.as_ref()?.pushes_refused.clone()
    }

    /// What is wrong although the daemon works: pushes that are refused, handlers that cannot work, takes that fail.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let refused = self.refuses_pushes().map(|why| format!("pushes are refused: {why}"));
        let inner = self.lock();
        let outage = |(name, entry): (&Arc<str>, &Entry)| {
            let reason = entry.outage()?.reason;
            Some(format!("the handler of queue {name:?} cannot work: {reason}"))
        };
        let takes = take_errors(&inner).into_iter();
        let takes = takes.map(|(queue, error)| format!("takes from queue {queue:?} fail: {error}"));
        refused.into_iter().chain(inner.queues.iter().filter_map(outage)).chain(takes).collect()
    }

    /// Something changed that is not on the board itself, such as a gate.
    pub(crate) fn touch(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Wakes whoever shows the board at each change.
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

    /// All of it.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let inner = self.lock();
        let consumers: Vec<_> = inner.consumers.values().map(|pulse| consumer(pulse, &inner.gates)).collect();
        let mut crews = HashMap::<&str, usize>::new();
        consumers.iter().for_each(|it| *crews.entry(&it.queue).or_default() += 1);
        let crew = |name: &str| crews.get(name).copied().unwrap_or_default();
        let mut take_errors = take_errors(&inner);
        let queues = inner.queues.iter();
        let queues = queues.map(|(name, entry)| entry.view(name, crew(name), take_errors.remove(name)));
        let queues = queues.collect();
        Snapshot {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            phase: inner.phase,
            started_at: self.started_at,
            not_ready: not_ready(&inner),
            database: inner.database.clone(),
            config: inner.config.clone(),
            queues,
            consumers,
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

/// Why takes fail, by their queues.
fn take_errors(inner: &Inner) -> BTreeMap<Arc<str>, String> {
    let failing = |pulse: &Arc<Pulse>| Some((pulse.queue.clone(), pulse.doing().take_error?));
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

/// An idle consumer learns of a pause only when it is woken, and a queue that is paused wakes nobody. So the gate decides what is shown of it.
fn consumer(pulse: &Pulse, gates: &BTreeMap<Arc<str>, Gate>) -> ConsumerView {
    let (stage, lasted) = pulse.stage();
    let closed_for = gates.get(&pulse.queue).and_then(Gate::closed_for);
    let (stage, lasted) = match closed_for {
        Some(closed_for) if stage == Stage::Idle => (Stage::Paused, lasted.min(closed_for)),
        _ => (stage, lasted),
    };
    ConsumerView {
        id: pulse.id,
        queue: pulse.queue.to_string(),
        k: pulse.k.get(),
        stage,
        for_seconds: lasted.as_secs_f64(),
        restarts: pulse.restarts,
    }
}
