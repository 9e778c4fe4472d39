//! Many versions, and reads at each of them as long as the window lasts, against copies of the data.

use std::collections::BTreeMap;
use std::path::Path;

use checked_pages::sim::SplitMix;

use super::*;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::engine::storage::{self, Durability, Storage};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut SplitMix) -> Vec<u8> {
    format!("{:02}", random.next() % 60).into_bytes()
}

fn mutation(model: &mut Model, random: &mut SplitMix) -> Mutation {
    let begin = key(random);
    if random.next().is_multiple_of(3) {
        let end = key(random);
        model.retain(|k, _| *k < begin || *k >= end);
        return Mutation::ClearRange { begin, end };
    }
    if random.next().is_multiple_of(3) {
        let sum = model.entry(begin.clone()).or_insert_with(|| vec![0; 8]);
        let old = u64::from_le_bytes(sum.as_slice().try_into().unwrap());
        *sum = old.wrapping_add(7).to_le_bytes().to_vec();
        return Mutation::Atomic { op: AtomicOp::Add, key: begin, operand: 7_u64.to_le_bytes().to_vec() };
    }
    let value = random.next().to_le_bytes().to_vec();
    model.insert(begin.clone(), value.clone());
    Mutation::Set { key: begin, value }
}

/// The rows of `view` in `[begin, end)`.
fn rows(view: &ReadView, begin: &[u8], end: &[u8], direction: Direction) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    let outcome = view.scan(begin, end, direction, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    outcome.map(|_| rows)
}

fn check(view: &ReadView, model: &Model, random: &mut SplitMix) {
    let (begin, end) =
        if random.next().is_multiple_of(2) { (key(random), key(random)) } else { (vec![], vec![255]) };
    let expected: Vec<_> = model
        .iter()
        .filter(|(k, _)| **k >= begin && **k < end)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    assert_eq!(rows(view, &begin, &end, Direction::Forward).unwrap(), expected);
    let mut backward = rows(view, &begin, &end, Direction::Backward).unwrap();
    backward.reverse();
    assert_eq!(backward, expected);
    let key = key(random);
    assert_eq!(view.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
}

fn storage(dir: &Path) -> Storage {
    Storage::create(&dir.join("data")).unwrap();
    Storage::open(&dir.join("data"), &dir.join("log")).unwrap().0
}

fn apply(storage: &Storage, version: i64, ceiling: Option<i64>, mutations: Vec<Mutation>) -> StorageUpdate {
    storage.apply(storage::WriteBatch { version, ceiling, mutations }, Durability::Flushed).unwrap()
}

/// The same, as if so much had been written to the file by then.
fn as_if_written(update: StorageUpdate, written: u64) -> StorageUpdate {
    let superversion = update.superversion.map(|newest| Arc::new(newest.as_if_written(written)));
    StorageUpdate { superversion, ..update }
}

fn run(seed: u64) {
    println!("seed {seed}");
    let mut random = SplitMix(seed);
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let mut now = baton::now();
    let clock = Clock::new(0, baton::system_now(), now);
    let mut views = ReadViews::new(clock, storage.superversion());
    let mut model = Model::new();
    // Every version that was ever given out, when, and what was there; and the views that are held.
    let mut given: Vec<(i64, Instant, Model)> = Vec::new();
    let mut held: Vec<(ReadView, Instant, Model)> = Vec::new();
    let mut written = 0;
    let (mut read, mut too_old) = (0, 0);
    for _ in 0..400 {
        now += Duration::from_micros(random.next() % 100_000);
        let (version, ceiling) = views.clock().begin_batch(now);
        let mutations: Vec<_> = (0..random.next() % 7).map(|_| mutation(&mut model, &mut random)).collect();
        let update = apply(&storage, version, ceiling, mutations);
        // Sometimes so much that snapshots that are held have to be let go.
        written += random.next() % (MAX_PINNED_BYTES / 20);
        drop(views.publish(version, ceiling, as_if_written(update, written)));
        match random.next() % 10 {
            0 => drop(views.install(as_if_written(storage.checkpoint().unwrap(), written))),
            1..=4 => drop(views.install(as_if_written(storage.flush_idle().unwrap(), written))),
            _ => {}
        }
        given.push((version, now, model.clone()));
        if random.next().is_multiple_of(2) {
            let view = views.read(now);
            given.push((view.version, now, model.clone()));
            held.push((view, now, model.clone()));
        }
        held.retain(|(_, since, _)| now - *since < READ_WINDOW);
        if let Some((view, _, model)) = held.get(random.next() as usize % held.len().max(1)) {
            check(view, model, &mut random);
        }
        let (version, since, model) = &given[random.next() as usize % given.len()];
        match views.at(*version, now) {
            Ok(view) => {
                check(&view, model, &mut random);
                read += 1;
            }
            Err(code) => {
                assert_eq!(code, Code::TRANSACTION_TOO_OLD);
                assert!(now - *since > READ_WINDOW, "{version} is not five seconds old");
                too_old += 1;
            }
        }
    }
    assert!(read > 20 && too_old > 20, "{read} read, {too_old} too old");
    assert_eq!(views.at(given[0].0 - 1, now).unwrap_err(), Code::TRANSACTION_TOO_OLD);
    let ahead = views.clock().version_at(now) + VERSION_WINDOW;
    assert_eq!(views.at(ahead, now).unwrap_err(), Code::FUTURE_VERSION);
}

#[test]
fn every_version_of_the_last_five_seconds_can_be_read() {
    for seed in 1..=5 {
        run(seed);
    }
}

#[test]
fn a_snapshot_held_for_long_is_released_and_its_view_still_reads() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let view = views.read(now);
    for round in 1..=3 {
        let (version, ceiling) = views.clock().begin_batch(now);
        let set = Mutation::Set { key: b"k".to_vec(), value: vec![round] };
        let update = apply(&storage, version, ceiling, vec![set]);
        drop(views.publish(version, ceiling, update));
        let written = u64::from(round) * MAX_PINNED_BYTES / 2;
        drop(views.install(as_if_written(storage.checkpoint().unwrap(), written)));
        let own = view.state.as_ref().unwrap();
        assert_eq!(own.snapshot().is_some(), round < 3, "round {round}");
        assert_eq!(view.get(b"k").unwrap(), None, "round {round}");
    }
}

