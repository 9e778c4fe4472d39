//! Random operations by several sessions under random faults, against a model that is a list.
//!
//! Operations follow one another, so after each the queue must be exactly what the model is. `stress` has the concurrent
//! case. One seed decides everything; a failure prints the command that repeats it.

use std::collections::VecDeque;

use fdb_embedded::Faults;
use kvqueue_queue::{Item, PushError, Queue, RetryPolicy, Session};

use crate::common::{Rng, TestDb, k, on_database, payloads, run_seed, seeds};

/// Operations per seed.
const STEPS: usize = 40;
/// Sessions that are open at a time.
const SESSIONS: usize = 4;

#[test]
fn random_operations_match_a_list() {
    on_database(async |t| {
        for seed in seeds(200) {
            run_seed(seed, "random_operations", &[], World::run(t, seed)).await;
        }
    });
}

/// The queue, who uses it, and what it should hold.
struct World<'t> {
    t: &'t TestDb,
    rng: Rng,
    queue: Queue,
    sessions: Vec<Session>,
    /// What the queue should hold, first to last.
    model: VecDeque<String>,
    /// Number of the next payload; no two are alike, so a doubled or lost one shows.
    next: u64,
    pushed: u64,
    popped: u64,
}

impl<'t> World<'t> {
    async fn run(t: &'t TestDb, seed: u64) {
        let mut rng = Rng::new(seed);
        // From a mild wind to a storm. On a cluster there are no faults but its own.
        let p = [0.0, 0.1, 0.3][rng.below(3)];
        let plan = Faults::seeded(seed).unknown_committed(p).unknown_not_committed(p).conflict(p / 2.0);
        if p > 0.0 && !t.install(plan) {
            return;
        }
        let queue = t.queue(format!("model {seed}"));
        let mut world = World {
            t,
            sessions: (0..SESSIONS).map(|_| t.session(&queue)).collect(),
            queue,
            rng,
            model: VecDeque::new(),
            next: 0,
            pushed: 0,
            popped: 0,
        };
        for _ in 0..STEPS {
            world.step().await;
            world.check().await;
        }
        t.end_faults();
        world.drain().await;
    }

    async fn step(&mut self) {
        match self.rng.below(20) {
            0..=7 => self.push().await,
            8..=14 => self.take().await,
            15 => self.peek().await,
            16 => self.list().await,
            17 => self.replace_session().await,
            18 => self.change_patience(),
            _ => self.delete().await,
        }
    }

    /// One of the sessions, to be given back by `put_back`.
    fn any_session(&mut self) -> Session {
        let at = self.rng.below(self.sessions.len());
        self.sessions.swap_remove(at)
    }

    async fn push(&mut self) {
        let batch: Vec<String> =
            (0..self.rng.below(6)).map(|i| format!("item {}", self.next + i as u64)).collect();
        self.next += batch.len() as u64;
        let mut session = self.any_session();
        match session.push(&self.t.db, &batch).await {
            Ok(pushed) => {
                assert_eq!(pushed.items, batch.len());
                self.accept(batch);
            }
            Err(PushError::Retry(error)) => {
                // Given up. Whether it happened is to be seen, but it must have happened whole or not at all.
                let len = usize::try_from(self.t.len(&self.queue).await).unwrap();
                if len != self.model.len() {
                    assert!(error.is_maybe_committed(), "a push known to have failed happened");
                    self.accept(batch);
                }
            }
            Err(other) => panic!("{other}"),
        }
        self.sessions.push(session);
    }

    fn accept(&mut self, batch: Vec<String>) {
        self.pushed += batch.len() as u64;
        self.model.extend(batch);
    }

    async fn take(&mut self) {
        let n = self.rng.below(6) + 1;
        let mut session = self.any_session();
        let items = loop {
            match session.take(&self.t.db, k(n)).await {
                Ok(taken) => {
                    assert_eq!(taken.got.is_empty(), taken.watch.is_some());
                    break payloads(&taken.got);
                }
                // Given up; what it may have removed comes with the next.
                Err(_) => continue,
            }
        };
        let expected: Vec<String> = self.model.drain(..n.min(self.model.len())).collect();
        self.popped += expected.len() as u64;
        assert_eq!(items, expected);
        self.sessions.push(session);
    }

    async fn peek(&mut self) {
        let n = self.rng.below(6) + 1;
        let (queue, t) = (&self.queue, self.t);
        let peeked: Vec<Item> = t.run(async |tr| queue.peek_k(tr, k(n)).await).await;
        assert!(payloads(&peeked).iter().eq(self.model.iter().take(n)));
    }

    async fn list(&mut self) {
        assert!(self.t.list(&self.queue).await.iter().eq(&self.model));
    }

    async fn replace_session(&mut self) {
        let session = self.any_session();
        // Closed or lost, as it comes; with its retries bounded, closing may fail.
        if self.rng.below(2) == 0 {
            let _ = session.close(&self.t.db).await;
        }
        self.sessions.push(self.t.session(&self.queue));
    }

    fn change_patience(&mut self) {
        let session = self.any_session();
        let max_attempts = [None, Some(1), Some(3)][self.rng.below(3)];
        self.sessions.push(session.with_policy(RetryPolicy { max_attempts, timeout: None }));
    }

    async fn delete(&mut self) {
        let (queue, t) = (&self.queue, self.t);
        t.run(async |tr| {
            queue.delete(tr);
            Ok(())
        })
        .await;
        self.model.clear();
        (self.pushed, self.popped) = (0, 0);
    }

    async fn check(&self) {
        assert_eq!(self.t.len(&self.queue).await, self.model.len() as i64);
        assert_eq!(self.pushed - self.popped, self.model.len() as u64);
    }

    /// At the end, without faults: what is left is what the model has left, and the counters agree.
    async fn drain(mut self) {
        assert!(self.t.list(&self.queue).await.iter().eq(&self.model));
        let mut session = self.any_session().with_policy(RetryPolicy::default());
        let mut left = Vec::new();
        loop {
            let taken = session.take(&self.t.db, k(7)).await.unwrap();
            left.extend(payloads(&taken.got));
            if taken.watch.is_some() {
                break;
            }
        }
        assert!(left.iter().eq(&self.model));
        assert_eq!(self.t.len(&self.queue).await, 0);
        assert!(self.t.list(&self.queue).await.is_empty());
    }
}
