//! Storage on a disk that fails once and is well again: a read, a write, or a flush, of which the system then forgets the pages.

use checked_pages::sim::FailedFlush;

use super::*;

const HOW: [FailedFlush; 2] = [FailedFlush::KeepsPages, FailedFlush::DropsPages];

/// Commits until the disk fails, and returns the error. All acknowledged batches are flushed.
fn until_it_fails(
    files: &Files,
    storage: &Storage,
    history: &mut History,
    random: &mut SplitMix,
) -> StorageError {
    loop {
        let Acknowledged { ceiling, mut model, .. } = history.last().unwrap().clone();
        let mutations = batch(&mut model, random);
        let result = apply(storage, &mutations, Some(ceiling + 1));
        match result {
            Ok(_) => {
                let now = files.moments();
                history.iter_mut().for_each(|batch| batch.flushed = batch.flushed.min(now));
                history.push(Acknowledged::new(now, ceiling + 1, model));
            }
            Err(error) => {
                // It may be there, or not.
                let unknown = usize::MAX;
                history.push(Acknowledged { at: unknown, flushed: unknown, ceiling: ceiling + 1, model });
                return error;
            }
        }
    }
}

/// Opens files whose disk is well again. What was flushed is there; with `all`, everything that was acknowledged.
fn open_again(files: &Files, history: &History, all: bool, what: &str) -> (Storage, Acknowledged) {
    let (storage, ceiling) = open(files).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = rows(&storage).unwrap_or_else(|error| panic!("{what}: {error}"));
    let meta = |batch: &Acknowledged| if all { batch.at } else { batch.flushed } != usize::MAX;
    let acknowledged = history.iter().rposition(meta).unwrap();
    assert!(
        history[acknowledged..].iter().any(|batch| batch.ceiling == ceiling && batch.model == found),
        "{what}: ceiling {ceiling}, {acknowledged} batches"
    );
    // As an engine does before anybody reads.
    apply(&storage, &[], None).unwrap_or_else(|error| panic!("{what}: {error}"));
    (storage, Acknowledged::new(files.moments(), ceiling, found))
}

/// Goes on with what was found, and lets the power fail at some of the moments from then on.
fn go_on_and_crash(files: &Files, storage: Storage, found: Acknowledged, random: &mut SplitMix, what: &str) {
    struct Named<'w>(&'w str);
    impl Drop for Named<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("in the round: {}", self.0);
            }
        }
    }
    let _named = Named(what);
    let first = found.at;
    let mut history = vec![found];
    for _ in 0..6 {
        let Acknowledged { ceiling, mut model, .. } = history.last().unwrap().clone();
        let mutations = batch(&mut model, random);
        apply(&storage, &mutations, Some(ceiling + 1)).unwrap();
        history.push(Acknowledged::new(files.moments(), ceiling + 1, model));
        if random.next().is_multiple_of(4) {
            storage.checkpoint().unwrap();
        }
    }
    drop(storage);
    for _ in 0..6 {
        let moment = first + usize::try_from(random.next() >> 8).unwrap() % (files.moments() - first + 1);
        let bytes = files.after_power_failure(moment, random);
        check_crash(&bytes, moment, &history, Crash::PowerFailure);
    }
}

#[test]
fn one_disk_failure_and_a_later_power_failure_lose_no_acknowledged_batch() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let mut flushes = 0;
        for (round, healthy) in (0..60).chain([90, 150, 200]).enumerate() {
            let how = HOW[round % 2];
            let what = format!("{how:?} after {healthy} operations");
            let (files, storage, mut history) = history(5, &mut random);
            files.data.fail_once_after(healthy, how);
            let error = until_it_fails(&files, &storage, &mut history, &mut random);
            assert_eq!(error.code(), Code::IO_ERROR, "{what}: {error}");
            let again = apply(&storage, &[set(b"a", b"b")], None).unwrap_err();
            assert_eq!(
                again.to_string(),
                error.to_string(),
                "{what}: the disk is well, and the state unknown"
            );
            flushes += usize::from(files.has_failed_flush());
            drop(storage);
            assert!(!files.data.heal(), "{what}: it has not failed");
            let (storage, found) = open_again(&files, &history, how == FailedFlush::KeepsPages, &what);
            go_on_and_crash(&files, storage, found, &mut random, &what);
        }
        assert!((3..60).contains(&flushes), "a flush failed in {flushes} of 63 rounds");
    });
}

/// Opens what a crash left, once for each operation that an opening does. `fail` makes that operation
/// fail and returns its name for messages. Then the disk is well again, the files are opened once more,
/// and `go_on` gets them.
fn fail_every_opening(
    random: &mut SplitMix,
    fail: impl Fn(&Files, usize) -> String,
    go_on: impl Fn(&Files, Storage, Acknowledged, &mut SplitMix, &str),
) {
    let (files, storage, history) = history(12, random);
    let crashed = files.bytes();
    drop(storage);
    let mut failures = 0;
    for healthy in 0.. {
        let files = Files::new(&crashed);
        let what = fail(&files, healthy);
        let opened = open(&files).and_then(|(storage, _)| rows(&storage));
        let is_over = files.data.heal();
        match opened {
            // The failed operation was not needed, or it belonged to the close.
            Ok(found) => assert!(history.last().unwrap().model == found, "{what}: other rows"),
            Err(error) => {
                assert_eq!(error.code(), Code::IO_ERROR, "{what}: {error}");
                failures += 1;
            }
        }
        if is_over {
            break;
        }
        let (storage, found) = open_again(&files, &history, true, &what);
        go_on(&files, storage, found, random, &what);
    }
    assert!(failures > 3, "too few to be a test: {failures}");
}

#[test]
fn after_one_disk_failure_the_next_opening_succeeds() {
    let fail = |files: &Files, healthy| {
        let how = HOW[healthy % 2];
        files.data.fail_once_after(healthy, how);
        format!("{how:?} after {healthy} operations")
    };
    seeds(|seed| fail_every_opening(&mut SplitMix(seed), fail, go_on_and_crash));
}

#[test]
fn a_failed_read_during_opening_is_not_mistaken_for_damage() {
    let fail = |files: &Files, healthy| {
        files.data.fail_read_after(healthy);
        format!("after {healthy} reads")
    };
    seeds(|seed| fail_every_opening(&mut SplitMix(seed), fail, |_, storage, _, _, _| drop(storage)));
}
