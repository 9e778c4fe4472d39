//! Storage after a kill or a power failure at any moment, and on a disk that is full.

use super::*;

#[test]
fn a_crash_at_any_moment_keeps_acknowledged_batches() {
    seeds(|seed| {
        let mut random = SplitMix(seed);
        let (files, storage, history) = history(40, &mut random);
        let first = history[0].at;
        drop(storage);
        for round in 0..150 {
            let moment = first + usize::try_from(random.next()).unwrap() % (files.moments() - first + 1);
            let (left, found) = if round % 3 == 0 {
                check_crash(&files.after_kill(moment), moment, &history, Crash::Kill)
            } else {
                let bytes = files.after_power_failure(moment, &mut random);
                check_crash(&bytes, moment, &history, Crash::PowerFailure)
            };
            // And once more while that was being opened and written to.
            let again = usize::try_from(random.next()).unwrap() % (left.moments() + 1);
            let bytes = left.after_power_failure(again, &mut random);
            let (storage, _) = open(&Files::new(&bytes))
                .unwrap_or_else(|error| panic!("second failure at {moment}, {again}: {error}"));
            let mut rows = rows(&storage).unwrap();
            rows.remove(&b"more"[..]);
            assert!(rows == found, "second failure at {moment}, {again}");
        }
    });
}

#[test]
fn a_second_crash_during_recovery_keeps_acknowledged_batches() {
    let mut random = SplitMix(11);
    let (files, storage, history) = history(12, &mut random);
    drop(storage);
    for moment in history[0].at..=files.moments() {
        let (left, found) = check_crash(&files.after_kill(moment), moment, &history, Crash::Kill);
        for again in (0..=left.moments()).step_by(7) {
            let (storage, _) = open(&Files::new(&left.after_power_failure(again, &mut random)))
                .unwrap_or_else(|error| panic!("second failure at {moment}, {again}: {error}"));
            let mut rows = rows(&storage).unwrap();
            rows.remove(&b"more"[..]);
            assert!(rows == found, "second failure at {moment}, {again}");
        }
        check_crash(&files.after_power_failure(moment, &mut random), moment, &history, Crash::PowerFailure);
    }
}

#[test]
fn a_disk_that_fails_at_any_moment_loses_nothing_acknowledged() {
    let mut random = SplitMix(7);
    let mut in_log = 0;
    for healthy in (0..60).chain([90, 150, 200]) {
        let (files, storage, mut history) = history(5, &mut random);
        files.data.fail_after(healthy);
        let error = loop {
            let Acknowledged { ceiling, mut model, .. } = history.last().unwrap().clone();
            let mutations = batch(&mut model, &mut random);
            match apply(&storage, &mutations, Some(ceiling + 1)) {
                Ok(_) => history.push(Acknowledged::new(files.moments(), ceiling + 1, model)),
                Err(error) => {
                    // Unknown: it may be there.
                    history.push(Acknowledged::new(usize::MAX, ceiling + 1, model));
                    break error;
                }
            }
        };
        let text = error.to_string();
        assert!(text.contains("sim") && text.contains("free space"), "{text}");
        in_log += usize::from(text.contains("sim-log"));
        assert_eq!(error.code(), Code::IO_ERROR);
        let again = apply(&storage, &[set(b"a", b"b")], None).unwrap_err();
        assert_eq!(again.to_string(), text, "the cause stays the cause");
        assert_eq!(storage.checkpoint().unwrap_err().to_string(), text);
        drop(storage);
        check_crash(&files.bytes(), files.moments(), &history, Crash::Kill);
    }
    assert!((10..53).contains(&in_log), "the log failed in {in_log} of 63 rounds");
}

#[test]
fn unflushed_acknowledged_batches_are_flushed_when_the_data_file_fails() {
    for by_closing in [false, true] {
        let (files, storage) = create();
        apply(&storage, &[], Some(1)).unwrap();
        apply_as(&storage, &[set(b"k", b"v")], None, Durability::Asynchronous).unwrap();
        let _ = storage.latch().damaged("a page, says a test");
        if !by_closing {
            storage.flush_idle().unwrap_err();
        }
        let moment = files.moments();
        drop(storage);
        let moment = if by_closing { files.moments() } else { moment };
        for seed in 0..20 {
            let left = files.after_power_failure(moment, &mut SplitMix(seed));
            let (storage, _) = open(&Files::new(&left)).unwrap();
            assert_eq!(rows(&storage).unwrap().len(), 1, "seed {seed}, by closing: {by_closing}");
        }
    }
}

