//! What must hold of the rows by which sweepers find out that items have expired.

use super::{Image, Stored};
use kvqueue_queue::millis;

/// Each waiting item that may still expire has its row.
pub(super) fn check(image: &Image) -> Result<(), String> {
    let ready = image.ready.iter();
    let later = image.later.iter().map(|((_, id), stored)| (id, stored));
    for (id, Stored { meta, .. }) in ready.chain(later) {
        // Nobody has begun with it, and it was no dead letter.
        let is_untried = meta.attempts == 0 && meta.failures.is_empty();
        if let Some(expires) = meta.expires.filter(|_| is_untried).map(millis)
            && !image.expiry.contains_key(&(expires, id.clone()))
        {
            return Err(format!("{id} waits and is to expire at {expires}, and no row says so"));
        }
    }
    Ok(())
}
