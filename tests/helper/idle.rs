//! Programs for the tests of `tests/it/idle.rs`.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use kvqueue::{Config, Context, Daemon, Event, Handler, Item, Outcome, Settings, SettingsError};

use kvqueue_queue::{Queue, Session};

use crate::support::{PATIENCE, argument, daemon_with, database, run_to_the_end};

/// Pushes whose way to the handler is timed.
const PUSHES: usize = 200;

/// Handles an item when as many are being handled as there are consumers.
struct Together(tokio::sync::Barrier);

#[kvqueue::async_trait]
impl Handler for Together {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        self.0.wait().await;
        eprintln!("handled together");
        Outcome::Done
    }
}

/// With this number of consumers.
pub(crate) fn together() {
    let consumers: usize = argument(0).unwrap().parse().unwrap();
    let queue = format!(
        "log.level = 'debug'\n[queues.q]\nhandler = 'together'\npoll-interval = '1h'\n\
         consumers = [ {{ k = 1, count = {consumers} }} ]"
    );
    let daemon = daemon_with(&queue);
    let together = move |_: &Settings| Ok::<_, SettingsError>(Together(tokio::sync::Barrier::new(consumers)));
    run_to_the_end(daemon.handler("together", together));
}

/// Tells when it was handed an item.
struct Clock(Mutex<mpsc::Sender<Instant>>);

#[kvqueue::async_trait]
impl Handler for Clock {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        self.0.lock().unwrap().send(Instant::now()).unwrap();
        Outcome::Done
    }
}

/// Runs a daemon and pushes to it from the same process, one item at a time, each when the consumer is idle.
pub(crate) fn wake() {
    let (database, prefix) = database();
    let (handed, handed_at) = mpsc::channel();
    let (idle, idles) = mpsc::channel();
    let handed = Arc::new(Mutex::new(handed));
    let queues = toml::from_str::<Config>("[queues.q]\nhandler = 'clock'").unwrap().queues;
    let mut config = Config::new(&database);
    (config.prefix, config.queues) = (prefix.clone(), queues);
    let daemon = Daemon::new(config)
        .handler("clock", move |_| Ok::<_, SettingsError>(Clock(Mutex::new(handed.lock().unwrap().clone()))))
        .observe(move |_, event| {
            if event == Event::Idle {
                // Nobody listens any more at the end.
                let _ = idle.send(());
            }
        });
    thread::spawn(move || daemon.run().unwrap());
    idles.recv_timeout(PATIENCE).unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let db = foundationdb::Database::from_path(&database).unwrap();
    let queue = Queue::new(prefix.as_bytes(), b"q").unwrap();
    let mut session = Session::new(queue);
    let mut pushes = Vec::new();
    let mut wakes = Vec::new();
    for _ in 0..PUSHES {
        let start = Instant::now();
        runtime.block_on(session.push(&db, &[b"item"])).unwrap();
        let stored = Instant::now();
        let handed = handed_at.recv_timeout(PATIENCE).unwrap();
        pushes.push(stored - start);
        // The consumer may be faster than the answer to the push.
        wakes.push(handed.saturating_duration_since(stored));
        idles.recv_timeout(PATIENCE).unwrap();
    }
    println!("\nwake {}", figures(&mut wakes));
    println!("push {}", figures(&mut pushes));
    std::process::exit(0);
}

fn figures(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let micros = |share: usize| times[(times.len() - 1) * share / 100].as_micros();
    format!("p50_us={} p99_us={} max_us={}", micros(50), micros(99), micros(100))
}