#[test]
fn pinned_views_are_limited_and_read_until_the_files_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let mut now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let write = |views: &mut ReadViews, now, round: u8| {
        let (version, ceiling) = views.clock().begin_batch(now);
        let set = Mutation::Set { key: b"k".to_vec(), value: vec![round] };
        drop(views.publish(version, ceiling, apply(&storage, version, ceiling, vec![set])));
        drop(
            views.install(as_if_written(storage.checkpoint().unwrap(), u64::from(round) * MAX_PINNED_BYTES)),
        );
    };
    write(&mut views, now, 1);
    let mut pinned = vec![views.pin(now).unwrap()];
    for round in 2..=5 {
        now += READ_WINDOW;
        write(&mut views, now, round);
    }
    pinned.resize_with(MAX_PINNED_VIEWS, || views.pin(now).unwrap());
    assert_eq!(views.pin(now).unwrap_err(), Code::OPERATION_FAILED);
    for (view, round) in pinned.iter().zip([1, 5]) {
        assert_eq!(view.get(b"k").unwrap().as_deref(), Some(&[round][..]));
    }
    assert!(pinned[0].version < pinned[1].version);
    drop(pinned.pop());
    let again = views.pin(now).unwrap();
    views.close();
    for view in [&pinned[0], &again] {
        assert_eq!(view.get(b"k"), Err(Code::TRANSACTION_TOO_OLD));
    }
}

#[test]
fn a_pinned_view_is_lost_when_the_disk_needs_its_space_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let mut now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let mut written = 0_u64;
    // Time passes too, so that no undo log leads back to what was there.
    let mut write = |views: &mut ReadViews, now: &mut Instant, bytes: u64| {
        for _ in 0..2 {
            *now += 2 * READ_WINDOW;
            let (version, ceiling) = views.clock().begin_batch(*now);
            let set = Mutation::Set { key: b"k".to_vec(), value: written.to_le_bytes().to_vec() };
            // A slow machine may flush the memtable meanwhile.
            let update = as_if_written(apply(&storage, version, ceiling, vec![set]), written);
            drop(views.publish(version, ceiling, update));
            written += bytes / 2;
            drop(views.install(as_if_written(storage.checkpoint().unwrap(), written)));
        }
    };
    let low = PinLimits { pinned_view: MAX_PINNED_BYTES, ..PinLimits::default() };
    let stalled = views.pin(now).unwrap();
    write(&mut views, &mut now, 10 * MAX_PINNED_BYTES);
    assert_eq!(stalled.get(b"k"), Ok(None), "there is space");
    // The disk becomes short, and a backup begins after that.
    views.limit_pinned_space(low);
    assert_eq!(stalled.get(b"k"), Err(Code::TRANSACTION_TOO_OLD));
    let fresh = views.pin(now).unwrap();
    write(&mut views, &mut now, MAX_PINNED_BYTES / 2);
    assert!(fresh.get(b"k").is_ok(), "it costs little yet");
    write(&mut views, &mut now, MAX_PINNED_BYTES);
    assert_eq!(fresh.get(b"k"), Err(Code::TRANSACTION_TOO_OLD));
    // Space for as many backups as before.
    let pinned: Vec<_> = (0..MAX_PINNED_VIEWS).map(|_| views.pin(now).unwrap()).collect();
    assert!(pinned.iter().all(|view| view.get(b"k").is_ok()));
}

