//! The survey on a database.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kvqueue_queue::{Queue, Session};
use tokio::{sync::watch, time::timeout};

use super::forever;
use crate::{
    board::{Board, SurveyView},
    config::{Config, QueueConfig},
    testing::TestDatabase,
};

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Surveyed {
    db: Arc<foundationdb::Database>,
    board: Arc<Board>,
    config: watch::Sender<Arc<Config>>,
}

/// Has these queues surveyed while the test runs.
async fn surveyed(queues: &[&str], test: impl AsyncFnOnce(&Surveyed)) {
    let database = TestDatabase::new().unwrap();
    let config = Arc::new(config(queues));
    let board = Board::new("embedded:test");
    board.configure(None, &config);
    let surveyed = Surveyed { db: database.shared(), board, config: watch::Sender::new(config) };
    let survey = forever(surveyed.db.clone(), surveyed.board.clone(), surveyed.config.subscribe());
    tokio::select! {
        never = survey => match never {},
        () = test(&surveyed) => {}
    }
}

impl Surveyed {
    fn view(&self, queue: &str) -> Option<SurveyView> {
        self.board.snapshot().queues.into_iter().find(|it| it.queue == queue)?.survey
    }

    /// Waits for a view that is as wanted, and says how long that took.
    async fn until(&self, queue: &str, wanted: impl Fn(&SurveyView) -> bool) -> Duration {
        let (began, mut changes) = (Instant::now(), self.board.changed());
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
    surveyed(&["a", "b"], async |surveyed| {
        surveyed.until("b", |_| true).await;
        let listener = surveyed.board.audience.listen();
        // Quiet for a while: looks are two seconds apart.
        tokio::time::sleep(Duration::from_secs(4)).await;
        for pushed in 1..=5 {
            surveyed.push("b", 1).await;
            let took = surveyed.until("b", |view| view.ready == pushed).await;
            assert!(took < Duration::from_millis(700), "push {pushed} was seen after {took:?}");
        }
        assert!(surveyed.view("b").unwrap().oldest_age.is_some_and(|age| age > 0.0 && age < 60.0));
        assert_eq!(surveyed.view("a").unwrap().oldest_age, None);
        drop(listener);
    })
    .await;
}

#[tokio::test]
async fn who_asks_gets_fresh_figures() {
    surveyed(&["a"], async |surveyed| {
        surveyed.until("a", |_| true).await;
        // Each answer has what was done before the question, however short a time ago the last one was.
        for pushed in 1..=20 {
            surveyed.push("a", 1).await;
            surveyed.board.audience.fresh(PATIENCE).await;
            assert_eq!(surveyed.view("a").unwrap().ready, pushed);
        }
    })
    .await;
}

#[tokio::test]
async fn queues_come_and_go() {
    surveyed(&["a"], async |surveyed| {
        surveyed.push("later", 2).await;
        surveyed.until("a", |_| true).await;
        let new = Arc::new(config(&["later"]));
        surveyed.board.configure(None, &new);
        surveyed.config.send_replace(new);
        surveyed.until("later", |view| view.ready == 2).await;
        assert!(surveyed.view("a").is_none());
        assert!(surveyed.board.snapshot().database.up);
    })
    .await;
}
