//! The database's disk runs full, on a small file system of the test's own.
//!
//! Each test starts itself again in a user and mount namespace (`unshare -rm`), where it may mount a tmpfs that nobody else sees
//! and that goes with it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Database, Ran, Reply, Served, kvqueue, serve_with, wait_until};

/// Set where a test runs inside.
const INSIDE: &str = "KVQUEUE_TEST_INSIDE";
/// The variable that says that user namespaces have to work here.
const REQUIRED: &str = "KVQUEUE_TEST_FULL_DISK";
/// The limit of free space that a program is given.
pub(crate) const MIN_FREE: &str = "FDB_EMBEDDED_MIN_FREE_SPACE";

/// A file system of this size in MiB, on a directory that the test's own mount namespace alone has.
pub(crate) struct Small {
    directory: tempfile::TempDir,
}

impl Small {
    pub(crate) fn mount(mib: u64) -> Small {
        let directory = tempfile::tempdir().unwrap();
        let small = Small { directory };
        small.run(&format!("mount -t tmpfs -o size={mib}m none {}", small.path().display()));
        small
    }

    pub(crate) fn resize(&self, mib: u64) {
        self.run(&format!("mount -o remount,size={mib}m {}", self.path().display()));
    }

    fn run(&self, command: &str) {
        assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn database(&self) -> Database {
        Database::at(format!("embedded:{}/db", self.path().display()), String::new())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // The namespace's end takes it down too.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// True inside. Outside the test of this name, in this module, is run inside.
pub(crate) fn inside(module: &str, name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let possible = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os(REQUIRED).is_none(), "unshare -rm does not work here");
        eprintln!("skipped: unshare -rm does not work here, so no file system can be mounted");
        return false;
    }
    let mut again = Command::new("unshare");
    again.arg("-rm").arg(std::env::current_exe().unwrap());
    again.args([&format!("{module}::{name}"), "--exact", "--nocapture"]).env(INSIDE, "1");
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("1 passed"), "inside:\n{out}\n{text}");
    false
}

/// Lines of `bytes` bytes, each with its number.
pub(crate) fn lines(count: usize, bytes: usize) -> String {
    let mut lines = String::with_capacity(count * (bytes + 1));
    for number in 0..count {
        writeln!(lines, "{number:08} {}", "x".repeat(bytes - 9)).unwrap();
    }
    lines
}

/// How many items a push acknowledged.
fn acknowledged(stdout: &str) -> usize {
    let object: Value = serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout:?}"));
    usize::try_from(object["acknowledged"].as_u64().unwrap_or_else(|| panic!("{object}"))).unwrap()
}

/// Pushes until the disk is full; how many items were acknowledged.
pub(crate) fn fill(db: &Database, bytes: usize, limit: &str) -> usize {
    let input = db.file("lines");
    fs::write(&input, lines((80 << 20) / bytes, bytes)).unwrap();
    let push = kvqueue(db, &["push", "q", "--json", "--lines", input.to_str().unwrap()])
        .env(MIN_FREE, limit)
        .stdin(Stdio::null())
        .output();
    let push = Ran::from(push.unwrap());
    assert_eq!(push.code, Some(1), "{push:?}");
    let full = "is full";
    assert!(push.stderr.contains(full) && push.stderr.contains("free some space"), "{}", push.stderr);
    acknowledged(&push.stdout)
}

pub(crate) fn count(db: &Database, limit: &str) -> usize {
    let ran = kvqueue(db, &["len", "q"]).env(MIN_FREE, limit).stdin(Stdio::null()).output().unwrap();
    Ran::from(ran).ok().trim().parse().unwrap()
}

/// One of the numbers that `kvqueue len --json` prints.
fn figure(db: &Database, name: &str) -> usize {
    let object: Value = serde_json::from_str(&run(db, &["len", "q", "--json"]).ok()).unwrap();
    usize::try_from(object[name].as_u64().unwrap_or_else(|| panic!("{object}"))).unwrap()
}

