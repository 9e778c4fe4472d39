//! A file under redb in which each page has a checksum, verified on every read.
//!
//! [`Pages`] is the file. It rests on a [`Disk`]: a real file, an [`Overlay`] that keeps writes in memory, a [`RewritingDisk`] that
//! repeats the writes that a failed flush has lost, or, with the feature `sim`, a simulated machine that tests can cut off at any
//! moment. Failures are reported to the caller's [`FailureSink`], because redb does not pass on the cause of an I/O error.
//!
//! `docs/decisions/0006-checked-pages.md` gives the reasons and the format of the file.

mod disk;
mod layout;
mod overlay;
mod page_checksums;
mod pages;
mod recovery_policy;
mod rewriting_disk;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
#[cfg(any(test, feature = "sim"))]
mod split_mix;
mod superblock;
mod verify;

pub use disk::Disk;
pub use layout::PAGE;
pub use overlay::Overlay;
pub use pages::{FailureSink, Meter, OpenError, Pages};
pub use recovery_policy::RecoveryPolicy;
pub use rewriting_disk::RewritingDisk;
pub use superblock::{FORMAT, HEADER, OLDEST_FORMAT, PageBytes, SuperblockError, format_of};
pub use verify::{ChecksumReport, verify_checksums};
