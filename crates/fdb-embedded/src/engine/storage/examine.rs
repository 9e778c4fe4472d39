//! Reads a whole data file without changing it, for `doctor` and backups.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use checked_pages::{Disk, FailureSink, Overlay, PAGE, PageBytes, SuperblockError, format_of};

use super::error::{StorageError, failed, io_failure, with_cause};
use super::failure_latch::FailureLatch;
use super::tree::{Tree, TreeCommit, TreeMeta, TreeWrites};
use super::{missing, open_pages, unapplied_batches};

/// The content of redb's file and of its log.
#[derive(Debug)]
pub struct ContentReport {
    /// Batches in the log that the next opening will apply. The other fields include them.
    pub in_log: u64,
    /// redb has to walk through the file before it can be used.
    pub needs_repair: bool,
    /// No version above this one has been handed out.
    pub ceiling: i64,
    /// Rows; all of them were readable.
    pub rows: u64,
    /// Bytes of all keys and values.
    pub row_bytes: u64,
    /// Used pages of 4 KiB.
    pub used_pages: u64,
}

/// Reads the first page, and returns its format. Retries twice, because a running process may be
/// writing it.
pub fn check_first_page(file: &File, path: &Path) -> std::io::Result<Result<u32, StorageError>> {
    let damaged = |what: &str| {
        let latch = FailureLatch::new(path);
        failed(&latch, &latch.damaged(what))
    };
    let mut more = 0..2;
    loop {
        let mut page: PageBytes = [0; PAGE as usize];
        if Disk::len(file)? < PAGE {
            return Ok(Err(damaged("it is shorter than its first page")));
        }
        file.read_at(0, &mut page)?;
        let error = match format_of(&page) {
            Ok(format) => return Ok(Ok(format)),
            Err(SuperblockError::Foreign) => StorageError::Foreign,
            Err(SuperblockError::Format(found)) => StorageError::Format { found },
            Err(SuperblockError::Damaged(what)) => damaged(&format!("first page: {what}")),
        };
        if more.next().is_none() {
            return Ok(Err(error));
        }
    }
}

/// Opens the file as the engine would, applies the log, checks all used pages, and calls `visit`
/// with every row.
pub fn contents(
    file: File,
    path: &Path,
    log: &Path,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<ContentReport, StorageError> {
    let latch = Arc::new(FailureLatch::new(path));
    let overlay = Overlay::new(file).map_err(|source| io_failure(&latch, "read", &source))?;
    let pages = open_pages(Box::new(overlay), &latch)?;
    let repaired = Arc::new(AtomicBool::new(false));
    let noticed = Arc::clone(&repaired);
    let mut tree = Tree::open(pages, Arc::clone(&latch), move || noticed.store(true, Ordering::Relaxed))?;
    let caused = |error: redb::Error| with_cause(&latch, error);
    let meta = tree.meta()?;
    let in_log = apply_log(&tree, &meta, &latch.for_file(log), log)?;
    let ceiling = tree.meta()?.ceiling;
    tree.db.check_integrity().map_err(|error| caused(error.into()))?;
    let (mut rows, mut row_bytes) = (0, 0);
    for row in tree.snapshot()?.range(b"", &[0xff; 64])? {
        let (key, value) = row?;
        rows += 1;
        row_bytes += (key.value().len() + value.value().len()) as u64;
        visit(key.value(), value.value());
    }
    let write = tree.db.begin_write().map_err(|error| caused(error.into()))?;
    let stats = write.stats().map_err(|error| caused(error.into()))?;
    write.abort().map_err(|error| caused(error.into()))?;
    let needs_repair = repaired.load(Ordering::Relaxed);
    Ok(ContentReport { in_log, needs_repair, ceiling, rows, row_bytes, used_pages: stats.allocated_pages() })
}

/// Applies the batches that are only in the log, and returns their number.
fn apply_log(tree: &Tree, meta: &TreeMeta, latch: &FailureLatch, path: &Path) -> Result<u64, StorageError> {
    if meta.anchor.is_none() {
        return Ok(0);
    }
    let file = File::open(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => failed(latch, &missing(latch)),
        _ => io_failure(latch, "read", &source),
    })?;
    let Some((batch, number)) = unapplied_batches(&file, latch, meta)? else { return Ok(0) };
    tree.apply(TreeWrites::of(&batch.mutations), batch.ceiling, number, TreeCommit::FinalCheckpoint)?;
    Ok(number - meta.batch)
}
