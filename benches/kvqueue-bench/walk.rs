//! Looking through what is left in a queue, when nobody works on it any more.

use foundationdb::{Database, KeySelector, RangeOption, options::StreamingMode};

use super::{keys::Keys, tally::Tally};

/// Items read in one transaction, which has five seconds.
const PAGE: usize = 5_000;

/// Bytes read in one transaction.
const BYTES: usize = 4_000_000;

/// Notes every ready item as found, and returns how many there are.
pub(super) async fn walk(db: &Database, keys: &Keys, payload: usize, tally: &Tally) -> anyhow::Result<u64> {
    let limit = (BYTES / payload).clamp(1, PAGE);
    let (mut begin, end) = (KeySelector::first_greater_or_equal(keys.items.0.clone()), &keys.items.1);
    let mut tr = db.create_trx()?;
    let mut items = 0;
    loop {
        let range = RangeOption {
            begin: begin.clone(),
            end: KeySelector::first_greater_or_equal(end.clone()),
            limit: Some(limit),
            mode: StreamingMode::WantAll,
            ..RangeOption::default()
        };
        let page = match tr.get_range(&range, 1, true).await {
            Ok(page) => page,
            Err(error) => {
                tr = tr.on_error(error).await?;
                continue;
            }
        };
        page.iter().for_each(|row| tally.found(row.value()));
        items += page.len() as u64;
        let Some(last) = page.last() else { return Ok(items) };
        begin = KeySelector::first_greater_than(last.key().to_vec());
        // The next page may come too late for this transaction.
        tr.reset();
    }
}
