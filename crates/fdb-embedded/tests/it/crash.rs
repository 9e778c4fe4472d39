//! kill -9 while several clients commit: what was acknowledged is there, in one piece, and versions go on.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::common::{Helper, Rng, network, open};
use foundationdb::{Database, RangeOption, options::StreamingMode};
use futures::TryStreamExt;
use futures::executor::block_on;

const CLIENTS: u32 = 4;
const ROUNDS: u32 = 8;
const PARTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Keys that a commit writes together: part of a commit would show.
fn keys(client: u32, n: u32) -> [Vec<u8>; 5] {
    PARTS.map(|part| format!("{client}/{part}/{n:010}").into_bytes())
}

/// What is in the directory: for each client and part, how many keys, all of which must be there from 0 on.
async fn stored(db: &Database) -> BTreeMap<(u32, String), u32> {
    let tr = db.create_trx().unwrap();
    let range = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((&b""[..], &b"\xff"[..])) };
    let mut counts = BTreeMap::new();
    let rows: Vec<_> = tr.get_ranges_keyvalues(range, true).try_collect().await.unwrap();
    for row in rows {
        let key = String::from_utf8(row.key().to_vec()).unwrap();
        let mut parts = key.split('/');
        let client = parts.next().unwrap().parse().unwrap();
        let part = parts.next().unwrap().to_owned();
        let n: u32 = parts.next().unwrap().parse().unwrap();
        let count = counts.entry((client, part)).or_insert(0);
        assert_eq!(n, *count, "a commit is missing before {key}");
        *count += 1;
    }
    counts
}

#[test]
fn acknowledged_commits_survive_kill_9_whole_and_versions_go_on() {
    let (mut rng, what) = moments();
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        let delay = Duration::from_millis(20) + rng.time_below(Duration::from_millis(80));
        run_and_kill(dir.path(), delay, &mut seen);
        // Kills while the next ones open it, most of them while it is repaired.
        for _ in 0..round % 3 {
            kill_while_it_opens(dir.path(), rng.time_below(Duration::from_millis(10)), &mut seen);
        }
        seen.check(dir.path(), &format!("round {round}, {what}"));
    }
    assert!(seen.acknowledged.values().sum::<u32>() > ROUNDS, "the rounds were too short to commit anything");
}

#[test]
fn a_kill_during_closing_loses_no_acknowledged_commit() {
    let (mut rng, what) = moments();
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Seen::default();
    for round in 0..12 {
        let mut helper = Helper::spawn(OPENS_AND_CLOSES, dir.path());
        // It prints "closing" before it closes.
        for _ in 0..3 + rng.below(5) {
            seen.note_until(&mut helper, "closing");
        }
        std::thread::sleep(rng.time_below(Duration::from_millis(2)));
        helper.kill();
        seen.note_rest(&mut helper);
        seen.check(dir.path(), &format!("round {round}, {what}"));
    }
    assert!(seen.acknowledged.values().sum::<u32>() > 12);
}

/// From where the moments of death come, and how to have them again.
fn moments() -> (Rng, String) {
    let seed = Rng::seed();
    (Rng(seed), format!("KVQUEUE_TEST_SEED={seed}"))
}

/// The acknowledged writes of helpers that were killed.
#[derive(Default)]
struct Seen {
    /// For each client, how many commits.
    acknowledged: BTreeMap<u32, u32>,
    /// The highest version.
    version: i64,
    /// Helpers killed since the last check: each may have had one commit of each client under way.
    kills: u32,
}

impl Seen {
    /// Notes what a helper says up to a line.
    fn note_until(&mut self, helper: &mut Helper, what: &str) {
        for line in helper.lines.by_ref().map_while(Result::ok) {
            self.note(&line);
            if line == what {
                return;
            }
        }
        panic!("the helper ended before it said {what:?}");
    }

    /// Notes the last words of a helper that was killed.
    fn note_rest(&mut self, helper: &mut Helper) {
        helper.lines.by_ref().map_while(Result::ok).for_each(|line| self.note(&line));
        self.kills += 1;
    }

