//! The log: damaged, exchanged for another, and failing alone.

use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn a_flipped_log_bit_is_never_read_and_drops_no_followed_batch() {
    let mut random = SplitMix(21);
    let (files, storage) = create();
    apply(&storage, &[], Some(1)).unwrap();
    let mut history = vec![Model::new()];
    let mut ends = vec![0];
    while files.log.bytes().len() < 40 << 10 || ends.len() < 12 {
        let mut model = history.last().unwrap().clone();
        let key = random.next().to_le_bytes();
        model.insert(key.to_vec(), vec![7; 300]);
        apply(&storage, &[set(&key, &[7; 300])], None).unwrap();
        let end = storage.write_path.lock().log_end();
        if end <= *ends.last().unwrap() {
            // It was restarted.
            (history, ends) = (vec![], vec![0]);
        } else {
            ends.push(end);
        }
        history.push(model);
    }
    let [.., before, newest] = &history[..] else { unreachable!("12 batches") };
    let bytes = files.bytes();
    let [.., last, end] = ends[..] else { unreachable!("12 batches") };
    let (mut found, mut dropped) = (0, 0);
    for at in (0..usize::try_from(end).unwrap() + 600).step_by(5) {
        let mut damaged = bytes.clone();
        damaged[1][at] ^= 1 << (random.next() % 8);
        let is_last = at as u64 >= last;
        let right: &[&Model] = if is_last { &[before, newest] } else { &[newest] };
        let is_found = check_damage(&damaged, right, &format!("byte {at} of the log"));
        found += usize::from(is_found);
        dropped += usize::from(is_last && is_found);
    }
    assert!(found > 11 * 300 / 5 && dropped == 0, "{found} found, {dropped} of the last batch");
    for len in (0..bytes[1].len()).step_by(700) {
        let damaged = [bytes[0].clone(), bytes[1][..len].to_vec()];
        assert!(check_damage(&damaged, &[], "cut off"), "{len} bytes of the log");
    }
}

#[test]
fn a_log_and_data_file_of_different_databases_are_refused() {
    let (files, storage, history) = history(30, &mut SplitMix(4));
    let [data, log] = files.bytes();
    // Another one's log, in which something is.
    let (others, other_storage) = create();
    apply(&other_storage, &[], Some(1)).unwrap();
    apply(&other_storage, &[set(b"k", b"v")], None).unwrap();
    assert!(check_damage(&[data, others.log.bytes()], &[], "another's log"));
    // An older copy of the file alone.
    let older = files.data.after_kill(history[3].at);
    assert!(check_damage(&[older, log.clone()], &[], "an older copy"));
    drop(storage);
    // A newer one needs no log.
    assert!(!check_damage(&[files.data.bytes(), log], &[&history.last().unwrap().model], "a newer copy"));
}

/// A log that grows no further than `most`, and of which the flushes after the first `flushes` fail.
#[derive(Debug)]
struct Failing {
    file: SimDisk,
    most: u64,
    flushes: AtomicUsize,
}

impl Disk for Failing {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        if len > self.most { Err(ErrorKind::StorageFull.into()) } else { self.file.set_len(len) }
    }

    fn sync_data(&self) -> std::io::Result<()> {
        let left =
            self.flushes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| std::io::Error::other("a test says so"))?;
        self.file.sync_data()
    }
}

fn with_failing_log(most: u64, flushes: usize) -> (Files, Storage) {
    let files = created();
    let latch = latch();
    let pages = open_pages(Box::new(files.data.clone()), &latch).unwrap();
    let log = Failing { file: files.log.clone(), most, flushes: AtomicUsize::new(flushes) };
    let of_log = Arc::new(latch.for_file(Path::new("sim-log")));
    let (storage, _) =
        Storage::open_with(pages, latch, &of_log, SHORT, Box::new(SimEnv::new()), |_| Ok(Box::new(log)))
            .unwrap();
    (files, storage)
}

