//! Whether a transaction has pushed before.

use foundationdb::{FdbError, Transaction};

use crate::keys::Space;
use crate::model::codes::ACCESSED_UNREADABLE;
use crate::model::error::QueueError;
use crate::model::id_layout::suffix;
use crate::model::stamp::Stamp;
use mutant::mutant;

/// Makes sure that the transaction has not yet written number 0 of the records behind `before`, whose keys get the stamp of its commit.
///
/// Every pusher numbers from 0, and a second one would replace the records of the first. The database does not know the keys of such
/// records before the commit, so it refuses to read any key that one of them could have.
pub(super) async fn check_first(
    space: &Space,
    tr: &Transaction,
    before: &[u8],
    wanted: bool,
) -> Result<(), QueueError> {
    if !wanted || mutant("second-pusher-unseen") {
        return Ok(());
    }
    let latest = Stamp::new([0xff; 10], 0);
    let key = [before, &suffix(latest)].concat();
    match tr.get(&key, true).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == ACCESSED_UNREADABLE => Err(QueueError::second_pusher(&space.name)),
        Err(error) => Err(FdbError::into(error)),
    }
}
