//! Many reloads while items pour.

use std::{collections::BTreeMap, fmt::Write, fs, thread};

use rustix::process::Signal;

use super::RELOADED;
use crate::support::{Background, Database, Random, helper, run, run_with_input};

/// Items of each of the two queues that are always there.
const ITEMS: usize = 4_000;

/// At least; as many as there is time for while they are pushed.
const RELOADS: usize = 40;

/// A configuration at random. The third queue comes and goes.
fn config(random: &mut Random, has_third: bool) -> String {
    let mut text = format!("shutdown-timeout = '{}s'\nlog.format = 'json'\n", 30 + random.below(9));
    let names = [("a", "at-least-once"), ("b", "at-most-once"), ("c", "at-least-once")];
    for (name, delivery) in names.into_iter().take(if has_third { 3 } else { 2 }) {
        let (k, count) = (1 + random.below(9), 1 + random.below(4));
        let (mark, lease) = (random.below(3), 30 + random.below(2));
        let (take, attempts) = (random.choose(&["spread", "front", "staged"]), 5 + random.below(2));
        write!(
            text,
            "[queues.{name}]\nhandler = 'print'\nhandler-config = {{ mark = {mark} }}\ndelivery = '{delivery}'\nfetch-strategy = '{take}'\n\
             lease = '{lease}s'\nconsumers = [ {{ k = {k}, count = {count} }}, {{ k = 3 }} ]\nretry = {{ max-attempts = {attempts} }}\n"
        )
        .unwrap();
    }
    text
}

fn push(db: &Database, queue: &str, items: usize) {
    let lines: String = (0..items).map(|item| format!("{queue}{item}\n")).collect();
    run_with_input(db, &["push", queue, "--lines", "-"], lines).ok();
}

#[test]
fn settings_change_under_load_and_no_item_is_lost_or_repeated() {
    let (db, mut random) = (Database::new(), Random::new());
    let path = db.file("kvqueue.toml");
    fs::write(&path, config(&mut random, true)).unwrap();
    let mut command = helper(&db, "reload::load::print");
    command.arg(&path);
    let mut daemon = Background::start(command);
    daemon.wait_for_event("ready");
    let mut reload = |has_third| {
        fs::write(&path, config(&mut random, has_third)).unwrap();
        daemon.signal(Signal::HUP);
        daemon.wait_for_event(RELOADED);
    };
    thread::scope(|scope| {
        let pushes = [("a", ITEMS), ("b", ITEMS), ("c", ITEMS / 10)].map(|(queue, items)| {
            let db = &db;
            scope.spawn(move || push(db, queue, items))
        });
        let mut reloads = 0;
        while reloads < RELOADS || !pushes.iter().all(|push| push.is_finished()) {
            reload(reloads % 3 != 0);
            reloads += 1;
        }
        println!("{reloads} reloads");
    });
    reload(true);
    wait_until_empty(&db);
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("\"ERROR\""), "{}", ran.stderr);
    let mut handled: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in ran.stdout.lines().filter_map(|line| line.split("item ").nth(1)) {
        let mut words = line.split(' ');
        handled.entry(words.next().unwrap()).or_default().push(words.next().unwrap());
    }
    let wrong: Vec<_> = handled.iter().filter(|(_, attempts)| **attempts != ["1"]).take(10).collect();
    assert!(wrong.is_empty(), "not handled once, at the first attempt: {wrong:?}");
    assert_eq!(handled.len(), ITEMS * 2 + ITEMS / 10);
}

/// Leased and delayed items are waited for, too, as long as the queue's counts change.
fn wait_until_empty(db: &Database) {
    for queue in ["a", "b", "c"] {
        let (mut last, mut deadline) = (String::new(), std::time::Instant::now());
        loop {
            let counts = run(db, &["len", queue, "--json"]).ok();
            let rest = [r#""ready":0"#, r#""running":0"#, r#""waiting":0"#, r#""dead":0"#];
            if rest.iter().all(|part| counts.contains(part)) {
                break;
            }
            if counts != last {
                deadline = std::time::Instant::now() + crate::support::PATIENCE;
            }
            assert!(std::time::Instant::now() < deadline, "{queue} is never empty: {counts}");
            last = counts;
            thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}
