//! Properties of redb that storage relies on and redb's documentation does not promise, tested against redb itself. `Cargo.toml` pins the
//! version: a newer one has to pass these tests, and the pages `docs/decisions/0006`, `0011` and `0015` say what rests on each.

use checked_pages::{HEADER, PAGE};
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

use super::*;

const ROWS: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("rows");

/// The operations of redb on its file.
#[derive(Debug, Clone, PartialEq)]
enum Did {
    Header(usize),
    Pages { offset: u64, len: usize },
    Resized,
    Flushed,
}

/// A plain file in memory that notes what is done to it; clones are the same file.
#[derive(Debug, Clone, Default)]
struct Watched(Arc<Mutex<(Vec<u8>, Vec<Did>)>>);

impl Watched {
    fn holding(bytes: Vec<u8>) -> Watched {
        Watched(Arc::new(Mutex::new((bytes, Vec::new()))))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().0.clone()
    }

    /// The operations since the last call.
    fn did(&self) -> Vec<Did> {
        std::mem::take(&mut self.0.lock().1)
    }

    fn open(&self) -> Database {
        // As little memory as possible, so that pages go to the file before their commit is durable.
        Database::builder().set_cache_size(64 << 10).create_with_backend(self.clone()).unwrap()
    }
}

impl StorageBackend for Watched {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().0.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let is_header = at == 0 && out.len() <= HEADER;
        assert!(
            is_header || at > 0 && offset.is_multiple_of(PAGE) && (out.len() as u64).is_multiple_of(PAGE)
        );
        out.copy_from_slice(&self.0.lock().0[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        let (bytes, did) = &mut *self.0.lock();
        bytes.resize(usize::try_from(len).unwrap(), 0);
        did.push(Did::Resized);
        Ok(())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.lock().1.push(Did::Flushed);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let (bytes, did) = &mut *self.0.lock();
        bytes[at..at + data.len()].copy_from_slice(data);
        did.push(if at == 0 { Did::Header(data.len()) } else { Did::Pages { offset, len: data.len() } });
        Ok(())
    }
}

type Stored = BTreeMap<u64, Vec<u8>>;

/// Commits some rows, and notes them in `model`.
fn commit(
    db: &Database,
    model: &mut Stored,
    random: &mut SplitMix,
    how: impl FnOnce(&mut redb::WriteTransaction),
) {
    let mut write = db.begin_write().unwrap();
    how(&mut write);
    {
        let mut rows = write.open_table(ROWS).unwrap();
        for _ in 0..40 {
            let (key, value) = (random.next() % 300, random.next().to_le_bytes().repeat(60));
            if random.next().is_multiple_of(4) {
                rows.remove(key).unwrap();
                model.remove(&key);
            } else {
                rows.insert(key, value.as_slice()).unwrap();
                model.insert(key, value);
            }
        }
    }
    write.commit().unwrap();
}

fn in_memory(write: &mut redb::WriteTransaction) {
    write.set_durability(redb::Durability::None).unwrap();
}

fn quick_repair(write: &mut redb::WriteTransaction) {
    write.set_quick_repair(true);
}

fn one_phase(_write: &mut redb::WriteTransaction) {}

fn stored(bytes: Vec<u8>) -> Stored {
    let db = Watched::holding(bytes).open();
    let rows = db.begin_read().unwrap().open_table(ROWS).unwrap();
    rows.iter().unwrap().map(|row| row.map(|(k, v)| (k.value(), v.value().to_vec())).unwrap()).collect()
}

#[test]
fn redb_writes_whole_pages_and_a_header_that_fits_its_sector() {
    let (file, mut model, mut random) = (Watched::default(), Stored::new(), SplitMix(1));
    let db = file.open();
    for round in 0..30 {
        commit(&db, &mut model, &mut random, if round % 5 == 4 { quick_repair } else { in_memory });
    }
    drop(db);
    let (mut headers, mut pages) = (0, 0);
    for did in file.did() {
        match did {
            Did::Header(len) => {
                assert!(len <= HEADER, "{len} bytes");
                headers += 1;
            }
            Did::Pages { offset, len } => {
                assert!(
                    offset.is_multiple_of(PAGE) && (len as u64).is_multiple_of(PAGE),
                    "{len} at {offset}"
                );
                pages += 1;
            }
            Did::Resized | Did::Flushed => {}
        }
    }
    assert!(headers > 10 && pages > 100, "{headers} headers, {pages} pages");
}

#[test]
fn a_redb_commit_in_memory_touches_no_header_and_flushes_nothing() {
    let (file, mut model, mut random) = (Watched::default(), Stored::new(), SplitMix(2));
    let db = file.open();
    commit(&db, &mut model, &mut random, quick_repair);
    file.did();
    let mut pages = 0;
    for _ in 0..50 {
        commit(&db, &mut model, &mut random, in_memory);
        for did in file.did() {
            match did {
                Did::Pages { .. } => pages += 1,
                Did::Resized => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(pages > 0, "some went to the file early, or this shows nothing");
}

#[test]
fn quick_repair_adds_a_flush_between_the_headers_of_a_redb_commit() {
    let (file, mut model, mut random) = (Watched::default(), Stored::new(), SplitMix(3));
    let db = file.open();
    for round in 0..20 {
        commit(&db, &mut model, &mut random, in_memory);
        file.did();
        let is_quick = round % 2 == 0;
        commit(&db, &mut model, &mut random, if is_quick { quick_repair } else { one_phase });
        let did = file.did();
        assert_eq!(did.last(), Some(&Did::Flushed));
        // Without pages: headers and flushes in their order.
        let order: Vec<bool> = did
            .iter()
            .filter_map(|did| match did {
                Did::Header(_) => Some(false),
                Did::Flushed => Some(true),
                _ => None,
            })
            .collect();
        let flushes = order.iter().filter(|is_flush| **is_flush).count();
        assert_eq!(flushes, if is_quick { 2 } else { 1 }, "{order:?}");
        let first_header = did.iter().position(|did| matches!(did, Did::Header(_))).unwrap();
        let last_page = did.iter().rposition(|did| matches!(did, Did::Pages { .. })).unwrap();
        assert!(last_page < did.iter().position(|did| *did == Did::Flushed).unwrap(), "pages come first");
        assert!(first_header < did.len());
    }
}

#[test]
fn a_crash_returns_redb_to_its_last_durable_commit() {
    let (file, mut model, mut random) = (Watched::default(), Stored::new(), SplitMix(4));
    let db = file.open();
    for round in 0..12 {
        commit(&db, &mut model, &mut random, if round % 2 == 0 { quick_repair } else { one_phase });
        let durable = model.clone();
        for _ in 0..8 {
            commit(&db, &mut model, &mut random, in_memory);
            // No page that the durable commit uses is written over.
            assert!(stored(file.bytes()) == durable, "round {round}");
        }
    }
}

#[test]
fn closing_redb_makes_commits_in_memory_durable() {
    let (file, mut model, mut random) = (Watched::default(), Stored::new(), SplitMix(5));
    let db = file.open();
    commit(&db, &mut model, &mut random, quick_repair);
    let durable = model.clone();
    commit(&db, &mut model, &mut random, in_memory);
    assert!(stored(file.bytes()) == durable);
    drop(db);
    assert!(stored(file.bytes()) == model);
}
