//! Looking at a whole file without changing it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::disk::Disk;
use super::layout::{PAGE, logical_len, place, runs};
use super::overlay::Overlay;
use super::pages::Pages;
use super::sums::{Sums, UNWRITTEN, sum};
use super::superblock::{PageBytes, Superblock, Unusable};
use super::tree::{Commit, Known, Tree, Writes};
use super::{Health, StorageError, explain};

/// Pages that are named one by one when they do not match.
const NAMED: usize = 10;

/// What every page's checksum says.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Pages that match.
    pub right: u64,
    /// Pages that were never written.
    pub unwritten: u64,
    /// Pages that do not match.
    pub wrong: u64,
    /// The first of them: number, and offset in the file.
    pub first_wrong: Vec<(u64, u64)>,
}

/// What redb says of the file, and of the log beside it.
#[derive(Debug)]
pub struct Contents {
    /// Batches in the log that the next opening adds to the file. They are counted in what follows.
    pub in_log: u64,
    /// redb has to walk through it before it can be used.
    pub needs_repair: bool,
    /// No version above this one has been handed out.
    pub ceiling: i64,
    /// Rows, all of which could be read.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub row_bytes: u64,
    /// Pages in use, of 4 KiB.
    pub used_pages: u64,
}

/// Reads the first page, and says which format it has. While another process writes to it as well, one that is just being written is read again.
pub fn check_first_page(file: &File, path: &Path) -> std::io::Result<Result<u32, StorageError>> {
    let damaged = |what: &str| {
        let health = Health::new(path);
        super::pages::failed(&health, &health.damaged(what))
    };
    let mut more = 0..2;
    loop {
        let mut page: PageBytes = [0; PAGE as usize];
        if Disk::len(file)? < PAGE {
            return Ok(Err(damaged("it is shorter than its first page")));
        }
        file.read_at(0, &mut page)?;
        let error = match Superblock::parse(&page) {
            Ok(superblock) => return Ok(Ok(superblock.format())),
            Err(Unusable::Foreign) => StorageError::Foreign,
            Err(Unusable::Format(found)) => StorageError::Format { found },
            Err(Unusable::Damaged(what)) => damaged(&format!("first page: {what}")),
        };
        if more.next().is_none() {
            return Ok(Err(error));
        }
    }
}

/// Compares every page with its checksum.
pub fn sweep(file: &File) -> std::io::Result<Sweep> {
    let mut sweep = Sweep::default();
    let Some(len) = logical_len(Disk::len(file)?) else { return Ok(sweep) };
    let sums = Sums::default();
    let mut buffer = Vec::new();
    for run in runs(1..len / PAGE) {
        buffer.resize(usize::try_from((run.end - run.start) * PAGE).expect("a group is 2 MiB"), 0);
        file.read_at(place(run.start), &mut buffer)?;
        sums.with(file, run.clone(), |sums| {
            for ((page, bytes), expected) in run.zip(buffer.chunks_exact(PAGE as usize)).zip(sums) {
                if *expected == UNWRITTEN {
                    sweep.unwritten += 1;
                } else if *expected == sum(page, bytes) {
                    sweep.right += 1;
                } else {
                    sweep.wrong += 1;
                    if sweep.first_wrong.len() < NAMED {
                        sweep.first_wrong.push((page, place(page)));
                    }
                }
            }
        })?;
    }
    Ok(sweep)
}

/// Opens the file as the engine would, adds what is in the log, walks everything that is in use, and reads every row, which `visit` is
/// shown.
pub fn contents(
    file: File,
    path: &Path,
    log: &Path,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Contents, StorageError> {
    let health = Arc::new(Health::new(path));
    let overlay = Overlay::new(file).map_err(|source| super::refused(&health, "read", &source))?;
    let pages = Pages::open(Box::new(overlay), Arc::clone(&health))?;
    let repaired = Arc::new(AtomicBool::new(false));
    let noticed = Arc::clone(&repaired);
    let mut tree = Tree::open(pages, Arc::clone(&health), move || noticed.store(true, Ordering::Relaxed))?;
    let failed = |error: redb::Error| explain(&health, error);
    let known = tree.known()?;
    let in_log = add_log(&tree, &known, &health.beside(log), log)?;
    let ceiling = tree.known()?.ceiling;
    tree.db.check_integrity().map_err(|error| failed(error.into()))?;
    let (mut rows, mut row_bytes) = (0, 0);
    for row in tree.snapshot()?.range(b"", &[0xff; 64])? {
        let (key, value) = row?;
        rows += 1;
        row_bytes += (key.value().len() + value.value().len()) as u64;
        visit(key.value(), value.value());
    }
    let write = tree.db.begin_write().map_err(|error| failed(error.into()))?;
    let stats = write.stats().map_err(|error| failed(error.into()))?;
    write.abort().map_err(|error| failed(error.into()))?;
    let needs_repair = repaired.load(Ordering::Relaxed);
    Ok(Contents { in_log, needs_repair, ceiling, rows, row_bytes, used_pages: stats.allocated_pages() })
}

/// Applies what is in the log alone, and says how many batches those are.
fn add_log(tree: &Tree, known: &Known, health: &Health, path: &Path) -> Result<u64, StorageError> {
    if known.mark.is_none() {
        return Ok(0);
    }
    let file = File::open(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => super::pages::failed(health, &super::missing(health)),
        _ => super::refused(health, "read", &source),
    })?;
    let Some((batch, number)) = super::left_in_log(&file, health, known)? else { return Ok(0) };
    tree.apply(Writes::of(&batch.mutations), batch.ceiling, number, Commit::AndEnd)?;
    Ok(number - known.batch)
}