#[test]
fn a_view_of_an_old_version_keeps_no_forgotten_history() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let first = views.read(now).version;
    let publish = |views: &mut ReadViews, is_too_much: bool| {
        let (version, ceiling) = views.clock().begin_batch(now);
        let set = Mutation::Set { key: b"k".to_vec(), value: vec![1] };
        drop(views.publish(version, ceiling, apply(&storage, version, ceiling, vec![set])));
        let mut update = storage.checkpoint().unwrap();
        for group in update.flushed.iter_mut().filter(|_| is_too_much) {
            group.undo = None;
        }
        drop(views.install(update));
        version
    };
    let second = publish(&mut views, false);
    let (old, newest) = (views.at(first, now).unwrap(), views.at(second, now).unwrap());
    assert_eq!(old.get(b"k").unwrap(), None);
    publish(&mut views, true);
    assert_eq!(old.get(b"k"), Err(Code::TRANSACTION_TOO_OLD));
    assert!(newest.get(b"k").unwrap().is_some(), "it has a snapshot of its own");
    let last = publish(&mut views, false);
    assert!(views.at(last - 1, now).is_ok());
    drop(views.trim_expired(now + READ_WINDOW + READ_WINDOW / 10));
    assert_eq!(views.at(last - 1, now).unwrap_err(), Code::TRANSACTION_TOO_OLD);
    assert!(views.at(last, now).is_ok());
}

#[test]
fn an_open_transaction_keeps_no_memory_of_a_state_that_it_cannot_read_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let write = |views: &mut ReadViews| {
        let (version, ceiling) = views.clock().begin_batch(now);
        let set = Mutation::Set { key: b"k".to_vec(), value: vec![1] };
        drop(views.publish(version, ceiling, apply(&storage, version, ceiling, vec![set])));
        (views.read(now), Arc::downgrade(&storage.superversion().active_memtable()))
    };
    // No transaction commits after these, so nothing but the engine's idle work looks at them.
    let idle = [write(&mut views), write(&mut views)];
    drop(views.install(storage.checkpoint().unwrap()));
    assert!(idle.iter().all(|(_, memtable)| memtable.upgrade().is_some()), "a version of it can be read");
    drop(views.trim_expired(now + READ_WINDOW + READ_WINDOW / 10));
    assert!(idle.iter().all(|(_, memtable)| memtable.upgrade().is_none()), "after five seconds");
    // And so much written that the state is released before.
    let (view, memtable) = write(&mut views);
    let mut update = storage.checkpoint().unwrap();
    update.flushed.iter_mut().for_each(|group| group.undo = None);
    drop(views.install(as_if_written(update, 2 * MAX_PINNED_BYTES)));
    assert!(memtable.upgrade().is_none());
    assert_eq!(view.get(b"k").unwrap().as_deref(), Some(&[1][..]), "it is the newest version");
}

#[test]
fn memory_that_nothing_reads_any_more_is_handed_out_and_not_freed_under_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let mut now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let write = |views: &mut ReadViews, now| {
        let memtable = Arc::downgrade(&storage.superversion().active_memtable());
        let (version, ceiling) = views.clock().begin_batch(now);
        let set = Mutation::Set { key: b"k".to_vec(), value: vec![1] };
        let mut retired = views.publish(version, ceiling, apply(&storage, version, ceiling, vec![set]));
        retired.extend(views.install(storage.checkpoint().unwrap()));
        (memtable, retired)
    };
    // The first goes to redb at once.
    drop(write(&mut views, now));
    let (memtable, retired) = write(&mut views, now);
    assert!(retired.is_empty());
    now += 2 * READ_WINDOW;
    let (_, retired) = write(&mut views, now);
    assert!(!retired.is_empty() && memtable.upgrade().is_some());
    drop(retired);
    assert!(memtable.upgrade().is_none());
    let (memtable, _) = write(&mut views, now);
    let retired = views.trim_expired(now + 2 * READ_WINDOW);
    assert!(memtable.upgrade().is_some());
    drop(retired);
    assert!(memtable.upgrade().is_none());
}

#[test]
fn a_read_that_fails_after_the_directory_was_closed_is_too_old_and_not_damage() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(dir.path());
    let now = baton::now();
    let mut views = ReadViews::new(Clock::new(0, baton::system_now(), now), storage.superversion());
    let view = views.read(now);
    let damaged = || StorageError::Foreign;
    assert_eq!(view.read(|_| Err::<(), _>(damaged())), Err(damaged().code()));
    let outcome = view.read(|_| {
        views.close();
        Err::<(), _>(damaged())
    });
    assert_eq!(outcome, Err(Code::TRANSACTION_TOO_OLD));
}