/// Fills the disk, lets a daemon empty the queue, and goes on, then on a disk with more space. `mib` of tmpfs, items of `bytes`
/// bytes.
fn fill_drain_and_go_on(mib: u64, bytes: usize, k: usize) {
    eprintln!("{mib} MiB, items of {bytes} bytes");
    let small = Small::mount(mib);
    let db = small.database();
    let pushed = fill(&db, bytes, "0");
    // The reserve has half of the smallest disk, the log a quarter, and a whole push of 1 MB is refused at once.
    assert!(pushed * bytes > (mib << 20) as usize / 16, "only {pushed} items found space");
    assert_eq!(count(&db, "0"), pushed, "what was refused is not there, and what was acknowledged is");
    let daemon = start_daemon(&db, "0", k);
    wait_until("all are finished", || figure(&db, "done") == pushed);
    // A queue that is empty has given its space back: pushes are accepted again by the daemon that hosts the database.
    wait_until("a push is accepted again", || push_one(&db, "0").code == Some(0));
    small.resize(2 * mib);
    let input = db.file("more");
    let more = lines(pushed, bytes).lines().fold(String::new(), |all, line| all + "more" + line + "\n");
    fs::write(&input, more).unwrap();
    let args = ["push", "q", "--json", "--lines", input.to_str().unwrap()];
    let push: Ran = kvqueue(&db, &args).env(MIN_FREE, "0").stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(acknowledged(&push.ok()), pushed, "twice the space takes as many at least");
    wait_until("all are finished", || figure(&db, "done") == 2 * pushed + 1);
    let out = end(daemon);
    let handled = numbers(out.lines());
    let more = numbers(out.lines().filter_map(|line| line.strip_prefix("more")));
    let expected: BTreeMap<usize, usize> = (0..pushed).map(|number| (number, 1)).collect();
    assert!(handled == expected, "{} handled of {pushed}", handled.len());
    assert!(more == expected, "{} handled of {pushed} that came later", more.len());
}

fn start_daemon(db: &Database, limit: &str, k: usize) -> Background {
    let config = db.file("kvqueue.toml");
    fs::write(&config, format!("[queues.q]\nhandler = \"stdout\"\nconsumers = [{{ k = {k}, count = 2 }}]\n"))
        .unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.env(MIN_FREE, limit);
    let mut daemon = Background::start(command);
    daemon.wait_for_event("ready");
    daemon
}

fn end(daemon: Background) -> String {
    daemon.signal(Signal::TERM);
    daemon.end().ok()
}

/// How often each numbered line was printed.
fn numbers<'o>(lines: impl Iterator<Item = &'o str>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for number in lines.filter_map(|line| line.get(..8)?.parse().ok()) {
        *counts.entry(number).or_default() += 1;
    }
    counts
}

pub(crate) fn push_one(db: &Database, limit: &str) -> Ran {
    let push = kvqueue(db, &["push", "q", "one more"]).env(MIN_FREE, limit).stdin(Stdio::null()).output();
    push.unwrap().into()
}

#[test]
fn a_queue_that_filled_its_disk_is_drained_to_the_last_item() {
    if inside("full_disk", "a_queue_that_filled_its_disk_is_drained_to_the_last_item") {
        for (mib, bytes, k) in [(8, 400, 100), (8, 90_000, 10), (32, 4_000, 100)] {
            fill_drain_and_go_on(mib, bytes, k);
        }
    }
}

#[test]
fn a_larger_queue_that_filled_its_disk_is_drained_to_the_last_item() {
    if inside("full_disk", "a_larger_queue_that_filled_its_disk_is_drained_to_the_last_item") {
        for (mib, bytes, k) in [(32, 1_000, 100), (64, 20_000, 100)] {
            fill_drain_and_go_on(mib, bytes, k);
        }
    }
}

/// Another program takes all the space there is.
pub(crate) fn fill_up(small: &Small) {
    small.run(&format!("cat /dev/zero > {}/filler 2>/dev/null || true", small.path().display()));
    let left = rustix::fs::statvfs(small.path()).unwrap().f_bavail;
    assert_eq!(left, 0, "blocks are left");
}

fn run(db: &Database, args: &[&str]) -> Ran {
    kvqueue(db, args).env(MIN_FREE, "0").stdin(Stdio::null()).output().unwrap().into()
}