#[test]
fn a_log_that_cannot_grow_is_used_at_its_size() {
    let (files, storage) = with_failing_log(SHORT.first, usize::MAX);
    for n in 0..200_u8 {
        apply(&storage, &[set(&[n], &[n; 700])], None).unwrap();
    }
    assert_eq!(files.log.bytes().len() as u64, SHORT.first);
    let left = files.bytes();
    drop(storage);
    for bytes in [left, files.bytes()] {
        assert_eq!(rows(&open(&Files::new(&bytes)).unwrap().0).unwrap().len(), 200);
    }
}

#[test]
fn a_failing_log_ends_commits_and_applies_no_batch_twice() {
    let add = || Mutation::Atomic { op: AtomicOp::Add, key: b"n".to_vec(), operand: vec![1, 0] };
    for flushes in 0..70 {
        let (files, storage) = with_failing_log(SHORT.most, flushes);
        let mut acknowledged = 0;
        let error = loop {
            match apply(&storage, &[add(), set(b"k", &[7; 600])], None) {
                Ok(_) => acknowledged += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("sim-log") && error.contains("a test says so"), "{error}");
        assert_eq!(apply(&storage, &[add()], None).unwrap_err().to_string(), error);
        let left = files.bytes();
        // redb makes durable what it has in memory as it closes, also what was never acknowledged.
        drop(storage);
        for bytes in [left, files.bytes()] {
            let found = rows(&open(&Files::new(&bytes)).unwrap().0).unwrap();
            let count = found.get(&b"n"[..]).map_or(0, |n| u16::from_le_bytes([n[0], n[1]]));
            assert!([acknowledged, acknowledged + 1].contains(&count), "{count} of {acknowledged}");
        }
    }
}

#[test]
fn batches_made_durable_by_redb_are_not_applied_twice() {
    let add = || Mutation::Atomic { op: AtomicOp::Add, key: b"n".to_vec(), operand: vec![1] };
    let (files, storage) = create();
    // The first batch goes to redb's file, and the log begins after it.
    apply(&storage, &[add()], Some(1)).unwrap();
    for _ in 0..2 {
        apply(&storage, &[add()], None).unwrap();
        // The flusher gives the batch to redb, which keeps it in memory.
        storage.flush_idle().unwrap();
    }
    // The log alone has the last batch.
    apply(&storage, &[add()], None).unwrap();
    let log = files.log.bytes();
    storage.stop_writes();
    drop(storage);
    assert_eq!(files.log.bytes(), log, "the log was left as it is");
    let tree = Tree::open(Pages::open(Box::new(files.data.clone()), latch()).unwrap(), latch(), || ());
    let meta = tree.unwrap().meta().unwrap();
    let generation = meta.anchor.expect("the log is in use").checkpoint_lsn;
    assert_eq!((generation, meta.batch), (1, 3), "redb's close made durable what it had in memory");
    let found = rows(&open(&files).unwrap().0).unwrap();
    assert_eq!(found, Model::from([(b"n".to_vec(), vec![4])]));
}

/// A disk that remembers its longest write.
#[derive(Debug)]
struct Measured {
    file: SimDisk,
    longest: Arc<AtomicUsize>,
}

impl Disk for Measured {
    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.longest.fetch_max(data.len(), Ordering::Relaxed);
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
fn a_log_is_filled_in_small_pieces() {
    let longest = Arc::new(AtomicUsize::new(0));
    let disk = Measured { file: SimDisk::default(), longest: Arc::clone(&longest) };
    let mut log = Log::new(Box::new(disk), latch(), 0, LOG_BOUNDS, 1).unwrap();
    log.prepare_checkpoint(1).unwrap();
    assert_eq!(log.len(), LOG_BOUNDS.first);
    assert!(longest.load(Ordering::Relaxed) <= 16 << 10, "{longest:?}");
}
