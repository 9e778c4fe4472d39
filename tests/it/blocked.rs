//! Handlers that block every thread they can get: signals, timers and the drain do not depend on them.

use std::time::Duration;

use kvqueue::{Config, Context, Daemon, Handler, Item, Outcome, Settings, SettingsError};
use rustix::process::Signal;

use crate::support::{Background, Database, database_of_helper, helper, run};

/// More than the threads of the pool on any machine that runs tests.
const CONSUMERS: usize = 256;

/// Never returns.
struct Block;

#[kvqueue::async_trait]
impl Handler for Block {
    async fn handle(&self, _: &Item, _: &Context) -> Outcome {
        eprintln!("blocked");
        loop {
            std::thread::park();
        }
    }
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_daemon() {
    let Some((database, prefix)) = database_of_helper() else { return };
    let queue = format!("[queues.q]\nhandler = 'block'\nconsumers = [ {{ k = 1, count = {CONSUMERS} }} ]");
    let queues = toml::from_str::<Config>(&queue).unwrap().queues;
    let grace = Duration::from_millis(100);
    let config = Config { database, prefix, queues, grace, ..Config::default() };
    kvqueue::telemetry::init(&config.log).unwrap();
    let error = Daemon::new(config)
        .handler("block", |_: &Settings| Ok::<_, SettingsError>(Block))
        .run()
        .expect_err("the grace is too short");
    eprintln!("ended: {error}");
    std::process::exit(error.exit() as i32);
}

#[test]
fn a_stop_is_over_when_the_grace_is() {
    let db = Database::new();
    let items = vec!["item"; CONSUMERS];
    run(&db, &[&["push", "q"], &items[..]].concat()).ok();
    let mut daemon = Background::start(helper(&db, "blocked::helper_daemon"));
    let threads = std::thread::available_parallelism().unwrap().get();
    (0..threads).for_each(|_| drop(daemon.wait_for("blocked")));
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert!(ran.stderr.contains("ended: consumers still at work after the grace of 100 ms"), "{ran:?}");
    assert_eq!(ran.code, Some(1));
}
