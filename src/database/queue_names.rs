//! The first names of queues, where a database may have any number.

use foundationdb::Transaction;
use kvqueue_queue::{QueueError, queues_page_named};

/// The first names that begin with `named` and for which `is_wanted` is true, behind the key `from` if there is one: more than `most`, if the database has more.
pub(crate) async fn queue_names(
    tr: &Transaction,
    prefix: &[u8],
    named: &[u8],
    mut from: Option<Vec<u8>>,
    most: usize,
    is_wanted: impl Fn(&Vec<u8>) -> bool,
) -> Result<Vec<Vec<u8>>, QueueError> {
    let mut names = Vec::new();
    loop {
        let page = queues_page_named(tr, prefix, named, from.as_deref()).await?;
        names.extend(page.names.into_iter().filter(&is_wanted));
        from = page.next;
        if names.len() > most || from.is_none() {
            return Ok(names);
        }
    }
}
