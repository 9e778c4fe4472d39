//! Handlers that block every thread they can get: signals, timers and the drain do not depend on them.

use kvqueue::{Context, Handler, Item, Outcome, Settings, SettingsError};
use rustix::process::Signal;

use crate::support::{Background, Database, daemon_of_helper, helper, run, run_to_the_end};

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
    let queue = format!("[queues.q]\nhandler = 'block'\nconsumers = [ {{ k = 1, count = {CONSUMERS} }} ]");
    let Some(daemon) = daemon_of_helper(&format!("grace = '100ms'\n{queue}")) else { return };
    run_to_the_end(daemon.handler("block", |_: &Settings| Ok::<_, SettingsError>(Block)));
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
