//! Several processes on one embedded directory: the first hosts it, and any of them may end.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::support::{Background, Database, kvqueue, run, run_with_input, wait_for};

/// Items that a daemon of these tests takes at once, with its one consumer.
const TAKE: usize = 10;

/// With short leases: those of a daemon that is killed have to run out.
fn command(db: &Database, options: &[&str]) -> Command {
    let take = TAKE.to_string();
    let arguments = ["run", "--queue", "q", "--consumers", "1", "-k", &take];
    let mut command = kvqueue(db, &[&arguments, options].concat());
    command.env("KVQUEUE_QUEUES__Q__HANDLER", "stdout").env("KVQUEUE_QUEUES__Q__LEASE", "1s");
    command
}

fn daemon(db: &Database) -> Background {
    let mut daemon = Background::start(command(db, &[]));
    daemon.wait_for_event("ready");
    daemon
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|n| format!("{n}\n")).collect()
}

/// Waits until the daemons have taken everything.
fn wait_until_empty(db: &Database) {
    wait_for(|| match run(db, &["len", "q"]).ok() {
        left if left == "0\n" => Ok(()),
        left => Err(format!("empty: {left}")),
    });
}

/// Pushes numbers, and does something when a part of them has been acknowledged and a part not yet been read.
fn push_and_meanwhile(db: &Database, numbers: std::ops::Range<u32>, meanwhile: impl FnOnce()) {
    let half = numbers.start.midpoint(numbers.end);
    let mut push = kvqueue(db, &["push", "q", "--lines", "-", "-v"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = push.stdin.take().unwrap();
    stdin.write_all(lines(numbers.start..half).as_bytes()).unwrap();
    let mut said = BufReader::new(push.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("acknowledged ")), "it ended early");
    meanwhile();
    std::thread::scope(|scope| {
        // Its output must be read, or it stops.
        scope.spawn(|| said.for_each(drop));
        stdin.write_all(lines(half..numbers.end).as_bytes()).unwrap();
        drop(stdin);
    });
    assert!(push.wait().unwrap().success());
}

#[test]
fn commands_work_while_a_daemon_runs() {
    let db = Database::embedded();
    let daemon = daemon(&db);
    let pushed = run_with_input(&db, &["push", "q", "--lines", "-"], lines(0..1_000));
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    wait_until_empty(&db);
    run(&db, &["push", "other", "kept"]).ok();
    assert_eq!(run(&db, &["list"]).ok(), "other\nq\n");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!((ran.code, ran.stdout), (Some(0), lines(0..1_000)));
}

#[test]
fn daemons_and_producers_continue_after_the_host_is_killed() {
    let db = Database::embedded();
    let first = daemon(&db);
    let second = daemon(&db);
    push_and_meanwhile(&db, 0..8_000, || first.signal(Signal::KILL));
    assert_eq!(run_with_input(&db, &["push", "q", "--lines", "-"], lines(8_000..8_100)).code, Some(0));
    wait_until_empty(&db);
    second.signal(Signal::TERM);
    let (first, second) = (first.end(), second.end());
    assert_eq!(second.code, Some(0), "{second:?}");
    let last = Background::start(command(&db, &["--until-empty"])).end();
    assert_eq!(last.code, Some(0), "{last:?}");

    // What a daemon has handled and not settled when it is killed is handled again: at most one take.
    let out = [first.stdout, second.stdout, last.stdout].concat();
    let handled: Vec<u32> = out.lines().filter_map(|line| line.parse().ok()).collect();
    let distinct: BTreeSet<u32> = handled.iter().copied().collect();
    assert!(handled.len() - distinct.len() <= TAKE, "{} handled twice", handled.len() - distinct.len());
    assert!(distinct.into_iter().eq(0..8_100), "items are lost");
}
