//! kill -9 in the middle of a push: what was acknowledged is there, once and in order.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    thread,
    time::Duration,
};

use crate::support::{Database, Random, kvqueue, run};

const ROUNDS: u32 = 10;

/// When a push is killed, after its first transaction.
const KILLED_WITHIN: Duration = Duration::from_millis(300);

/// The most items of one transaction.
const TRANSACTION: usize = 1_000;

#[test]
fn a_killed_push_keeps_acknowledged_items() {
    let mut random = Random::new();
    for round in 1..=ROUNDS {
        let db = Database::new();
        let acknowledged = killed_push(&db, random.time_below(KILLED_WITHIN));
        let out = run(&db, &["pop", "numbers", "-k", "100000000"]).ok();
        let stored = out.lines().count();
        println!("round {round}: {acknowledged} acknowledged, {stored} stored");
        let numbers = out.lines().map(|line| line.parse::<usize>().unwrap());
        assert!(numbers.eq(1..=stored), "round {round}: a gap, a double, or out of order");
        let possible = acknowledged..=acknowledged + TRANSACTION;
        assert!(possible.contains(&stored), "round {round}: {stored} stored, {possible:?} possible");
    }
}

/// Pushes numbers without end, kills the push some time after its first transaction, and returns how many it had
/// acknowledged.
fn killed_push(db: &Database, after: Duration) -> usize {
    let mut child = kvqueue(db, &["push", "numbers", "--lines", "-", "-v"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Ends when the reader is gone.
    let feeder = thread::spawn(move || (1_u64..).try_for_each(|number| writeln!(stdin, "{number}")));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let totals = lines.by_ref().map_while(Result::ok);
    let mut totals = totals.filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok());
    let first: usize = totals.next().expect("a first transaction");
    // The moment of death is what is random here.
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    let last = totals.last().unwrap_or(first);
    assert!(feeder.join().unwrap().is_err(), "the numbers never end");
    last
}
