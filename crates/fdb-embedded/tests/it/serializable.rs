//! Random transactions of several processes on one directory, which are killed and stopped, are serializable.
//!
//! On a cluster the processes are clients of it: so FoundationDB is held against the same judge.

mod judge;

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fdb_embedded::{Holdings, ProcessHoldings};
use foundationdb::options::{MutationType, TransactionOption};
use foundationdb::{Database, FdbError, RangeOption, Transaction};
use futures::TryStreamExt;
use futures::executor::block_on;

use self::judge::{Done, History, Logged, Step, key_found, rows_found};
use crate::common::{Helper, Rng, cluster_file, network, open, scratch};
use crate::processes::{insist, signal};

/// Processes at a time, and threads of each.
const PROCESSES: usize = 4;
const THREADS: u64 = 3;
/// Keys; those from `NUMBERS` on hold numbers, the others lists.
const KEYS: usize = 12;
const NUMBERS: usize = 8;
/// Bytes that a list keeps when it is read and set.
const LIST_BYTES: usize = 300;
/// Versions that a process remembers, to read at them later.
const REMEMBERED: usize = 500;
/// Rows of the log that are read at a time.
const LOG_PAGE: usize = 1_000;
/// The data file may have this many bytes, and for each byte of its rows so many more: free pages, pages that are half full.
const FILE_BYTES: u64 = 16 << 20;
const FILE_FACTOR: u64 = 4;
/// How long the threads of a database that was closed may take to end.
const PATIENCE: Duration = Duration::from_secs(20);
const NOT_COMMITTED: i32 = 1020;
const TIMED_OUT: i32 = 1031;

/// Prints how to run a test again that fails.
struct Again(u64);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("KVQUEUE_TEST_SEED={} cargo test -p fdb-embedded --test it serializable::", self.0);
        }
    }
}

/// The processes, and the directory next to which they write what they know.
struct Crowd<'d> {
    directory: &'d Path,
    rng: Rng,
    helpers: Vec<Helper>,
    started: u64,
}

impl Crowd<'_> {
    fn start_one(&mut self) {
        let helper = Helper::spawn("runs_transactions", self.directory);
        self.started += 1;
        let seed = self.rng.below(usize::MAX);
        writeln!(helper.stdin.as_ref().unwrap(), "{} {seed}", self.started).unwrap();
        self.helpers.push(helper);
    }

    /// One of the processes; the host, if `hosts` and there is one.
    fn any(&mut self, hosts: bool) -> usize {
        let any = self.rng.below(self.helpers.len());
        let lock = std::fs::read_to_string(self.directory.join("lock")).unwrap_or_default();
        let host = lock.trim().parse().ok();
        let host = self.helpers.iter().position(|helper| Some(helper.child.id()) == host);
        if hosts { host.unwrap_or(any) } else { any }
    }

    /// Kills a process, stops it for a while, or has it end; the dead get successors.
    fn disturb(&mut self) {
        let (what, hosts) = (self.rng.below(10), self.rng.below(10) < 7);
        let victim = self.any(hosts);
        let ended = self.helpers[victim].child.try_wait().unwrap();
        assert!(ended.is_none(), "a process has ended by itself: {ended:?}");
        match what {
            0..=5 => {
                self.helpers.remove(victim).kill();
                self.start_one();
            }
            6..=7 => {
                signal(&self.helpers[victim], "-STOP");
                std::thread::sleep(self.rng.time_below(Duration::from_millis(400)));
                signal(&self.helpers[victim], "-CONT");
            }
            _ => {
                end(self.helpers.remove(victim));
                self.start_one();
            }
        }
    }
}

/// Opens this directory, or the cluster of the environment if there is one, whose network its caller has started.
fn open_any(directory: &Path) -> Database {
    cluster_file().map_or_else(|| open(directory), |cluster| Database::from_path(&cluster).unwrap())
}

