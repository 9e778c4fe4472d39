//! Reads while a batch is applied.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::engine::storage::memtable::Memtable;
use crate::engine::storage::undo_log::{FlushedMemtable, UndoBuilder, UndoLog, UndoSegment};
use crate::engine::storage::versioned_reader::VISITED;

/// A disk that asks before each read whether others could read the newest memtable, once it knows that memtable.
#[derive(Debug)]
struct Asking {
    file: SimDisk,
    memtable: Arc<Mutex<Option<Arc<Memtable>>>>,
    reads: Arc<AtomicUsize>,
}

impl Disk for Asking {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        if let Some(memtable) = &*self.memtable.lock() {
            assert!(memtable.is_readable(), "a read of the newest state would wait for the disk");
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}

#[test]
fn reads_of_the_newest_state_do_not_wait_while_a_batch_reads_from_the_disk() {
    let (files, storage) = create();
    for n in 0..100_u8 {
        apply(&storage, &[set(&[n], &[n; 3_000])], None).unwrap();
    }
    drop(storage);
    let (latch, memtable, reads) = (latch(), Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
    let disk =
        Asking { file: files.data.clone(), memtable: Arc::clone(&memtable), reads: Arc::clone(&reads) };
    let pages = open_pages(Box::new(disk), &latch).unwrap();
    let of_log = Arc::new(latch.for_file(Path::new("sim-log")));
    let (storage, _) = Storage::open_with(pages, latch, &of_log, SHORT, Box::new(SimEnv::new()), |_| {
        Ok(Box::new(files.log.clone()))
    })
    .unwrap();
    // The first goes to redb's file.
    apply(&storage, &[], None).unwrap();
    for n in 0..100_u8 {
        *memtable.lock() = Some(storage.superversion().active_memtable());
        let add = Mutation::Atomic { op: AtomicOp::Add, key: vec![n], operand: vec![1] };
        apply(&storage, &[set(b"k", b"v"), add], None).unwrap();
        *memtable.lock() = None;
    }
    assert!(reads.load(Ordering::Relaxed) > 10, "too few went to the disk for this to be a test");
}

#[test]
fn a_batch_reads_the_rows_that_it_clears_once() {
    let (_files, storage) = create();
    let rows: Vec<_> = (0..100_u8).map(|n| set(&[b'r', n], b"v")).collect();
    apply(&storage, &rows, None).unwrap();
    storage.checkpoint().unwrap();
    let clear = |from: u8, to: u8| Mutation::ClearRange { begin: vec![b'r', from], end: vec![b'r', to] };
    // The next batches go through the memtable, and the third clears what the second has removed and set.
    for (batch, most) in [
        (vec![clear(0, 20)], 20),
        (vec![clear(20, 40), set(b"r\x1e", b"again")], 20),
        (vec![clear(20, 45)], 25),
        // Too many for the memtable: redb clears them, and visits them itself.
        (vec![clear(0, 200)], 100),
    ] {
        VISITED.set(0);
        apply(&storage, &batch, None).unwrap();
        assert!(VISITED.get() <= most, "{batch:?}: {} rows", VISITED.get());
    }
    assert!(self::rows(&storage).unwrap().is_empty());
}

#[test]
fn memory_that_nothing_reads_any_more_is_freed_by_the_flusher() {
    let dir = tempfile::tempdir().unwrap();
    let (file, log) = (dir.path().join("data"), dir.path().join("log"));
    Storage::create(&file).unwrap();
    let (storage, _) = Storage::open(&file, &log).unwrap();
    apply(&storage, &[], None).unwrap();
    let memtable = Arc::new(Memtable::default());
    memtable.writer(1).put(b"k"[..].into(), None);
    let freed = Arc::downgrade(&memtable);
    let group = FlushedMemtable { memtable, undo: UndoSegment::new(UndoBuilder::default()), last: 1 };
    storage.retire(UndoLog::new(0).push(group, 2));
    apply(&storage, &[set(b"k", b"v")], None).unwrap();
    assert!(freed.upgrade().is_some());
    // Starts one job after the other: the flusher has freed what came with the first when it ends the second.
    for n in 0..2 {
        storage.flush_idle().unwrap();
        apply(&storage, &[set(b"k", &[n])], None).unwrap();
    }
    storage.checkpoint().unwrap();
    assert!(freed.upgrade().is_none());
}
