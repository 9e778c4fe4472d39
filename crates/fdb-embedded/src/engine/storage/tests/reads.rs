//! Reads while a batch is applied.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::engine::memtable::Memtable;

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