/// Tells a process to end, and sees that it does so without complaints.
fn end(mut helper: Helper) {
    drop(helper.stdin.take());
    let status = helper.child.wait().unwrap();
    assert!(status.success(), "a process has failed: {status}");
}

#[test]
fn transactions_of_killed_and_stopped_processes_are_serializable() {
    let seed = Rng::seed();
    let _again = Again(seed);
    let seconds = std::env::var("KVQUEUE_TEST_SECONDS").map_or(8, |seconds| seconds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("db");
    std::fs::create_dir(&directory).unwrap();
    // It is cleared, and belongs to this test until the end.
    let cluster = cluster_file().map(|_| scratch());
    let mut crowd = Crowd { directory: &directory, rng: Rng(seed), helpers: Vec::new(), started: 0 };
    (0..PROCESSES).for_each(|_| crowd.start_one());
    crowd.helpers.iter_mut().for_each(|helper| helper.wait_for("ready"));
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100) + crowd.rng.time_below(Duration::from_millis(600)));
        crowd.disturb();
    }
    crowd.helpers.drain(..).for_each(end);

    let mut history = journals(dir.path());
    let db = open_any(&directory);
    history.log = read_log(&db);
    history.reads.push(read_rows(&db));
    if cluster.is_none() {
        check_holdings(&directory);
    }
    let faults = history.faults();
    let few: Vec<_> = faults.iter().take(5).map(String::as_str).collect();
    assert!(faults.is_empty(), "{} faults, among them\n  {}", faults.len(), few.join("\n  "));
    // Otherwise the judge has seen little.
    let conflicts = history.refused.iter().filter(|(_, code)| *code == NOT_COMMITTED).count();
    println!(
        "{} logged, {} acknowledged, {conflicts} conflicts, {} reads at a version, {} processes",
        history.log.len(),
        history.acknowledged.len(),
        history.reads.len(),
        crowd.started
    );
    assert!(history.acknowledged.len() > 100 && history.reads.len() > 20 && conflicts > 10);
}

/// Nothing is left of the processes and their transactions, and the file is not much larger than its rows.
fn check_holdings(directory: &Path) {
    let held = Holdings::at_rest(&format!("embedded:{}", directory.display())).unwrap();
    assert!(held.left_over().is_empty(), "there are {}", held.left_over().join(", "));
    let most = FILE_BYTES + FILE_FACTOR * held.rows;
    assert!(held.data_file <= most, "{held:?}");
}

/// What the processes have written into their journals. The last line of one that was killed may be cut.
fn journals(place: &Path) -> History {
    let mut history = History::default();
    for entry in std::fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let (kind, rest) = line.split_once(' ').unwrap();
            let (first, second) = rest.split_once(' ').unwrap();
            match kind {
                "acknowledged" => history.acknowledged.push((first.to_owned(), second.parse().unwrap())),
                "refused" => history.refused.push((first.to_owned(), second.parse().unwrap())),
                _ => history.reads.push((first.parse().unwrap(), Done::parse(second))),
            }
        }
    }
    history
}

/// Reads the log, in pages, because a long one takes longer than a transaction lives. Nobody writes any more.
fn read_log(db: &Database) -> Vec<Logged> {
    let (mut log, mut begin) = (Vec::new(), b"log/".to_vec());
    loop {
        let page = RangeOption { limit: Some(LOG_PAGE), ..RangeOption::from((&begin[..], &b"log0"[..])) };
        let rows: Vec<_> = insist(|| {
            let tr = db.create_trx()?;
            block_on(tr.get_ranges_keyvalues(page.clone(), true).try_collect())
        });
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        log.extend(rows.iter().map(|row| Logged::parse(&row.key()[4..], &text(row.value()))));
        let Some(last) = rows.last() else { return log };
        begin = [last.key(), &[0]].concat();
    }
}

