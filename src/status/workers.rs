//! Workers of other programs, as this daemon sees them: who has which lease, and who waits for items.
//!
//! Requests over HTTP write it. It knows the leases that this daemon granted, extended or acknowledged; other daemons of the
//! database know others.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use kvqueue_queue::LeaseId;
use serde::{Deserialize, Serialize};

use crate::{audit::Who, base::text::visible};

/// The most leases that it knows. While there are more, others are not shown.
const MOST_LEASES: usize = 10_000;

/// The digits of a session that are shown of a lease. The last ones are random; the first ones are a time.
const SESSION_DIGITS: usize = 8;

/// Who sends a worker's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(crate) who: Who,
    /// The address of its first request about the lease.
    pub(crate) address: Option<String>,
    pub(crate) user_agent: Option<String>,
}

/// For the history of items.
impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, address, user_agent } = self;
        write!(f, "{who}")?;
        if let Some(address) = address {
            write!(f, " at {address}")?;
        }
        match user_agent {
            Some(agent) => write!(f, " ({})", visible(agent)),
            None => Ok(()),
        }
    }
}

/// The workers of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    leases: HashMap<LeaseId, Held>,
    waiting: HashMap<u64, Waiting>,
    /// The number of the next one that waits.
    next: u64,
}

#[derive(Debug)]
struct Held {
    queue: Arc<str>,
    worker: Worker,
    /// When this daemon first saw it.
    since: Instant,
    /// When it was last extended or acknowledged here.
    heartbeat: Instant,
    length: Duration,
    open: usize,
}

#[derive(Debug)]
struct Waiting {
    queue: Arc<str>,
    worker: Worker,
    since: Instant,
}

/// A worker that waits for items, until this is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    workers: Arc<Workers>,
    id: u64,
}

/// How many workers of a queue wait, and how many leases they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WorkerCounts {
    pub(crate) waiting: usize,
    pub(crate) working: usize,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Working,
    Waiting,
}

/// A lease of a worker, or a worker that waits. Times are in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkerJson {
    queue: String,
    state: State,
    #[serde(flatten)]
    worker: Worker,
    /// How long it has had the lease, as far as this daemon knows, or has waited.
    for_seconds: f64,
    /// The end of the lease's session, and the lease's number.
    lease: Option<String>,
    /// Items that are not acknowledged.
    items: Option<usize>,
    /// How long ago the lease was granted, extended or acknowledged.
    heartbeat_seconds: Option<f64>,
    /// When the lease expires without another heartbeat.
    expires_in_seconds: Option<f64>,
}

impl Workers {
    /// Notes a lease that was granted, extended or acknowledged now, with the items that are left of it.
    pub(crate) fn seen(
        &self,
        id: LeaseId,
        open: usize,
        length: Duration,
        by: impl FnOnce() -> (Arc<str>, Worker),
    ) {
        let now = Instant::now();
        let mut inner = self.lock();
        if open == 0 {
            inner.leases.remove(&id);
            return;
        }
        if let Some(held) = inner.leases.get_mut(&id) {
            (held.heartbeat, held.length, held.open) = (now, length, open);
            return;
        }
        if inner.leases.len() >= MOST_LEASES {
            inner.drop_expired(now);
        }
        if inner.leases.len() < MOST_LEASES {
            let (queue, worker) = by();
            inner.leases.insert(id, Held { queue, worker, since: now, heartbeat: now, length, open });
        }
    }

    /// Forgets a lease that is over, if it is of this queue.
    pub(crate) fn forget(&self, queue: &str, id: LeaseId) {
        let mut inner = self.lock();
        if inner.leases.get(&id).is_some_and(|held| *held.queue == *queue) {
            inner.leases.remove(&id);
        }
    }

    /// The worker that has a lease, as far as this daemon knows.
    pub(crate) fn of(&self, id: LeaseId) -> Option<Worker> {
        let now = Instant::now();
        let inner = self.lock();
        inner.leases.get(&id).filter(|held| held.age(now) < held.length).map(|held| held.worker.clone())
    }

    /// Notes a worker that waits, until the result is dropped. Their number is bounded by that of the connections.
    pub(crate) fn wait(self: &Arc<Self>, queue: Arc<str>, worker: Worker) -> Wait {
        let mut inner = self.lock();
        let id = inner.next;
        inner.next += 1;
        inner.waiting.insert(id, Waiting { queue, worker, since: Instant::now() });
        Wait { workers: self.clone(), id }
    }

    /// How many there are, by queue.
    pub(crate) fn counts(&self) -> HashMap<Arc<str>, WorkerCounts> {
        let mut inner = self.lock();
        inner.drop_expired(Instant::now());
        let mut counts = HashMap::<Arc<str>, WorkerCounts>::new();
        inner.leases.values().for_each(|held| counts.entry(held.queue.clone()).or_default().working += 1);
        inner.waiting.values().for_each(|it| counts.entry(it.queue.clone()).or_default().waiting += 1);
        counts
    }

