//! Commits that fail, or whose outcome is unknown, while a daemon works: no item is lost, none handled twice.

use std::sync::Once;

use fdb_embedded::Faults;
use kvqueue::Event;

use crate::support::{
    Background, Database, Random, daemon_of_helper, database_of_helper, helper, run_to_the_end,
    run_with_input,
};

const ITEMS: u32 = 1_000;

const SEED: &str = "KVQUEUE_TEST_FAULTS";

/// Works the queue off in a storm: a third of its commits goes wrong.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_daemon() {
    let config =
        "[queues.q]\nhandler = 'stdout'\nconsumers = [ { k = 1, count = 2 }, { k = 10, count = 2 } ]";
    let Some(daemon) = daemon_of_helper(config) else { return };
    let (url, _) = database_of_helper().unwrap();
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let storm = Once::new();
    let daemon = daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            storm.call_once(|| {
                let faults = Faults::seeded(seed).conflict(0.05).too_old(0.05);
                faults.unknown_committed(0.1).unknown_not_committed(0.1).install(&url).unwrap();
            });
        }
    });
    run_to_the_end(daemon);
}

#[test]
fn each_item_is_handled_once() {
    let mut random = Random::new();
    // The faults are the embedded engine's.
    let db = Database::embedded();
    let numbers: String = (1..=ITEMS).map(|number| format!("{number}\n")).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], numbers).ok();
    let mut command = helper(&db, "faults::helper_daemon");
    command.env(SEED, random.below(u64::MAX).to_string());
    let out = Background::start(command).end().ok();
    // The test harness prints as well, perhaps on the same line.
    let words = out.lines().filter_map(|line| line.rsplit(' ').next());
    let mut seen: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(1..=ITEMS), "{} lines, not each number once", seen.len());
}