/// The rows that are left, as one more read.
fn read_rows(db: &Database) -> (i64, Done) {
    let step = Step::Range { begin: key(0), end: key(KEYS), limit: KEYS, reverse: false };
    insist(|| {
        block_on(async {
            let tr = db.create_trx()?;
            let found = run(&tr, &step).await?;
            Ok((tr.get_read_version().await?, Done { step: step.clone(), found }))
        })
    })
}

fn key(index: usize) -> String {
    format!("m/{index:02}")
}

/// Does a step in a transaction, and returns what it reads.
async fn run(tr: &Transaction, step: &Step) -> Result<String, FdbError> {
    match step {
        Step::Get(key) => return Ok(key_found(tr.get(key.as_bytes(), false).await?.as_deref())),
        Step::Range { begin, end, limit, reverse } => {
            let range = RangeOption {
                limit: Some(*limit),
                reverse: *reverse,
                ..RangeOption::from((begin.as_bytes(), end.as_bytes()))
            };
            let rows: Vec<_> = tr.get_ranges_keyvalues(range, false).try_collect().await?;
            return Ok(rows_found(rows.iter().map(|row| (row.key(), row.value()))));
        }
        Step::Set(key, value) => tr.set(key.as_bytes(), value.as_bytes()),
        Step::Append(key, value) => {
            tr.atomic_op(key.as_bytes(), value.as_bytes(), MutationType::AppendIfFits);
        }
        Step::Add(key, number) => tr.atomic_op(key.as_bytes(), &number.to_le_bytes(), MutationType::Add),
        Step::Clear(begin, end) => tr.clear_range(begin.as_bytes(), end.as_bytes()),
    }
    Ok(String::new())
}

/// A process of the test: its threads run transactions until its input ends.
pub fn helper_runs_transactions(directory: &Path) {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let (name, seed) = line.trim().split_once(' ').unwrap();
    let seed: u64 = seed.parse().unwrap();
    let journal = File::create(directory.with_file_name(format!("journal-{name}"))).unwrap();
    let _network = network();
    let worker = Worker { db: open_any(directory), journal, versions: Mutex::default() };
    println!("\nready");
    let told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (worker, told) = (&worker, &told);
            scope.spawn(move || {
                let mut rng = Rng(seed.wrapping_add(thread));
                for n in 0u64.. {
                    if told.load(Ordering::Acquire) {
                        break;
                    }
                    worker.one(&mut rng, &format!("{name}.{thread}.{n}"));
                }
            });
        }
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        told.store(true, Ordering::Release);
    });
    drop(worker);
    if cluster_file().is_some() {
        return;
    }
    // Nothing is left of its time as the host or a guest of this directory.
    assert_eq!(ProcessHoldings::await_none(PATIENCE), ProcessHoldings::default());
}

/// What the threads of a process share.
struct Worker {
    db: Database,
    journal: File,
    /// The versions of the last commits.
    versions: Mutex<Vec<i64>>,
}

