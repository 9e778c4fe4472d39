//! The stats poller on a database.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::{Queue, Session};
use tokio::{sync::watch, time::timeout};

use super::{forever, schedule::PERIOD};
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

/// Polls these queues while the test runs.
async fn polled(queues: &[&str], test: impl AsyncFnOnce(&Polled)) {
    let database = TestDatabase::new().unwrap();
    let config = Arc::new(config(queues));
    let status = DaemonStatus::new("embedded:test");
    status.configure(None, &config);
    let polled = Polled { db: database.shared(), status, config: watch::Sender::new(config) };
    let poller = forever(polled.db.clone(), polled.status.clone(), polled.config.subscribe());
    tokio::select! {
        never = poller => match never {},
        () = test(&polled) => {}
    }
}

impl Polled {
    fn view(&self, queue: &str) -> Option<QueueStatsJson> {
        self.status.snapshot().queues.into_iter().find(|it| it.queue == queue)?.stats
    }

    /// Waits for figures that are as wanted.
    async fn until(&self, queue: &str, wanted: impl Fn(&QueueStatsJson) -> bool) {
        let mut changes = self.status.changed();
        let seen = async {
            while !self.view(queue).is_some_and(|view| wanted(&view)) {
                changes.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, seen).await.expect("it is seen some time");
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
async fn queues_are_polled_more_often_while_the_status_is_viewed() {
    polled(&["a", "b"], async |polled| {
        polled.until("b", |_| true).await;
        let viewer = polled.status.viewers.add();
        let began = Instant::now();
        for pushed in 1..=5 {
            polled.push("b", 1).await;
            polled.until("b", |view| view.ready == pushed).await;
        }
        // Without a viewer they take five periods.
        assert!(began.elapsed() < 4 * PERIOD, "{:?}", began.elapsed());
        assert!(polled.view("b").unwrap().oldest_age.is_some_and(|age| age > 0.0 && age < 60.0));
        assert_eq!(polled.view("a").unwrap().oldest_age, None);
        drop(viewer);
    })
    .await;
}

#[tokio::test]
async fn a_request_gets_fresh_statistics() {
    polled(&["a"], async |polled| {
        polled.until("a", |_| true).await;
        let began = Instant::now();
        for pushed in 1..=20 {
            polled.push("a", 1).await;
            // On a busy machine, reading can take longer than a request waits.
            while polled.view("a").unwrap().ready != pushed {
                polled.status.viewers.refresh(PATIENCE).await;
            }
        }
        // Without requests they take twenty periods.
        assert!(began.elapsed() < 10 * PERIOD, "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn the_stats_poller_follows_added_and_removed_queues() {
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
