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

/// The output of a command that ends by itself, in bounded time.
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

#[test]
fn a_limit_of_free_space_that_is_damaged_or_beyond_the_disk_is_shown() {
    let db = Database::embedded();
    let directory = std::path::PathBuf::from(db.url.strip_prefix("embedded:").unwrap());
    let config = db.file("beyond.toml");
    fs::write(&config, "min-free-space = \"4096TiB\"\n[http]\nlisten = \"off\"\n").unwrap();
    let run = |args: &[&str]| {
        let mut command = kvqueue(&db, args);
        command.env_remove(MIN_FREE);
        ended(command)
    };
    run(&["push", "q", "x"]).ok();
    let status = run(&["status"]);
    assert!(status.stdout.contains("(the default)"), "{status:?}");
    fs::write(directory.join("min-free-space"), "1B\n").unwrap();
    let status = run(&["status"]);
    assert!(status.stdout.contains("(from the file min-free-space"), "{status:?}");
    fs::write(directory.join("min-free-space"), "12 parsecs\n").unwrap();
    let status = run(&["status"]);
    assert!(status.stdout.contains("min-free-space in the database's directory is damaged)"), "{status:?}");
    let doctor = run(&["doctor"]);
    assert!(doctor.stdout.contains("disk      PROBLEM  cannot read a size from "), "{doctor:?}");
    assert_eq!(doctor.code, Some(1));
    let config = config.to_str().unwrap();
    let check = run(&["config", "check", "--config", config]);
    assert!(
        check.stderr.contains("min-free-space is 4.0 PiB")
            && check.stderr.contains("all pushes would be refused"),
        "{check:?}"
    );
    check.ok();
    let doctor = run(&["doctor", "--config", config]);
    assert!(doctor.stdout.contains("disk      PROBLEM  min-free-space is 4.0 PiB"), "{doctor:?}");
}

#[test]
fn a_backup_that_fills_its_disk_gives_the_space_back_and_names_the_file_once() {
    if !inside("full_target", "a_backup_that_fills_its_disk_gives_the_space_back_and_names_the_file_once") {
        return;
    }
    let (source, target) = (Small::mount(64), Small::mount(8));
    let from = source.database();
    push(&from, 3_000, 4_000);
    let to = target.path().join("copy");
    let command = || {
        let mut command = kvqueue(&from, &["backup", "--to", to.to_str().unwrap()]);
        command.env(MIN_FREE, "0");
        command
    };
    let refused = ended(command()).failed(1);
    assert!(refused.contains("cannot write the copy, which is removed: "), "{refused}");
    assert_eq!(refused.matches("copy.partial").count(), 1, "{refused}");
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    target.resize(64);
    ended(command()).ok();
}
