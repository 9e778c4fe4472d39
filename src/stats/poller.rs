//! What is known of the queues, and one round of looks at them.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use foundationdb::{Database, FdbError};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use kvqueue_queue::{Queue, QueueError, Watch};
use tokio::time::timeout;

use super::{
    pace::{Pace, Questions},
    sample,
};
use crate::{
    causes::with_causes,
    config::Config,
    database::{STORAGE_FAILED, storage_failure},
    metrics::QueueMeters,
    status::{DaemonStatus, QueueStats},
};

/// A database that has not said its version for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A look that takes so long is given up; before, the transaction gets too old for it.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// So often the database is asked for its version at least: whether it answers.
const CHECK: Duration = Duration::from_secs(5);

/// While somebody looks, so often it is seen whether this daemon did something. That costs nothing.
const TICK: Duration = Duration::from_millis(250);

/// So many queues are looked at at a time.
const AT_ONCE: usize = 4;

/// A queue as the poller knows it.
struct Place {
    queue: Queue,
    meters: Arc<QueueMeters>,
    pace: Pace,
    last: Option<QueueStats>,
    /// What this daemon had done at the last look.
    deeds: u64,
    watched: bool,
}

/// What is known of all of them.
pub(super) struct StatsPoller {
    db: Arc<Database>,
    status: Arc<DaemonStatus>,
    places: BTreeMap<Arc<str>, Place>,
    /// One for each place that is `watched`; it tells which, and whether the watch was lost.
    watches: FuturesUnordered<BoxFuture<'static, Pushed>>,
    /// How many questions there were, and how many of them are answered.
    asked: u64,
    answered: u64,
    /// How many questions are being answered together, and since when.
    question: Option<(u64, Instant)>,
    questions: Questions,
    /// When the database was last asked.
    checked: Option<Instant>,
    /// Since when the database does not answer.
    silent: Option<Instant>,
}

/// A watch has come to its end.
pub(super) struct Pushed {
    queue: Arc<str>,
    lost: bool,
}

impl StatsPoller {
    pub(super) fn new(db: Arc<Database>, status: Arc<DaemonStatus>) -> Self {
        Self {
            db,
            status,
            places: BTreeMap::new(),
            watches: FuturesUnordered::new(),
            asked: 0,
            answered: 0,
            question: None,
            questions: Questions::default(),
            checked: None,
            silent: None,
        }
    }