/// A database whose host was killed while another program filled the disk can be read. With its reserve it can be drained too.
fn with_no_byte_free(has_reserve: bool) {
    let small = Small::mount(32);
    let db = small.database();
    let killed = idle_daemon(&db);
    let input = db.file("lines");
    fs::write(&input, lines(300, 2_000)).unwrap();
    run(&db, &["push", "q", "--lines", input.to_str().unwrap()]).ok();
    killed.signal(Signal::KILL);
    drop(killed);
    if !has_reserve {
        fs::remove_file(small.path().join("db/reserve")).unwrap();
        fs::write(small.path().join("db/lock"), "").unwrap();
    }
    fill_up(&small);
    for command in [&["peek", "q"][..], &["list"], &["export", "q"]] {
        run(&db, command).ok();
    }
    assert_eq!(count(&db, "0"), 300);
    let daemon = idle_daemon(&db);
    let refused = push_one(&db, "0").failed(1);
    assert!(refused.contains("is full"), "{refused}");
    if !has_reserve {
        let doctor = run(&db, &["doctor"]);
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        for said in [&refused, &doctor.stdout] {
            assert!(said.contains("has no reserve, so it can only be read; free some space"), "{said}");
            assert!(!said.contains("let consumers"), "{said}");
        }
        let pop = run(&db, &["pop", "q", "--timeout", "6s"]).failed(69);
        assert!(pop.contains("[database_silent] reason=\"the disk of"), "{pop}");
        assert!(
            pop.trim_end()
                .trim_end_matches('"')
                .ends_with("has no reserve, so it can only be read; free some space"),
            "{pop}"
        );
    }
    assert_eq!(count(&db, "0"), 300);
    let mut left = 300;
    if has_reserve {
        assert_eq!(run(&db, &["pop", "q", "-k", "200"]).ok().lines().count(), 200);
        left -= 200;
    }
    fs::remove_file(small.path().join("filler")).unwrap();
    wait_until("a push is accepted again", || push_one(&db, "0").code == Some(0));
    assert_eq!(count(&db, "0"), left + 1);
    assert_eq!(run(&db, &["pop", "q", "-k", "200"]).ok().lines().count(), 200.min(left + 1));
    end(daemon);
}

#[test]
fn a_database_on_a_disk_without_a_free_byte_is_read_and_drained() {
    if inside("full_disk", "a_database_on_a_disk_without_a_free_byte_is_read_and_drained") {
        with_no_byte_free(true);
    }
}

#[test]
fn a_database_without_its_reserve_is_read_on_a_disk_without_a_free_byte() {
    if inside("full_disk", "a_database_without_its_reserve_is_read_on_a_disk_without_a_free_byte") {
        with_no_byte_free(false);
    }
}

/// It hosts the database, and does nothing with the queue.
fn idle_daemon(db: &Database) -> Background {
    let config = db.file("other.toml");
    fs::write(&config, "[queues.other]\nhandler = \"stdout\"\n").unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.env(MIN_FREE, "0");
    let mut daemon = Background::start(command);
    daemon.wait_for_event("ready");
    daemon
}

#[test]
fn a_full_disk_stays_readable_and_recovers_with_space() {
    if !inside("full_disk", "a_full_disk_stays_readable_and_recovers_with_space") {
        return;
    }
    let small = Small::mount(32);
    let db = small.database();
    let killed = idle_daemon(&db);
    let pushed = fill(&db, 2_000, "0");
    killed.signal(Signal::KILL);
    drop(killed);
    assert_eq!(count(&db, "0"), pushed);
    for command in [&["peek", "q"][..], &["list"], &["export", "q"]] {
        let ran = kvqueue(&db, command).env(MIN_FREE, "0").stdin(Stdio::null()).output().unwrap();
        Ran::from(ran).ok();
    }
    let daemon = idle_daemon(&db);
    // What fits into the last pages is accepted.
    let more = fill(&db, 2_000, "0");
    assert!(more < pushed / 4, "{more} items more than {pushed}");
    let mut all = pushed + more;
    small.resize(64);
    let input = db.file("lines");
    fs::write(&input, lines(5_000, 2_000)).unwrap();
    wait_until("a push of 10 MB is accepted", || {
        let push = run(&db, &["push", "q", "--json", "--lines", input.to_str().unwrap()]);
        all += acknowledged(&push.stdout);
        push.code == Some(0)
    });
    assert_eq!(count(&db, "0"), all);
    end(daemon);
}

