//! The files of a database directory: their names, and how they are made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// The data file.
pub const DATA_FILE: &str = "data.redb";

/// The file that the host locks.
pub const LOCK_FILE: &str = "lock";

/// The log: batches that the data file does not have yet.
pub const LOG_FILE: &str = "log";

/// The file that holds disk space in reserve: `engine/storage/space_reserve.rs`.
pub const RESERVE_FILE: &str = "reserve";

/// The advice for a log without its data file.
pub const FIX_ORPHANED_LOG: &str = "put data.redb back, or restore the directory from a backup; only if nothing in it is needed any more, remove log as well: the \
                                 next program begins an empty database";

/// Options to open or create a file for this user only, whatever the directory allows.
pub fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600);
    options
}

/// Opens a file for writing, or creates it.
pub fn open_or_create(file: &Path) -> io::Result<File> {
    match create_file(file) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => private_options().create(true).open(file),
        made => made,
    }
}

/// Creates a file for the owner of its directory only. If root creates it in another user's
/// directory, that user gets it, whose programs could not open it otherwise.
pub fn create_file(file: &Path) -> io::Result<File> {
    // The file is new and not a link, so no other file changes its owner.
    let made = private_options().create_new(true).open(file)?;
    // Where root may not change owners, as in some containers, it uses the file itself.
    let _ = give_to_directory_owner(&made, file);
    Ok(made)
}

fn give_to_directory_owner(made: &File, file: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let owner = fs::metadata(above)?;
    if owner.uid() == made.metadata()?.uid() {
        return Ok(());
    }
    fchown(made, Some(owner.uid()), Some(owner.gid()))
}

/// True if the name exists, even as a dangling link: nothing may be created in its place.
pub fn exists(file: &Path) -> io::Result<bool> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// True for the error of a full disk or an exhausted quota.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