#[test]
fn opening_after_a_kill_needs_no_repair_walk() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Storage::create(&at("data")).unwrap();
    let (storage, _) = Storage::open(&at("data"), &at("log")).unwrap();
    let look = || {
        for name in ["data", "log"] {
            std::fs::copy(at(name), at("copied-").with_extension(name)).unwrap();
        }
        let (data, log) = (at("copied-").with_extension("data"), at("copied-").with_extension("log"));
        examine::contents(File::open(&data).unwrap(), &data, &log, &mut |_, _| {}).unwrap()
    };
    for round in 0..3 {
        // More than redb keeps in memory: some of it lies in the file before anything speaks of it.
        for n in 0..12_u8 {
            let values = (0..40_u8).map(|m| set(&[round, n, m], &[n; 90_000]));
            apply(&storage, &values.collect::<Vec<_>>(), None).unwrap();
        }
        apply(&storage, &[set(b"k", &[round])], None).unwrap();
        let left = look();
        assert!(!left.needs_repair && left.in_log > 0, "{left:?}");
        assert_eq!(left.rows, 1 + 480 * (u64::from(round) + 1));
        storage.checkpoint().unwrap();
        let settled = look();
        assert!(!settled.needs_repair && settled.in_log == 0, "{settled:?}");
        assert_eq!(settled.rows, left.rows);
    }
}

#[test]
fn a_kill_while_opening_needs_no_repair_walk_either() {
    let mut random = SplitMix(12);
    let mut opened = 0;
    for _ in 0..4 {
        let (files, storage, _) = history(20, &mut random);
        let killed = Files::new(&files.bytes());
        // It would write to its files as it goes.
        drop(storage);
        let (storage, _) = open(&killed).unwrap();
        for n in 0..4 {
            apply(&storage, &[set(b"k", &[n])], None).unwrap();
        }
        storage.checkpoint().unwrap();
        for moment in 0..=killed.moments() {
            let [data, _] = killed.after_kill(moment);
            let walks = Arc::new(AtomicBool::new(false));
            let pages = open_pages(Box::new(SimDisk::new(data)), &latch()).unwrap();
            let on_repair = Arc::clone(&walks);
            Tree::open(pages, latch(), move || on_repair.store(true, Ordering::Relaxed)).unwrap();
            assert!(!walks.load(Ordering::Relaxed), "killed at {moment} of {}", killed.moments());
            opened += 1;
        }
        drop(storage);
    }
    assert!(opened > 50, "{opened}");
}

#[test]
fn a_file_that_shrinks_survives_a_crash_at_any_moment() {
    let (files, storage) = create();
    let mut history = vec![Acknowledged::new(files.moments(), 0, Model::new())];
    let mut most = 0;
    for ceiling in 1..=12_i64 {
        let mut model = history.last().unwrap().model.clone();
        let clear = Mutation::ClearRange { begin: vec![], end: vec![0xff] };
        let mutations: Vec<_> = match ceiling {
            1..=4 => (0..60_u8).map(|n| set(&[n, u8::try_from(ceiling).unwrap()], &[n; 30_000])).collect(),
            5 => vec![clear],
            _ => vec![set(b"k", &ceiling.to_le_bytes())],
        };
        for mutation in &mutations {
            match mutation {
                Mutation::Set { key, value } => drop(model.insert(key.clone(), value.clone())),
                _ => model.clear(),
            }
        }
        apply(&storage, &mutations, Some(ceiling)).unwrap();
        if ceiling > 5 {
            storage.checkpoint().unwrap();
        }
        history.push(Acknowledged::new(files.moments(), ceiling, model));
        most = most.max(files.data.bytes().len());
    }
    let last = files.moments();
    drop(storage);
    assert!(files.data.bytes().len() < most, "it did not shrink");
    let mut random = SplitMix(5);
    // From the clear on.
    for moment in history[5].at..=last.max(files.moments()) {
        check_crash(&files.after_kill(moment), moment, &history, Crash::Kill);
        check_crash(&files.after_power_failure(moment, &mut random), moment, &history, Crash::PowerFailure);
    }
}
