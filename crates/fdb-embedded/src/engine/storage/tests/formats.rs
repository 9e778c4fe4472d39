//! Files of older formats, and files that are no database.

use super::*;

#[test]
fn foreign_files_are_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.redb");
    let error = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        Storage::open(&file, &dir.path().join("log")).unwrap_err().to_string()
    };
    assert!(error(&b"not a database, but long enough to look at".repeat(400)).contains("another directory"));
    let old = dir.path().join("old.redb");
    drop(redb::Database::create(&old).unwrap());
    let plain = error(&std::fs::read(&old).unwrap());
    assert!(plain.contains("format 1") && plain.contains("version that wrote it"), "{plain}");
    assert!(error(b"").contains("0 bytes long"), "an emptied file is not a new database");
    assert!(!dir.path().join("log").exists(), "no log was created");
}

#[test]
fn upgrading_format_2_survives_an_interruption_at_any_moment() {
    let disk = SimDisk::default();
    let latch = latch();
    let tree = Tree::open(Pages::create(Box::new(disk.clone()), latch.clone()), latch, || ()).unwrap();
    tree.create_like_format_2(&[(b"k", b"v")], 12);
    drop(tree);
    let mut old = disk.bytes();
    sim::set_format(&mut old, 2);
    let files = Files::new(&[old.clone(), Vec::new()]);
    let (storage, ceiling) = open(&files).unwrap();
    apply(&storage, &[set(b"l", b"w")], Some(13)).unwrap();
    apply(&storage, &[set(b"m", b"x")], Some(14)).unwrap();
    drop(storage);
    assert_eq!(ceiling, 12);
    let mut random = SplitMix(2);
    for moment in 0..=files.moments() {
        let lost = [files.after_kill(moment), files.after_power_failure(moment, &mut random)];
        for (bytes, what) in lost.into_iter().zip(["kill", "power failure"]) {
            let format = bytes[0][8];
            let (storage, _) =
                open(&Files::new(&bytes)).unwrap_or_else(|e| panic!("{what} at {moment}: {e}"));
            let found = rows(&storage).unwrap();
            assert_eq!(found.get(&b"k"[..]).map(Vec::as_slice), Some(&b"v"[..]), "{what} at {moment}");
            assert!(
                found.len() == 1 || u32::from(format) == FORMAT,
                "{what} at {moment}: an older version would lose commits"
            );
        }
    }
}

#[test]
fn format_3_is_upgraded_with_the_contents_of_its_log() {
    let (files, storage) = create();
    apply(&storage, &[set(b"k", b"v")], Some(1)).unwrap();
    apply(&storage, &[set(b"l", b"w")], Some(2)).unwrap();
    let [mut data, log] = files.bytes();
    sim::set_format(&mut data, 3);
    let files = Files::new(&[data, log]);
    let (storage, ceiling) = open(&files).unwrap();
    let format = u32::from(files.data.bytes()[8]);
    assert_eq!((ceiling, rows(&storage).unwrap().len(), format), (2, 2, FORMAT));
}