#[test]
fn pushes_are_refused_below_the_limit_and_pops_are_not() {
    if !inside("full_disk", "pushes_are_refused_below_the_limit_and_pops_are_not") {
        return;
    }
    let small = Small::mount(64);
    let db = small.database();
    assert_eq!(push_one(&db, "1MiB").code, Some(0));
    let refused = push_one(&db, "1GiB").failed(1);
    assert!(refused.contains("min-free-space is 1.0 GiB"), "{refused}");
    // The directory's own limit is that of every process, but for the variable.
    fs::write(small.path().join("db/min-free-space"), "2GiB\n").unwrap();
    let mut push = kvqueue(&db, &["push", "q", "x"]);
    let refused = Ran::from(push.env_remove(MIN_FREE).stdin(Stdio::null()).output().unwrap()).failed(1);
    assert!(refused.contains("min-free-space is 2.0 GiB"), "{refused}");
    let pop = kvqueue(&db, &["pop", "q"]).env(MIN_FREE, "1GiB").stdin(Stdio::null()).output().unwrap();
    assert_eq!(Ran::from(pop).ok().trim(), "one more");
}

/// A daemon with a limit of its own, on a small disk that another program fills.
struct Limited {
    small: Small,
    db: Database,
    config: PathBuf,
    served: Served,
}

impl Limited {
    /// Its queue is paused.
    fn start() -> Limited {
        let small = Small::mount(96);
        let db = small.database();
        let config = db.file("limited.toml");
        fs::write(&config, Self::settings("\"48MiB\"")).unwrap();
        let mut command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
        command.env_remove(MIN_FREE);
        let served = serve_with(command, false);
        let limited = Limited { small, db, config, served };
        limited.run(&["pause", "q", "--create"]).ok();
        limited
    }

    fn settings(limit: &str) -> String {
        format!("min-free-space = {limit}\n[queues.q]\nhandler = \"stdout\"\nconsumers = [{{ k = 20 }}]\n")
    }

    /// Another program's file.
    fn ballast(&self) -> PathBuf {
        self.small.path().join("ballast")
    }

    fn run(&self, args: &[&str]) -> Ran {
        let config = self.config.to_str().unwrap();
        let mut command = kvqueue(&self.db, &[args, &["--config", config]].concat());
        command.env_remove(MIN_FREE);
        command.stdin(Stdio::null()).output().unwrap().into()
    }

    fn post(&self) -> Reply {
        self.served.at.post("/api/v1/queues/q/items", &json!({"items": [{"payload": "by HTTP"}]}))
    }

    fn warnings(&self) -> Vec<Value> {
        // It is ready all the time: consumers can work.
        let ready = self.served.at.get("/readyz").is(200);
        ready["warnings"].as_array().unwrap().clone()
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = String::from_utf8(self.served.at.get("/metrics").body).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse().unwrap()
    }

    fn status(&self) -> String {
        let at = self.served.at.tcp();
        self.run(&["status", "--at", at]).ok()
    }

    fn reload(&mut self, limit: &str) {
        fs::write(&self.config, Self::settings(limit)).unwrap();
        self.served.daemon.signal(Signal::HUP);
        self.served.daemon.wait_for_event("configuration_reloaded");
    }
}