impl Worker {
    /// Writes a line that outlives this process.
    fn write(&self, line: &str) {
        (&self.journal).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// One transaction, which is not repeated.
    fn one(&self, rng: &mut Rng, id: &str) {
        let tr = self.db.create_trx().unwrap();
        // Some end while they wait for a host that is stopped.
        let timeout = if rng.below(10) == 0 { 100 } else { 20_000 };
        tr.set_option(TransactionOption::Timeout(timeout)).unwrap();
        if rng.below(3) == 0 {
            tr.set_option(TransactionOption::DurabilityRisky).unwrap();
        }
        let ended = match rng.below(10) {
            0..=1 => block_on(self.read_at_a_version(tr, rng)),
            2 => block_on(fill_another_place(tr, rng)),
            _ => block_on(self.change(tr, rng, id)),
        };
        let Err(error) = ended else { return };
        if error.is_retryable_not_committed() {
            self.write(&format!("refused {id} {}", error.code()));
        } else {
            let is_unknown = error.is_maybe_committed() || error.code() == TIMED_OUT;
            assert!(is_unknown, "{id}: {error}");
        }
    }

    /// Reads only, at the version of an earlier commit or at the latest one.
    async fn read_at_a_version(&self, tr: Transaction, rng: &mut Rng) -> Result<(), FdbError> {
        let known = {
            let versions = self.versions.lock().unwrap();
            (!versions.is_empty()).then(|| versions[rng.below(versions.len())])
        };
        if let Some(version) = known.filter(|_| rng.below(3) > 0) {
            tr.set_read_version(version);
        }
        let version = tr.get_read_version().await?;
        for _ in 0..3 {
            let step = any_read(rng);
            let found = run(&tr, &step).await?;
            self.write(&format!("read {version} {}", Done { step, found }));
        }
        Ok(())
    }

    /// Reads, writes, and logs what it read and wrote.
    async fn change(&self, tr: Transaction, rng: &mut Rng, id: &str) -> Result<(), FdbError> {
        let mut steps = Vec::new();
        let mut pending: Vec<Step> = (0..rng.below(3)).map(|_| any_read(rng)).collect();
        let list = key(rng.below(NUMBERS));
        let sets_list = rng.below(2) == 0;
        pending.push(if sets_list { Step::Get(list.clone()) } else { any_write(rng, id) });
        for step in pending {
            steps.push(Done { found: run(&tr, &step).await?, step });
        }
        let mut pending = Vec::new();
        if sets_list {
            let old = steps.last().and_then(|done| done.found.strip_prefix('=')).unwrap_or_default();
            let new = format!("{old},{id}");
            pending.push(Step::Set(list, new[new.len().saturating_sub(LIST_BYTES)..].to_owned()));
        }
        if rng.below(3) == 0 {
            pending.extend([any_write(rng, id), any_read(rng)]);
        }
        for step in pending {
            steps.push(Done { found: run(&tr, &step).await?, step });
        }
        // The stamp is to stand at byte 4.
        let stamped = [b"log/", &[0; 10][..], &4u32.to_le_bytes()].concat();
        tr.atomic_op(&stamped, Logged::text(id, &steps).as_bytes(), MutationType::SetVersionstampedKey);
        let version = tr.commit().await.map_err(FdbError::from)?.committed_version()?;
        self.write(&format!("acknowledged {id} {version}"));
        let mut versions = self.versions.lock().unwrap();
        versions.push(version);
        if versions.len() > REMEMBERED {
            versions.remove(0);
        }
        Ok(())
    }
}

fn any_read(rng: &mut Rng) -> Step {
    if rng.below(2) == 0 {
        return Step::Get(key(rng.below(KEYS)));
    }
    let begin = rng.below(KEYS);
    let end = begin + 1 + rng.below(KEYS - begin);
    Step::Range { begin: key(begin), end: key(end), limit: 1 + rng.below(KEYS), reverse: rng.below(2) == 0 }
}

fn any_write(rng: &mut Rng, id: &str) -> Step {
    match rng.below(3) {
        0 => Step::Append(key(rng.below(NUMBERS)), format!(",{id}")),
        1 => Step::Add(key(NUMBERS + rng.below(KEYS - NUMBERS)), 1 + rng.below(1_000) as u64),
        _ => {
            let begin = rng.below(KEYS);
            Step::Clear(key(begin), key(KEYS.min(begin + 1 + rng.below(3))))
        }
    }
}

/// Writes and clears rows that no other transaction reads, so that the storage under it has work to do.
async fn fill_another_place(tr: Transaction, rng: &mut Rng) -> Result<(), FdbError> {
    let place = format!("other/{}/", rng.below(5));
    if rng.below(3) == 0 {
        tr.clear_range(place.as_bytes(), format!("{place}~").as_bytes());
    }
    let value = vec![b'x'; [10, 300][rng.below(2)]];
    for _ in 0..[1, 60, 260][rng.below(3)] {
        tr.set(format!("{place}{:05}", rng.below(100_000)).as_bytes(), &value);
    }
    tr.commit().await.map(drop).map_err(FdbError::from)
}