    /// These are the queues now. What is known of those that stay, stays.
    pub(super) fn configure(&mut self, config: &Config) {
        let mut before = std::mem::take(&mut self.places);
        for (name, settings) in &config.queues {
            // The daemon has checked it.
            let queue = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), settings.layout());
            let Ok(queue) = queue else { continue };
            let name: Arc<str> = name.as_str().into();
            let place = before.remove(&name).filter(|place| place.queue == queue);
            let place = place.unwrap_or_else(|| Place::new(queue, self.status.metrics.queue(&name)));
            self.places.insert(name, place);
        }
    }

    /// Looks at all queues whose time has come, and, if somebody asks, at those that have waited longest.
    pub(super) async fn round(&mut self, asked: u64) {
        let (now, listened) = (Instant::now(), self.status.viewers.listeners() > 0);
        if !listened {
            self.watches.clear();
            self.places.values_mut().for_each(|place| place.watched = false);
        }
        let queues = self.queues();
        let due = |place: &mut Place| {
            place.notice();
            // Until there is a watch, pushes are seen by looks alone.
            if listened && !place.watched {
                place.pace.stir();
            }
            place.pace.due(listened, queues).is_none_or(|due| due <= now)
        };
        let due: BTreeSet<_> =
            self.places.iter_mut().filter_map(|(name, it)| due(it).then(|| name.clone())).collect();
        let unchecked = self.checked.is_none_or(|at| now.saturating_duration_since(at) >= CHECK);
        if unchecked || !due.is_empty() {
            self.look(&due, listened).await;
        }
        self.asked = asked;
        if asked > self.answered {
            self.answer(listened).await;
        }
    }

    /// Looks at the queues that were not looked at since somebody asked, as far as looks keep their share of the time. Answers if that were
    /// all, or if the others take too long to wait for.
    async fn answer(&mut self, listened: bool) {
        let now = Instant::now();
        let (asked, since) = *self.question.get_or_insert((self.asked, now));
        let due: BTreeSet<_> = self.questions.due(now, self.unseen(since)).into_iter().collect();
        if !due.is_empty() {
            self.look(&due, listened).await;
            self.questions.looked(now, now.elapsed());
        }
        if self.next_for_question().is_none() {
            self.question = None;
            self.answered = asked;
            self.status.viewers.answer(asked);
        }
    }

    /// The queues that were not looked at since.
    fn unseen(&self, since: Instant) -> impl Iterator<Item = (Arc<str>, &Pace)> + Clone {
        let places = self.places.iter().filter(move |(_, place)| !place.pace.was_looked_at_since(since));
        places.map(|(name, place)| (name.clone(), &place.pace))
    }

    /// When the next look is possible that a question waits for.
    fn next_for_question(&self) -> Option<Instant> {
        let (_, since) = self.question?;
        self.questions.next(self.unseen(since).map(|(_, pace)| pace))
    }

    async fn look(&mut self, due: &BTreeSet<Arc<str>>, listened: bool) {
        let began = Instant::now();
        self.checked = Some(began);
        let version = match timeout(PATIENCE, sample::version(&self.db)).await {
            Ok(Ok(version)) => version,
            Ok(Err(error)) => return self.down(due, began, Some(error.to_string())),
            Err(_) => return self.down(due, began, None),
        };
        let took = began.elapsed();
        let (db, places) = (&self.db, &self.places);
        let looks = due.iter().map(|name| async move {
            let (place, began) = (&places[name], Instant::now());
            let look = sample::sample(db, &place.queue, version, listened && !place.watched);
            (name, timeout(LONGEST_LOOK, look).await, began.elapsed())
        });
        let looks: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let (mut broken, mut silent) = (None, !due.is_empty());
        for (name, look, took) in looks {
            silent &= look.is_err();
            let found =
                look.ok().and_then(|look| look.inspect_err(|error| failed(name, error, &mut broken)).ok());
            self.found(name, found, took);
        }
        if broken.is_some() || silent {
            return self.down(&BTreeSet::new(), began, broken);
        }
        self.silent = None;
        self.status.database(Ok(took));
    }

    fn found(&mut self, name: &Arc<str>, found: Option<(QueueStats, Option<Watch>)>, took: Duration) {
        let Some(place) = self.places.get_mut(name) else { return };
        let stats = found.as_ref().map(|(stats, _)| *stats);
        let changed = stats.is_some_and(|stats| place.last.is_none_or(|last| differ(&last, &stats)));
        place.pace.looked(Instant::now(), took, changed);
        let Some((stats, watch)) = found else { return };
        place.last = Some(stats);
        self.status.set_queue_stats(name, stats);
        if let Some(watch) = watch {
            place.watched = true;
            let queue = name.clone();
            self.watches.push(watch.map(move |fired| Pushed { queue, lost: fired.is_err() }).boxed());
        }
    }

    /// The database does not answer, or says this.
    fn down(&mut self, due: &BTreeSet<Arc<str>>, began: Instant, error: Option<String>) {
        let silent = *self.silent.get_or_insert(began);
        let error = error.unwrap_or_else(|| format!("no answer for {} s", silent.elapsed().as_secs()));
        self.status.database(Err(error));
        for name in due {
            self.found(name, None, Duration::ZERO);
        }
    }

    /// A watch fired, or is gone.
    pub(super) fn stir(&mut self, Pushed { queue, lost }: &Pushed) {
        let Some(place) = self.places.get_mut(queue) else { return };
        place.watched = false;
        // One that cannot be had is asked for when the queue is looked at anyway.
        if !lost {
            place.pace.stir();
        }
    }

    /// Waits for a push, if it is watched for.
    pub(super) async fn pushed(&mut self) -> Pushed {
        match self.watches.next().await {
            Some(pushed) => pushed,
            None => pending().await,
        }
    }

    pub(super) fn next(&self) -> Instant {
        let (now, listened) = (Instant::now(), self.status.viewers.listeners() > 0);
        let queues = self.queues();
        let due = self.places.values().filter_map(|place| place.pace.due(listened, queues)).min();
        let tick = listened.then(|| now + TICK);
        let check = self.checked.map_or(now, |at| at + CHECK);
        let asked = match self.question {
            Some(_) => self.next_for_question(),
            // Somebody asked while the question before was being answered.
            None => (self.asked > self.answered).then_some(now),
        };
        due.into_iter().chain(tick).chain(asked).fold(check, Instant::min)
    }

    fn queues(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }
}

impl Place {
    fn new(queue: Queue, meters: Arc<QueueMeters>) -> Self {
        Self { queue, meters, pace: Pace::default(), last: None, deeds: 0, watched: false }
    }

    /// Sees what this daemon has done since the last look.
    fn notice(&mut self) {
        let deeds = self.meters.deeds();
        if deeds != self.deeds {
            self.deeds = deeds;
            self.pace.stir();
        }
    }
}

/// Whether anything differs but the age.
fn differ(one: &QueueStats, other: &QueueStats) -> bool {
    QueueStats { oldest: None, ..*one } != QueueStats { oldest: None, ..*other }
}

/// Says that a look failed. That need not be the database's fault, but where its storage failed, it is down.
fn failed(queue: &str, error: &QueueError, broken: &mut Option<String>) {
    tracing::debug!(
        event = "stats_failed",
        queue,
        error = with_causes(error),
        "cannot read the queue's statistics"
    );
    if error.database().map(FdbError::code) == Some(STORAGE_FAILED) {
        *broken = Some(format!("its storage failed: {}", storage_failure()));
    }
}
