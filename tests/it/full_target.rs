//! Commands that write to a disk that is full: they end, say so, and go on when there is space.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    full_disk::{MIN_FREE, Small, count, fill, inside, lines},
    support::{Database, PATIENCE, Ran, kvqueue},
};

/// What a command printed that ends by itself, in bounded time.
#[track_caller]
fn ended(mut command: Command) -> Ran {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + 3 * PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it does not end: {:?}", Ran::from(child.wait_with_output().unwrap()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap().into()
}

fn migrate(from: &Database, to: &Database, limit: &str) -> Ran {
    let mut command = kvqueue(from, &["migrate", "--from", &from.url, "--to", &to.url, "--wait", "0s"]);
    command.env(MIN_FREE, limit);
    ended(command)
}

fn push(db: &Database, items: usize, bytes: usize) {
    let input = db.file("lines");
    fs::write(&input, lines(items, bytes)).unwrap();
    let mut command = kvqueue(db, &["push", "q", "--lines", input.to_str().unwrap()]);
    command.env(MIN_FREE, "0");
    ended(command).ok();
}

#[test]
fn a_migration_to_a_full_disk_ends_and_goes_on_when_there_is_space() {
    if !inside("full_target", "a_migration_to_a_full_disk_ends_and_goes_on_when_there_is_space") {
        return;
    }
    let (source, target) = (Small::mount(64), Small::mount(8));
    let (from, to) = (source.database(), target.database());
    push(&from, 3_000, 4_000);
    for _ in 0..2 {
        let refused = migrate(&from, &to, "0").failed(1);
        let disk = format!("the disk of {}/db is full", target.path().display());
        for part in [&disk, "free some space", "Nothing is lost", "the same command goes on"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    target.resize(64);
    let refused = migrate(&from, &to, "1GiB").failed(1);
    for part in ["is smaller than its limit of free space", "min-free-space is 1.0 GiB", "Nothing is lost"] {
        assert!(refused.contains(part), "{refused}");
    }
    let ran = migrate(&from, &to, "0");
    assert!(ran.stderr.contains("going on behind"), "{}", ran.stderr);
    ran.ok();
    assert_eq!([count(&from, "0"), count(&to, "0")], [3_000, 3_000]);
}

#[test]
fn a_queue_that_filled_its_disk_is_migrated_to_another() {
    if !inside("full_target", "a_queue_that_filled_its_disk_is_migrated_to_another") {
        return;
    }
    let (source, target) = (Small::mount(16), Small::mount(64));
    let (from, to) = (source.database(), target.database());
    let pushed = fill(&from, 2_000, "0");
    migrate(&from, &to, "0").ok();
    assert_eq!(count(&to, "0"), pushed);
}
