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

/// Two keys that a commit writes together: half a commit would show.
fn keys(client: u32, n: u32) -> [Vec<u8>; 2] {
    ["a", "b"].map(|half| format!("{client}/{half}/{n:010}").into_bytes())
}

/// What is in the directory: for each client and half, how many keys, all of which must be there from 0 on.
async fn stored(db: &Database) -> BTreeMap<(u32, String), u32> {
    let tr = db.create_trx().unwrap();
    let range = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((&b""[..], &b"\xff"[..])) };
    let mut counts = BTreeMap::new();
    let rows: Vec<_> = tr.get_ranges_keyvalues(range, true).try_collect().await.unwrap();
    for row in rows {
        let key = String::from_utf8(row.key().to_vec()).unwrap();
        let mut parts = key.split('/');
        let client = parts.next().unwrap().parse().unwrap();
        let half = parts.next().unwrap().to_owned();
        let n: u32 = parts.next().unwrap().parse().unwrap();
        let count = counts.entry((client, half)).or_insert(0);
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
    let mut acknowledged: BTreeMap<u32, u32> = BTreeMap::new();
    let mut last_version = 0;
    for round in 0..ROUNDS {
        let delay = Duration::from_micros(20_000 + (seed >> round) % 80_000);
        let (acks, version) = run_and_kill(dir.path(), delay);
        acknowledged.extend(acks);
        let db = Database::from_path(&url(dir.path())).unwrap();
        let read_version = block_on(db.create_trx().unwrap().get_read_version()).unwrap();
        assert!(
            read_version > version.max(last_version),
            "versions went back after round {round}, seed {seed}"
        );
        last_version = read_version;
        let stored = block_on(stored(&db));
        for client in 0..CLIENTS {
            let of = |half: &str| stored.get(&(client, half.to_owned())).copied().unwrap_or(0);
            let acked = acknowledged.get(&client).copied().unwrap_or(0);
            assert_eq!(of("a"), of("b"), "half a commit of client {client}, seed {seed}");
            let beyond = of("a").checked_sub(acked).expect("an acknowledged commit is gone");
            assert!(beyond <= 1, "client {client}: {beyond} commits that nobody made, seed {seed}");
            acknowledged.insert(client, of("a"));
        }
    }
    assert!(acknowledged.values().sum::<u32>() > ROUNDS, "the rounds were too short to commit anything");
}

#[test]
fn a_kill_during_the_first_opening_leaves_a_directory_that_opens() {
    network();
    let seed = RandomState::new().build_hasher().finish();
    for round in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let mut helper = spawn_helper(dir.path());
        std::thread::sleep(Duration::from_micros(1_000 + (seed >> round) % 20_000));
        helper.kill().unwrap();
        helper.wait().unwrap();
        let opened = Database::from_path(&url(dir.path())).map(drop).map_err(|error| error.code());
        assert_eq!(opened, Ok(()), "round {round}, seed {seed}: {:?}", fdb_embedded::open_error());
    }
}

/// Lets the helper commit for a while and kills it: the commits acknowledged by each client so far, and the highest
/// version that it was given.
fn run_and_kill(dir: &Path, delay: Duration) -> (BTreeMap<u32, u32>, i64) {
    let mut helper = spawn_helper(dir);
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines().map_while(Result::ok);
    let started = lines.find(|line| line.ends_with("ready")).is_some();
    assert!(started, "the helper ended early");
    let killer = std::thread::spawn(move || {
        std::thread::sleep(delay);
        helper.kill().unwrap();
        helper.wait().unwrap();
    });
    let (mut acks, mut highest) = (BTreeMap::new(), 0);
    for line in lines {
        // The last line may be cut short by the kill.
        let fields: Vec<&str> = line.split(' ').collect();
        if let ["ack", client, n, version, "."] = fields[..] {
            acks.insert(client.parse().unwrap(), n.parse::<u32>().unwrap() + 1);
            highest = highest.max(version.parse().unwrap());
        }
    }
    killer.join().unwrap();
    (acks, highest)
}

fn spawn_helper(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "crash::helper_commits_until_killed"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a helper, run by the test above"]
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
