//! Free space inside the data file: it counts as space of a full disk, and is never overestimated.

use super::super::write_path::{DiskSpace, FreeSpace};
use super::*;

const VALUE: usize = 1_000;

fn key(n: u32) -> Vec<u8> {
    format!("row/{n:08}").into_bytes()
}

fn clear(from: u32, to: u32) -> Mutation {
    Mutation::ClearRange { begin: key(from), end: key(to) }
}

/// A directory of these files.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        Storage::create(&place.data()).unwrap();
        place
    }

    fn data(&self) -> std::path::PathBuf {
        self.0.path().join("data")
    }

    fn open(&self) -> Storage {
        Storage::open(&self.data(), &self.0.path().join("log")).unwrap().0
    }

    /// Many rows come, and most of them go again.
    fn drained(&self, rows: u32) -> Storage {
        let storage = self.open();
        for first in (0..rows).step_by(1_000) {
            let values: Vec<_> = (first..first + 1_000).map(|n| set(&key(n), &[7; VALUE])).collect();
            apply(&storage, &values, None).unwrap();
        }
        storage.checkpoint().unwrap();
        apply(&storage, &[clear(0, rows / 20 * 19)], None).unwrap();
        // Two more: redb reuses pages that an earlier checkpoint freed.
        for n in 0..2 {
            storage.checkpoint().unwrap();
            apply(&storage, &[set(b"k", &[n])], None).unwrap();
        }
        storage.checkpoint().unwrap();
        storage
    }

    /// Bytes of the closed file that redb could reuse, by its own count.
    fn truly_free(&self) -> u64 {
        let disk = File::options().read(true).write(true).open(self.data()).unwrap();
        let pages = open_pages(Box::new(disk), &latch()).unwrap();
        let tree = Tree::open(pages, latch(), || ()).unwrap();
        let write = tree.db.begin_write().unwrap();
        let used = write.stats().unwrap().allocated_pages() * 4_096;
        drop(write);
        std::fs::metadata(self.data()).unwrap().len() - used
    }

    /// Makes the file one of an earlier version, which did not count its rows' bytes.
    fn forget_live_bytes(&self) {
        let disk = File::options().read(true).write(true).open(self.data()).unwrap();
        let pages = open_pages(Box::new(disk), &latch()).unwrap();
        Tree::open(pages, latch(), || ()).unwrap().forget_live_bytes();
    }
}

fn measured(bytes: u64) -> FreeSpace {
    FreeSpace { bytes, is_new: true }
}

/// The space on a disk of which other programs have taken the rest.
fn on_a_full_disk(storage: &Storage) -> DiskSpace {
    let space = storage.reserve_space(100_000, measured(0), true);
    assert!(space.is_short);
    space
}

#[test]
fn a_mostly_free_file_takes_pushes_on_a_full_disk_and_does_so_after_reopening() {
    let place = Place::new();
    let storage = place.drained(20_000);
    let takes_a_push = |storage: &Storage| {
        let space = on_a_full_disk(storage);
        assert!(space.reusable > 5 << 20, "{space:?}");
        assert!(space.available >= space.reserve + Storage::space_cost(100_000), "{space:?}");
    };
    takes_a_push(&storage);
    // The file grows a little, which says nothing about the rest of it.
    apply(&storage, &(0..50).map(|n| set(&[b'n', n], &[1; 9_000])).collect::<Vec<_>>(), None).unwrap();
    storage.checkpoint().unwrap();
    takes_a_push(&storage);
    drop(storage);
    takes_a_push(&place.open());
    // A process that is killed leaves some batches to the log.
    let storage = place.open();
    apply(&storage, &[set(b"k", b"last")], None).unwrap();
    let killed = Place(tempfile::tempdir().unwrap());
    for file in ["data", "log"] {
        std::fs::copy(place.0.path().join(file), killed.0.path().join(file)).unwrap();
    }
    takes_a_push(&killed.open());
}

#[test]
fn growth_of_the_files_since_the_disk_was_measured_is_not_free() {
    let place = Place::new();
    let storage = place.open();
    let free = 400 << 20;
    let before = storage.reserve_space(0, measured(free), true).unused;
    let mut written = 0;
    for n in 0..30_u8 {
        let values: Vec<_> = (0..20).map(|m| set(&[n, m], &[1; 90_000])).collect();
        written += 20 * 90_000;
        apply(&storage, &values, None).unwrap();
        storage.checkpoint().unwrap();
    }
    let stale = storage.reserve_space(0, FreeSpace { bytes: free, is_new: false }, false).unused;
    assert!(stale <= before - written, "{before} before, {stale} after {written} bytes were written");
    let again = storage.reserve_space(0, measured(free - written), true).unused;
    assert!(again > stale - (16 << 20), "a measurement counts them once: {again}, {stale}");
}

#[test]
fn bytes_of_a_file_of_an_earlier_version_are_counted_when_space_is_short() {
    let place = Place::new();
    drop(place.drained(5_000));
    let before = on_a_full_disk(&place.open()).reusable;
    place.forget_live_bytes();
    let storage = place.open();
    assert_eq!(
        storage.reserve_space(1, measured(u64::MAX / 2), true).reusable,
        0,
        "it is not counted without need"
    );
    assert_eq!(on_a_full_disk(&storage).reusable, before);
    apply(&storage, &[set(b"k", b"last")], None).unwrap();
    drop(storage);
    assert!(place.open().reserve_space(1, measured(u64::MAX / 2), true).reusable > 0, "it is counted once");
}

#[test]
fn reusable_space_is_never_more_than_redb_has_free() {
    seeds(|seed| {
        // On a real disk: a checkpoint after each batch would take minutes.
        let _as_in_production = Bounds::default().enter();
        let mut random = SplitMix(seed);
        for _ in 0..6 {
            let place = Place::new();
            let storage = place.open();
            let len = [0, 10, 200, 1_500, 3_000, 40_000][(random.next() % 6) as usize];
            let rows = if len > 10_000 { 200 } else { 4_000 };
            let is_ordered = random.next().is_multiple_of(2);
            let mut model = BTreeSet::new();
            for _ in 0..rows / 100 {
                let batch: Vec<_> = (0..100)
                    .map(|_| {
                        let n = if is_ordered { model.len() as u64 } else { random.next() % 100_000 };
                        let key = key(u32::try_from(n).unwrap());
                        model.insert(key.clone());
                        set(&key, &vec![1; len])
                    })
                    .collect();
                apply(&storage, &batch, None).unwrap();
            }
            // Most rows go, here and there.
            let keep = 1 + random.next() % 10;
            for key in model.iter().filter(|_| !random.next().is_multiple_of(keep)) {
                let end = [key.as_slice(), &[0]].concat();
                apply(&storage, &[Mutation::ClearRange { begin: key.clone(), end }], None).unwrap();
            }
            for n in 0..3 {
                apply(&storage, &[set(b"k", &[n])], None).unwrap();
                storage.checkpoint().unwrap();
            }
            let said = on_a_full_disk(&storage).reusable;
            // Closing the file may shrink it, so a copy is measured.
            let copy = Place(tempfile::tempdir().unwrap());
            std::fs::copy(place.data(), copy.data()).unwrap();
            let free = copy.truly_free();
            assert!(said <= free, "{said} said, {free} free, rows of {len}, one in {keep} kept");
        }
    });
}
