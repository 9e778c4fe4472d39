//! The stats poller on a database.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::{Queue, Session};
use tokio::{sync::watch, time::timeout};

use super::forever;
use crate::{
    config::{Config, QueueConfig},
    status::{DaemonStatus, QueueStatsJson},
    testing::TestDatabase,
};

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Polled {
    db: Arc<foundationdb::Database>,
    status: Arc<DaemonStatus>,
    config: watch::Sender<Arc<Config>>,
}

/// Has these queues polled while the test runs.
async fn polled(queues: &[&str], test: impl AsyncFnOnce(&Polled)) {
    let database = TestDatabase::new().unwrap();
    let config = Arc::new(config(queues));
    let status = DaemonStatus::new("embedded:test");
    status.configure(None, &config);
    let polled = Polled { db: database.shared(), status, config: watch::Sender::new(config) };
    let stats = forever(polled.db.clone(), polled.status.clone(), polled.config.subscribe());
    tokio::select! {
        never = stats => match never {},
        () = test(&polled) => {}
    }
}

impl Polled {
    fn view(&self, queue: &str) -> Option<QueueStatsJson> {
        self.status.snapshot().queues.into_iter().find(|it| it.queue == queue)?.stats
    }

    /// Waits for a view that is as wanted, and says how long that took.
    async fn until(&self, queue: &str, wanted: impl Fn(&QueueStatsJson) -> bool) -> Duration {
        let (began, mut changes) = (Instant::now(), self.status.changed());
        let seen = async {
            while !self.view(queue).is_some_and(|view| wanted(&view)) {
                changes.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, seen).await.expect("it is seen some time");
        began.elapsed()
    }

    async fn push(&self, queue: &str, items: usize) {
        let queue = Queue::new(b"", queue.as_bytes()).unwrap();
        Session::new(queue).push(&self.db, &vec!["x"; items]).await.unwrap();
    }
}

fn config(queues: &[&str]) -> Config {
    let queues = queues.iter().map(|name| ((*name).to_owned(), QueueConfig::new("log")));
    Config { queues: queues.collect(), ..Config::default() }
}

#[tokio::test]
async fn a_push_is_seen_at_once_while_somebody_looks() {
    polled(&["a", "b"], async |polled| {
        polled.until("b", |_| true).await;
        let listener = polled.status.viewers.listen();
        // Quiet for a while: looks are two seconds apart.
        tokio::time::sleep(Duration::from_secs(4)).await;
        for pushed in 1..=5 {
            polled.push("b", 1).await;
            let took = polled.until("b", |view| view.ready == pushed).await;
            assert!(took < Duration::from_millis(700), "push {pushed} was seen after {took:?}");
        }
        assert!(polled.view("b").unwrap().oldest_age.is_some_and(|age| age > 0.0 && age < 60.0));
        assert_eq!(polled.view("a").unwrap().oldest_age, None);
        drop(listener);
    })
    .await;
}

#[tokio::test]
async fn who_asks_gets_fresh_figures() {
    polled(&["a"], async |polled| {
        polled.until("a", |_| true).await;
        // Each answer has what was done before the question, however short a time ago the last one was.
        for pushed in 1..=20 {
            polled.push("a", 1).await;
            polled.status.viewers.fresh(PATIENCE).await;
            assert_eq!(polled.view("a").unwrap().ready, pushed);
        }
    })
    .await;
}

#[tokio::test]
async fn queues_come_and_go() {
    polled(&["a"], async |polled| {
        polled.push("later", 2).await;
        polled.until("a", |_| true).await;
        let new = Arc::new(config(&["later"]));
        polled.status.configure(None, &new);
        polled.config.send_replace(new);
        polled.until("later", |view| view.ready == 2).await;
        assert!(polled.view("a").is_none());
        assert!(polled.status.snapshot().database.up);
    })
    .await;
}
