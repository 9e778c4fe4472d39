//! Workers over HTTP. They find out about cancellations when they extend their leases.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::arena::{Arena, Ticks, ask, now};

const WORKERS: usize = 4;
const TICK: Duration = Duration::from_millis(50);
const EXTEND: Duration = Duration::from_millis(250);

pub(super) struct Workers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Acknowledged>>,
}

/// The items that were acknowledged as done.
#[derive(Default)]
pub(super) struct Acknowledged {
    pub(super) done: BTreeSet<String>,
    /// Those of acknowledgements of which a daemon died before it answered: another one does not find the lease, whether or not they are done.
    pub(super) unsure: BTreeSet<String>,
}

impl Workers {
    pub(super) fn start(arena: &Arena) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let threads = (0..WORKERS).map(|_| {
            let worker = Worker { sockets: arena.sockets(), ticks: arena.worked.clone(), stop: stop.clone() };
            thread::spawn(move || worker.run())
        });
        Self { stop: stop.clone(), threads: threads.collect() }
    }

    pub(super) fn end(self) -> Acknowledged {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Acknowledged::default();
        for thread in self.threads {
            let Acknowledged { done, unsure } = thread.join().unwrap();
            all.done.extend(done);
            all.unsure.extend(unsure);
        }
        all
    }
}

struct Worker {
    sockets: Vec<PathBuf>,
    ticks: Arc<Mutex<Ticks>>,
    stop: Arc<AtomicBool>,
}

fn ids(answer: &Value) -> impl Iterator<Item = String> {
    let named = answer["cancelled"].as_array().cloned().unwrap_or_default();
    named.into_iter().filter_map(|id| id.as_str().map(str::to_owned))
}

impl Worker {
    /// Asks the daemons in turn until one answers.
    fn ask(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            for socket in &self.sockets {
                if let Some((status, answer)) =
                    ask(socket, "POST", &format!("/api/v1/queues/pulled/{path}"), body)
                    && status < 500
                {
                    return Some((status, answer));
                }
            }
            thread::sleep(TICK);
        }
        None
    }

    fn run(self) -> Acknowledged {
        let mut done = Acknowledged::default();
        while !self.stop.load(Ordering::Relaxed) {
            match self.ask("lease", &json!({"max": 3, "wait_ms": 200, "lease_ms": 2_000})) {
                Some((200, leased)) if leased["lease"].is_string() => self.work(&leased, &mut done),
                _ => thread::sleep(TICK),
            }
        }
        done
    }

    /// Handles the items of a lease at the same time.
    fn work(&self, leased: &Value, done: &mut Acknowledged) {
        let lease = leased["lease"].as_str().unwrap();
        let mut open: Vec<(String, u64)> = leased["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                (item["id"].as_str().unwrap().to_owned(), item["payload"].as_str().unwrap().parse().unwrap())
            })
            .collect();
        let mut extend_at = Instant::now() + EXTEND;
        while !open.is_empty() {
            for (id, _) in &open {
                self.ticks.lock().unwrap().last.insert(id.clone(), now());
            }
            thread::sleep(TICK);
            let ready: Vec<String> = open
                .iter_mut()
                .filter_map(|(id, left)| {
                    *left = left.saturating_sub(TICK.as_millis() as u64);
                    (*left == 0).then(|| id.clone())
                })
                .collect();
            open.retain(|(_, left)| *left > 0);
            if !ready.is_empty() {
                let outcomes: Vec<_> = ready.iter().map(|id| json!({"id": id, "outcome": "done"})).collect();
                let Some((200, answer)) =
                    self.ask(&format!("leases/{lease}/acknowledge"), &json!({"outcomes": outcomes}))
                else {
                    done.unsure.extend(ready);
                    return;
                };
                let cancelled: BTreeSet<String> = ids(&answer).collect();
                done.done.extend(ready.into_iter().filter(|id| !cancelled.contains(id)));
                open.retain(|(id, _)| !cancelled.contains(id));
            }
            if Instant::now() >= extend_at && !open.is_empty() {
                let Some((200, answer)) = self.ask(&format!("leases/{lease}/extend"), &Value::Null) else {
                    return;
                };
                let cancelled: BTreeSet<String> = ids(&answer).collect();
                open.retain(|(id, _)| !cancelled.contains(id));
                extend_at = Instant::now() + EXTEND;
            }
        }
    }
}
