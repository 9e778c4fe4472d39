//! kill -9 while several clients commit: what was acknowledged is there, in one piece, and versions go on.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::network;
use foundationdb::{Database, RangeOption, options::StreamingMode};
use futures::TryStreamExt;
use futures::executor::block_on;

const CLIENTS: u32 = 4;
const ROUNDS: u32 = 8;
/// Tells the helper which directory to commit to.
const DIRECTORY: &str = "FDB_EMBEDDED_CRASH_DIRECTORY";

fn url(dir: &Path) -> String {
    format!("embedded:{}", dir.display())
}

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
    network();
    let seed = RandomState::new().build_hasher().finish();
    println!("delays from {seed}");
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        let delay = Duration::from_micros(20_000 + (seed >> round) % 80_000);
        run_and_kill(dir.path(), delay, &mut seen);
        // Kills while the next ones open it, most of them while it is repaired.
        for again in 0..round % 3 {
            let delay = Duration::from_micros(2_000 + (seed >> (round + again)) % 10_000);
            kill_while_it_opens(dir.path(), delay, &mut seen);
        }
        seen.check(dir.path(), &format!("round {round}, seed {seed}"));
    }
    assert!(seen.acknowledged.values().sum::<u32>() > ROUNDS, "the rounds were too short to commit anything");
}

#[test]
fn a_kill_while_it_closes_loses_nothing_either() {
    network();
    let seed = RandomState::new().build_hasher().finish();
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Seen::default();
    for round in 0..12 {
        let mut helper = spawn(dir.path(), "crash::helper_opens_and_closes");
        let lines = BufReader::new(helper.stdout.take().unwrap()).lines().map_while(Result::ok);
        // It says "closing" before it closes.
        let closing = 3 + (seed >> round) % 5;
        let mut closed = 0;
        for line in lines {
            seen.note(&line);
            closed += u64::from(line == "closing");
            if closed == closing {
                std::thread::sleep(Duration::from_micros((seed >> round) % 2_000));
                helper.kill().unwrap();
            }
        }
        helper.wait().unwrap();
        seen.kills += 1;
        seen.check(dir.path(), &format!("round {round}, seed {seed}"));
    }
    assert!(seen.acknowledged.values().sum::<u32>() > 12);
}

/// What helpers were told before they were killed.
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
        let db = Database::from_path(&url(dir)).unwrap();
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
    let seed = RandomState::new().build_hasher().finish();
    for round in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let mut helper = spawn(dir.path(), COMMITS);
        std::thread::sleep(Duration::from_micros(1_000 + (seed >> round) % 20_000));
        helper.kill().unwrap();
        helper.wait().unwrap();
        let opened = Database::from_path(&url(dir.path())).map(drop).map_err(|error| error.code());
        assert_eq!(opened, Ok(()), "round {round}, seed {seed}: {:?}", fdb_embedded::open_error());
    }
}

/// Lets the helper commit for a while and kills it.
fn run_and_kill(dir: &Path, delay: Duration, seen: &mut Seen) {
    let mut helper = spawn(dir, COMMITS);
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines().map_while(Result::ok);
    let started = lines.find(|line| line.ends_with("ready")).is_some();
    assert!(started, "the helper ended early");
    let killer = std::thread::spawn(move || {
        std::thread::sleep(delay);
        helper.kill().unwrap();
        helper.wait().unwrap();
    });
    lines.for_each(|line| seen.note(&line));
    killer.join().unwrap();
    seen.kills += 1;
}

/// Kills the helper some time after it started, whatever it is doing by then.
fn kill_while_it_opens(dir: &Path, delay: Duration, seen: &mut Seen) {
    let mut helper = spawn(dir, "crash::helper_opens_and_closes");
    std::thread::sleep(delay);
    helper.kill().unwrap();
    BufReader::new(helper.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .for_each(|line| seen.note(&line));
    helper.wait().unwrap();
    seen.kills += 1;
}

const COMMITS: &str = "crash::helper_commits_until_killed";

fn spawn(dir: &Path, helper: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", helper])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a helper, run by the tests above"]
fn helper_opens_and_closes() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    network();
    println!();
    loop {
        let db = Database::from_path(&url(Path::new(&dir))).unwrap();
        let first = block_on(stored(&db)).get(&(0, "a".to_owned())).copied().unwrap_or(0);
        (first..first + 3).for_each(|n| commit(&db, 0, n));
        println!("closing");
        drop(db);
    }
}

#[test]
#[ignore = "a helper, run by the tests above"]
fn helper_commits_until_killed() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    network();
    let db = Database::from_path(&url(Path::new(&dir))).unwrap();
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