    fn note(&mut self, line: &str) {
        // The last line may be cut short by the kill.
        let fields: Vec<&str> = line.split(' ').collect();
        if let ["ack", client, n, version, "."] = fields[..] {
            self.acknowledged.insert(client.parse().unwrap(), n.parse::<u32>().unwrap() + 1);
            self.version = self.version.max(version.parse().unwrap());
        }
    }

    /// All of it is there, nothing is there in part, and versions have gone on.
    fn check(&mut self, dir: &Path, what: &str) {
        let db = open(dir);
        let version = block_on(db.create_trx().unwrap().get_read_version()).unwrap();
        assert!(version > self.version, "versions went back, {what}");
        self.version = version;
        let stored = block_on(stored(&db));
        for client in 0..CLIENTS {
            let counts = PARTS.map(|part| stored.get(&(client, part.to_owned())).copied().unwrap_or(0));
            assert_eq!(counts, [counts[0]; 5], "part of a commit of client {client}, {what}");
            let acknowledged = self.acknowledged.get(&client).copied().unwrap_or(0);
            let beyond = counts[0].checked_sub(acknowledged);
            let beyond =
                beyond.unwrap_or_else(|| panic!("an acknowledged commit of client {client} is gone, {what}"));
            assert!(beyond <= self.kills, "client {client}: {beyond} commits that nobody made, {what}");
            self.acknowledged.insert(client, counts[0]);
        }
        self.kills = 0;
    }
}

#[test]
fn a_kill_during_the_first_opening_leaves_a_directory_that_opens() {
    network();
    let (mut rng, what) = moments();
    for round in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        kill_while_it_opens(dir.path(), rng.time_below(Duration::from_millis(10)), &mut Seen::default());
        let url = format!("embedded:{}", dir.path().display());
        let opened = Database::from_path(&url).map(drop).map_err(|error| error.code());
        assert_eq!(opened, Ok(()), "round {round}, {what}: {:?}", fdb_embedded::open_error());
    }
}

/// Lets the helper commit for a while and kills it.
fn run_and_kill(dir: &Path, delay: Duration, seen: &mut Seen) {
    let mut helper = Helper::start("commits_until_killed", dir);
    std::thread::scope(|scope| {
        let Helper { child, lines, .. } = &mut helper;
        scope.spawn(move || {
            std::thread::sleep(delay);
            child.kill().unwrap();
        });
        // As they come, or the helper would wait for room in the pipe.
        lines.map_while(Result::ok).for_each(|line| seen.note(&line));
    });
    seen.kills += 1;
}

/// Kills the helper some time after it begins to open the directory.
fn kill_while_it_opens(dir: &Path, delay: Duration, seen: &mut Seen) {
    let mut helper = Helper::spawn(OPENS_AND_CLOSES, dir);
    helper.wait_for("opening");
    std::thread::sleep(delay);
    helper.kill();
    seen.note_rest(&mut helper);
}

const OPENS_AND_CLOSES: &str = "opens_and_closes";

pub fn helper_opens_and_closes(dir: &Path) {
    network();
    println!();
    loop {
        println!("opening");
        let db = open(dir);
        let first = block_on(stored(&db)).get(&(0, "a".to_owned())).copied().unwrap_or(0);
        (first..first + 3).for_each(|n| commit(&db, 0, n));
        println!("closing");
        drop(db);
    }
}

pub fn helper_commits_until_killed(dir: &Path) {
    let db = open(dir);
    let stored = block_on(stored(&db));
    println!("\nready");
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let first = stored.get(&(client, "a".to_owned())).copied().unwrap_or(0);
            let db = &db;
            scope.spawn(move || {
                let mut n = first;
                loop {
                    commit(db, client, n);
                    n += 1;
                }
            });
        }
    });
}

fn commit(db: &Database, client: u32, n: u32) {
    let tr = db.create_trx().unwrap();
    for key in keys(client, n) {
        tr.set(&key, &[7; 300]);
    }
    let version = block_on(tr.commit()).unwrap().committed_version().unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "ack {client} {n} {version} .").unwrap();
    out.flush().unwrap();
}
