//! Reports on sound, held and damaged directories.

use super::*;
use crate::engine::mutation::Mutation;
use crate::engine::{CommitPromise, CommitRequest, Durability, Engine};
use crate::link::Link;

fn verdicts(path: &Path) -> Vec<(&'static str, Severity)> {
    check(path).findings.iter().map(|finding| (finding.about, finding.severity)).collect()
}

fn database() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    drop(Engine::open(dir.path()).unwrap());
    dir
}

#[test]
fn a_closed_database_is_read_through_and_not_changed() {
    let dir = database();
    let before = fs::read(dir.path().join(DATA_FILE)).unwrap();
    let report = check(dir.path());
    assert!(report.findings.iter().all(|f| f.severity == Severity::Fine), "{report:?}");
    assert_eq!(report.findings.len(), 9);
    assert_eq!(fs::read(dir.path().join(DATA_FILE)).unwrap(), before);
}

#[test]
fn an_unclosed_database_is_sound_and_not_repaired() {
    let dir = database();
    let open = Engine::open(dir.path()).unwrap();
    commit(&open);
    let copy = tempfile::tempdir().unwrap();
    let files = [DATA_FILE, LOG_FILE];
    for file in files {
        fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
    }
    drop(open);
    let read = || files.map(|file| fs::read(copy.path().join(file)).unwrap());
    let before = read();
    for _ in 0..2 {
        let report = check(copy.path());
        assert!(report.is_healthy(), "{report:?}");
        let said = |about| report.findings.iter().find(|f| f.about == about).unwrap().text.clone();
        assert!(said("log").starts_with("1 batches"), "{report:?}");
        assert!(said("rows").starts_with("1 can be read"), "{report:?}");
    }
    assert!(read() == before);
    damage_of_the_log_is_named(copy.path());
}

fn commit(engine: &Engine) {
    let set = Mutation::Set { key: b"k".to_vec(), value: b"v".to_vec() };
    let (sender, receiver) = std::sync::mpsc::channel();
    engine.commit(CommitRequest {
        read_version: i64::MAX,
        reads: vec![],
        report_conflicts: false,
        writes: vec![],
        mutations: vec![set],
        durability: Durability::Flushed,
        fault: None,
        promise: CommitPromise::new(move |result| sender.send(result).unwrap()),
    });
    receiver.recv().unwrap().unwrap();
}

fn damage_of_the_log_is_named(copy: &Path) {
    let log = copy.join(LOG_FILE);
    let whole = fs::read(&log).unwrap();
    let problem = |what: &str| {
        let report = check(copy);
        let found = report.findings.iter().find(|f| f.severity == Severity::Problem);
        let text = &found.unwrap_or_else(|| panic!("{what}: {report:?}")).text;
        assert!(text.contains(&log.display().to_string()) && text.contains(what), "{text}");
    };
    fs::write(&log, &whole[..1000]).unwrap();
    problem("it has 1000 bytes");
    fs::remove_file(&log).unwrap();
    problem("is missing");
    assert!(!log.exists(), "nothing is made in its place");
    fs::write(&log, &whole).unwrap();
    fs::remove_file(copy.join(DATA_FILE)).unwrap();
    assert_eq!(verdicts(copy).last(), Some(&("file", Severity::Problem)));
    assert!(matches!(Engine::open(copy), Err(crate::engine::OpenError::OrphanedLog { .. })));
}

#[test]
fn a_held_directory_names_its_holder() {
    let dir = database();
    let _host = Link::open(dir.path()).unwrap();
    let report = check(dir.path());
    assert!(report.is_healthy(), "{report:?}");
    let pid = format!("pid {}", std::process::id());
    assert!(report.findings[1].text.contains(&pid), "{report:?}");
    assert_eq!(report.findings.last().unwrap().severity, Severity::Note);
}

#[test]
fn a_file_removed_under_its_process_is_reported() {
    let dir = database();
    let _open = Engine::open(dir.path()).unwrap();
    fs::remove_file(dir.path().join(DATA_FILE)).unwrap();
    // Nothing listens there, so it would wait in vain.
    let check = || check_rows(dir.path(), Duration::ZERO, &mut |_, _| {});
    let report = check();
    let finding = report.findings.last().unwrap();
    assert_eq!(
        (finding.about, finding.severity, finding.advice.as_deref()),
        ("file", Severity::Problem, Some(SAVE))
    );
    fs::write(dir.path().join("data.new"), b"").unwrap();
    let report = check();
    let finding = report.findings.last().unwrap();
    assert_eq!((finding.about, finding.severity), ("file", Severity::Note), "it is about to make a file");
}

#[test]
fn damaged_pages_are_reported() {
    let dir = database();
    let data = dir.path().join(DATA_FILE);
    let whole = fs::read(&data).unwrap();
    let mut found = 0;
    for page in 2..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096] ^= 1;
        fs::write(&data, &damaged).unwrap();
        let report = check(dir.path());
        let named = report.findings.iter().any(|f| f.text.contains(&format!("(byte {})", page * 4096)));
        let is_used = whole[page * 4096..(page + 1) * 4096].iter().any(|byte| *byte != 0);
        assert_eq!(named, is_used, "{report:?}");
        found += usize::from(!report.is_healthy());
    }
    assert!(found > 2);
    fs::write(&data, b"").unwrap();
    assert_eq!(verdicts(dir.path()).last(), Some(&("file", Severity::Problem)));
    fs::write(&data, &whole[..whole.len() - 4096]).unwrap();
    assert!(!check(dir.path()).is_healthy());
}

#[test]
fn directories_without_a_database_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(verdicts(dir.path()).last(), Some(&("file", Severity::Note)));
    assert_eq!(verdicts(&dir.path().join("absent")), [("directory", Severity::Problem)]);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(verdicts(dir.path())[0], ("directory", Severity::Problem));
}