    /// Up to `most` workers by queue, those with leases first, and the number of workers that are left out.
    pub(crate) fn list(&self, queue: Option<&str>, most: usize) -> (Vec<WorkerJson>, usize) {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.drop_expired(now);
        let is_wanted = |name: &str| queue.is_none_or(|queue| queue == name);
        let working = inner.leases.iter().filter(|(_, held)| is_wanted(&held.queue));
        let waiting = inner.waiting.values().filter(|it| is_wanted(&it.queue));
        let working = working
            .map(|(id, held)| (&held.queue, State::Working, held.since, Some((id, held)), &held.worker));
        let waiting = waiting.map(|it| (&it.queue, State::Waiting, it.since, None, &it.worker));
        let mut all: Vec<_> = working.chain(waiting).collect();
        all.sort_by_key(|(queue, state, since, ..)| (*queue, *state, *since));
        let omitted = all.len().saturating_sub(most);
        let shown = all.into_iter().take(most).map(|(queue, state, since, lease, worker)| WorkerJson {
            queue: queue.to_string(),
            state,
            worker: worker.clone(),
            for_seconds: now.saturating_duration_since(since).as_secs_f64(),
            lease: lease.map(|(id, _)| shortened(*id)),
            items: lease.map(|(_, held)| held.open),
            heartbeat_seconds: lease.map(|(_, held)| held.age(now).as_secs_f64()),
            expires_in_seconds: lease
                .map(|(_, held)| held.length.saturating_sub(held.age(now)).as_secs_f64()),
        });
        (shown.collect(), omitted)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }
}

impl Inner {
    fn drop_expired(&mut self, now: Instant) {
        self.leases.retain(|_, held| held.age(now) < held.length);
    }
}

impl Held {
    /// How long ago the last heartbeat was.
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heartbeat)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.workers.lock().waiting.remove(&self.id);
    }
}

/// As much of a lease's id as tells it from other leases. It is not enough to acknowledge its items.
pub(crate) fn shortened(id: LeaseId) -> String {
    let session = format!("{:?}", id.session);
    let at = session.len().saturating_sub(SESSION_DIGITS);
    format!("…{}-{}", session.get(at..).unwrap_or_default(), id.number)
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::SessionId;
    use serde_json::json;

    use super::*;

    fn id(number: u64) -> LeaseId {
        LeaseId { session: SessionId([0xab; 16]), number }
    }

    fn worker() -> (Arc<str>, Worker) {
        let address = Some("127.0.0.1:5".to_owned());
        ("q".into(), Worker { who: Who::Token { name: "ci".to_owned() }, address, user_agent: None })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_lease_is_shown_until_it_is_over() {
        let workers = Arc::new(Workers::default());
        workers.seen(id(1), 3, LONG, worker);
        workers.seen(id(2), 1, LONG, worker);
        workers.seen(id(1), 2, LONG, || panic!("it is known"));
        let (listed, omitted) = workers.list(None, 1);
        assert_eq!((listed.len(), omitted), (1, 1));
        let first = json!(listed[0]);
        assert_eq!((&first["lease"], &first["items"]), (&json!("…abababab-1"), &json!(2)));
        assert_eq!((&first["who"]["name"], &first["address"]), (&json!("ci"), &json!("127.0.0.1:5")));
        assert!(first["expires_in_seconds"].as_f64() > Some(50.0), "{first}");
        assert_eq!((workers.of(id(1)), workers.of(id(3))), (Some(worker().1), None));
        workers.seen(id(1), 0, LONG, worker);
        workers.forget("other", id(2));
        assert_eq!(workers.counts()["q"].working, 1);
        workers.forget("q", id(2));
        assert_eq!(workers.counts(), HashMap::new());
        // One that has expired goes by itself.
        workers.seen(id(3), 1, Duration::ZERO, worker);
        assert!(workers.list(Some("q"), 9).0.is_empty() && workers.counts().is_empty());
    }

    #[test]
    fn a_worker_waits_until_its_request_ends() {
        let workers = Arc::new(Workers::default());
        workers.seen(id(1), 1, LONG, worker);
        let [one, two] = [(); 2].map(|()| workers.wait(worker().0, worker().1));
        let counts = || workers.counts().get("q").copied().unwrap_or_default();
        assert_eq!(counts(), WorkerCounts { waiting: 2, working: 1 });
        assert_eq!(json!(workers.list(None, 9).0[1])["state"], "waiting");
        assert!(workers.list(Some("other"), 9).0.is_empty());
        drop((one, two));
        assert_eq!(counts(), WorkerCounts { waiting: 0, working: 1 });
    }

    #[test]
    fn the_number_of_leases_is_bounded() {
        let workers = Workers::default();
        (0..MOST_LEASES as u64).for_each(|number| workers.seen(id(number), 1, LONG, worker));
        workers.seen(id(u64::MAX), 1, LONG, worker);
        assert_eq!(workers.counts()["q"].working, MOST_LEASES);
        workers.forget("q", id(0));
        workers.seen(id(u64::MAX), 1, LONG, worker);
        assert!(workers.lock().leases.contains_key(&id(u64::MAX)));
    }
}