#[test]
fn a_daemon_below_its_space_limit_refuses_pushes_and_drains_its_queue() {
    if !inside("full_disk", "a_daemon_below_its_space_limit_refuses_pushes_and_drains_its_queue") {
        return;
    }
    let mut limited = Limited::start();
    let input = limited.db.file("lines");
    fs::write(&input, lines(100, 2_000)).unwrap();
    limited.run(&["push", "q", "--lines", input.to_str().unwrap()]).ok();
    assert_eq!(limited.warnings(), [] as [Value; 0]);
    assert_eq!(
        (limited.metric("kvqueue_pushes_refused"), limited.metric("kvqueue_disk_min_free_bytes")),
        (0, 48 << 20)
    );
    assert!(limited.metric("kvqueue_disk_free_bytes") > 48 << 20);
    assert!(
        limited.status().contains("min-free-space 48.0 MiB (from the configuration)\n"),
        "{}",
        limited.status()
    );

    fs::write(limited.ballast(), vec![0; 60 << 20]).unwrap();
    is_refused_and_shown(&limited);
    // Consumers are not held up.
    limited.run(&["resume", "q"]).ok();
    wait_until("the queue is empty", || limited.run(&["len", "q"]).ok() == "0\n");
    assert_eq!(limited.metric("kvqueue_pushes_refused"), 1);

    // The limit is the operator's to change.
    limited.reload("0");
    wait_until("no limit refuses a push", || limited.post().status == 201);
    wait_until("no limit is shown", || limited.metric("kvqueue_disk_min_free_bytes") == 0);
    limited.reload("\"48MiB\"");
    wait_until("the limit is shown again", || limited.metric("kvqueue_pushes_refused") == 1);
    wait_until("the limit refuses pushes again", || limited.post().status == 503);

    fs::remove_file(limited.ballast()).unwrap();
    wait_until("pushes are accepted again", || limited.post().status == 201);
    wait_until("that is shown", || limited.warnings().is_empty());
    assert_eq!(limited.metric("kvqueue_pushes_refused"), 0);
    assert!(!limited.status().contains("refused"), "{}", limited.status());
    wait_until("all are finished", || ["ready", "running"].map(|name| figure(&limited.db, name)) == [0, 0]);
    limited.served.daemon.signal(Signal::TERM);
    let ran = limited.served.daemon.end();
    assert_eq!(numbers(ran.stdout.lines()), (0..100).map(|number| (number, 1)).collect());
    for event in ["pushes_refused", "pushes_accepted"] {
        let event = format!("\"event\":\"{event}\"");
        let line = ran.stderr.lines().find(|line| line.contains(&event));
        assert!(line.is_some_and(|line| line.contains("\"reusable\":")), "{event}: {}", ran.stderr);
    }
}

/// A push is refused by all ways, and all that shows the daemon says why.
#[track_caller]
fn is_refused_and_shown(limited: &Limited) {
    wait_until("pushes are refused", || !limited.warnings().is_empty());
    let warnings = limited.warnings();
    for part in ["pushes are refused: the disk of", "has too little free space", "min-free-space is 48.0 MiB"]
    {
        assert!(warnings[0].as_str().unwrap().contains(part), "{warnings:?}");
    }
    let error = limited.run(&["push", "q", "by command"]).failed(1);
    for part in [
        "too little free space",
        "min-free-space is 48.0 MiB",
        "let consumers empty its queues",
        "kvqueue dead purge",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let export = limited.db.file("export").display().to_string();
    fs::write(&export, limited.run(&["export", "q"]).ok()).unwrap();
    let error = limited.run(&["import", "imported", "-i", &export]).failed(1);
    for part in ["were not imported", "too little free space", "min-free-space is 48.0 MiB"] {
        assert!(error.contains(part), "{error}");
    }
    let refused = limited.post();
    assert_eq!(refused.header("Retry-After"), Some("1"));
    assert_eq!(refused.error(503), "no_space");
    assert_eq!(limited.metric("kvqueue_pushes_refused"), 1);
    assert!(limited.metric("kvqueue_disk_free_bytes") < 48 << 20);
    assert!(limited.status().contains("\npushes are refused: the disk of "), "{}", limited.status());
    let status = limited.served.at.get("/api/v1/status").is(200);
    assert!(status["database"]["space"]["pushes_refused"].is_string(), "{status}");
    // The daemon knows it for certain.
    for (listen, says) in [("off", "pushes may be refused"), (limited.served.at.tcp(), "pushes are refused")]
    {
        let mut doctor = kvqueue(&limited.db, &["doctor", "--config", limited.config.to_str().unwrap()]);
        doctor.env_remove(MIN_FREE).env("KVQUEUE_HTTP__LISTEN", listen);
        let doctor = Ran::from(doctor.stdin(Stdio::null()).output().unwrap());
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        assert!(doctor.stdout.contains(&format!("{says}: the disk of ")), "{}", doctor.stdout);
    }
}
