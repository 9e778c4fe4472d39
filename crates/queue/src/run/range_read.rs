//! Reading the rows of a range. Every range of the layer is read by this file.
//!
//! A reply of the database ends at the limits of the read, at 80,000 bytes, and on a cluster wherever a storage server's part of
//! the range ends. So fewer rows than the limit do not mean that these are all. Ask [`RowPage::next`] or [`RowPage::has_more`].
//!
//! | a caller needs | it calls |
//! |---|---|
//! | the key of the first row | [`RangeRead::first_row_key`] |
//! | what one reply holds, and where the range goes on | [`RangeRead::page`] |
//! | rows until it has enough of them | [`RangeRead::pages`] |
//! | all rows, or the first `n` | [`RangeRead::collect`] |

use foundationdb::future::{FdbKeyValue, FdbValues};
use foundationdb::options::StreamingMode;
use foundationdb::{KeySelector, RangeOption, Transaction};
use mutant::mutant;

use crate::keys::after;
use crate::model::error::QueueError;

/// A range that is to be read, and how much of it. Without further calls: all rows, from the first on, and without a conflict.
#[must_use = "a read has to be sent"]
pub(crate) struct RangeRead<'a> {
    option: RangeOption<'a>,
    /// Whether `option.limit` is the limit of each page, and not of all rows.
    limits_pages: bool,
    snapshot: bool,
}

impl<'a> RangeRead<'a> {
    /// Reads a range: two keys, or two key selectors. The end is not part of it.
    pub(crate) fn of(range: impl Into<RangeOption<'a>>) -> RangeRead<'a> {
        let option = RangeOption { mode: StreamingMode::WantAll, ..range.into() };
        RangeRead { option, limits_pages: false, snapshot: true }
    }

    /// Reads at most this number of rows, which is at least 1, in all replies together.
    pub(crate) fn limit(mut self, rows: usize) -> Self {
        self.option.limit = Some(rows);
        self
    }

    /// Reads at most this number of rows in each reply, and any number in all of them together.
    pub(crate) fn page_limit(mut self, rows: usize) -> Self {
        self.limits_pages = true;
        self.limit(rows)
    }

    /// Ends a reply with the row that brings it to this number of bytes. Without [`RangeRead::exact`] no reply is longer than
    /// 80,000 bytes.
    pub(crate) fn page_bytes(mut self, bytes: usize) -> Self {
        self.option.target_bytes = bytes;
        self
    }

    /// Makes a reply as long as its limits allow, even beyond 80,000 bytes. It has a limit of rows or of bytes.
    pub(crate) fn exact(mut self) -> Self {
        self.option.mode = StreamingMode::Exact;
        self
    }

    /// Makes the first reply short, 4,096 bytes, and the next ones longer: for a caller that most likely needs few rows.
    pub(crate) fn growing(mut self) -> Self {
        self.option.mode = StreamingMode::Iterator;
        self
    }

    /// Reads from the last row on, if `reverse`.
    pub(crate) fn reverse(mut self, reverse: bool) -> Self {
        self.option.reverse = reverse;
        self
    }

    /// Without `snapshot` the transaction conflicts with changes of what it reads.
    pub(crate) fn snapshot(mut self, snapshot: bool) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// The key of the first row. Unlike a key selector, it never reads behind the range: the transaction may have pushed to
    /// the keys there, and cannot read those.
    pub(crate) async fn first_row_key(self, tr: &Transaction) -> Result<Option<Vec<u8>>, QueueError> {
        let page = self.limit(1).growing().page(tr).await?;
        Ok(page.last().map(|row| row.key().to_vec()))
    }

    /// The first rows, as many as one reply holds.
    pub(crate) async fn page(self, tr: &Transaction) -> Result<RowPage, QueueError> {
        RowPage::request(tr, &self.option, 1, self.snapshot).await
    }

    /// The rows, one reply after the other.
    pub(crate) fn pages(self, tr: &'a Transaction) -> Pages<'a> {
        let RangeRead { option, limits_pages, snapshot } = self;
        Pages { tr, rest: Some(option), limits_pages, snapshot, replies: 0 }
    }

    /// All rows up to the limit, however many replies they take, as `decode` makes them. The caller does not learn whether others
    /// follow: it does not need to, or has set no limit.
    pub(crate) async fn collect<T>(
        self,
        tr: &Transaction,
        mut decode: impl FnMut(&FdbKeyValue) -> T,
    ) -> Result<Vec<T>, QueueError> {
        let (mut pages, mut found) = (self.pages(tr), Vec::new());
        while let Some(page) = pages.next_page().await? {
            found.extend(page.iter().map(&mut decode));
        }
        Ok(found)
    }
}

/// A range that is read reply by reply.
pub(crate) struct Pages<'a> {
    tr: &'a Transaction,
    /// What has not been read; `None` behind the last row.
    rest: Option<RangeOption<'a>>,
    limits_pages: bool,
    snapshot: bool,
    replies: usize,
}

impl Pages<'_> {
    /// The next reply; `None`: there are no rows left, or the limit is reached. The last page tells which.
    pub(crate) async fn next_page(&mut self) -> Result<Option<RowPage>, QueueError> {
        let Some(option) = self.rest.take() else { return Ok(None) };
        self.replies += 1;
        let page = RowPage::request(self.tr, &option, self.replies, self.snapshot).await?;
        let read = if self.limits_pages { 0 } else { page.len() };
        let limit = option.limit.map(|limit| limit.saturating_sub(read));
        if let Some(next) = page.next().filter(|_| limit != Some(0)) {
            let next = KeySelector::first_greater_or_equal(next);
            let rest = RangeOption { limit, ..option };
            self.rest = Some(match rest.reverse {
                false => RangeOption { begin: next, ..rest },
                true => RangeOption { end: next, ..rest },
            });
        }
        Ok(Some(page))
    }
}

/// Rows of one reply, in the order in which they were read.
pub(crate) struct RowPage {
    rows: FdbValues,
    /// The most rows that were asked for.
    limit: usize,
    reverse: bool,
}

impl RowPage {
    async fn request(
        tr: &Transaction,
        option: &RangeOption<'_>,
        reply: usize,
        snapshot: bool,
    ) -> Result<RowPage, QueueError> {
        let (limit, reverse) = (option.limit.unwrap_or(usize::MAX), option.reverse);
        Ok(RowPage { rows: tr.get_range(option, reply, snapshot).await?, limit, reverse })
    }

    /// The rows.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &FdbKeyValue> {
        self.rows.iter()
    }

    /// How many rows these are. It tells nothing about whether others follow.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The last row.
    pub(crate) fn last(&self) -> Option<&FdbKeyValue> {
        self.rows.last()
    }

    /// Bytes of keys and values.
    pub(crate) fn byte_len(&self) -> usize {
        self.iter().map(|row| row.key().len() + row.value().len()).sum()
    }

    /// Whether the range may have other rows behind these. True, too, if the limit was reached; then there may be none.
    pub(crate) fn has_more(&self) -> bool {
        let is_full = self.len() >= self.limit || (self.rows.more() && !mutant("reply-is-everything"));
        is_full && !self.rows.is_empty()
    }

    /// Where the range goes on: where the rest begins, or, of a reverse read, where it ends. `None`: these rows are all.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let last = self.last().filter(|_| self.has_more())?.key();
        Some(if self.reverse { last.to_vec() } else { after(last) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::on_database;

    const ROWS: u8 = 100;

    fn key(n: u8) -> Vec<u8> {
        vec![b'k', n]
    }

    fn all() -> RangeRead<'static> {
        RangeRead::of((key(0), key(ROWS)))
    }

    /// Runs a test on rows that take three replies.
    fn on_rows(test: impl AsyncFnOnce(&Transaction)) {
        on_database(async |db| {
            let tr = db.create_trx().unwrap();
            (0..ROWS).for_each(|n| tr.set(&key(n), &[0; 2_000]));
            tr.commit().await.unwrap();
            test(&db.create_trx().unwrap()).await;
        });
    }

    /// The numbers of rows, page by page, and whether the last page has more behind it.
    async fn read(tr: &Transaction, read: RangeRead<'_>) -> (Vec<Vec<u8>>, bool) {
        let (mut pages, mut found, mut has_more) = (read.pages(tr), Vec::new(), false);
        while let Some(page) = pages.next_page().await.unwrap() {
            found.push(page.iter().map(|row| row.key()[1]).collect());
            has_more = page.has_more();
        }
        (found, has_more)
    }

    #[test]
    fn a_page_with_fewer_rows_than_its_limit_tells_where_the_range_goes_on() {
        on_rows(async |tr| {
            let page = all().limit(1_000).page(tr).await.unwrap();
            assert!(page.len() < ROWS.into(), "{}", page.len());
            assert_eq!(page.next(), page.last().map(|row| after(row.key())));
            let rest = RangeRead::of((page.next().unwrap(), key(ROWS))).limit(1_000).exact();
            let rest = rest.page(tr).await.unwrap();
            assert_eq!((page.len() + rest.len(), rest.next()), (ROWS.into(), None));
        });
    }

    #[test]
    fn the_rest_of_a_reverse_read_ends_at_its_last_row() {
        on_rows(async |tr| {
            let page = all().reverse(true).limit(30).page(tr).await.unwrap();
            assert_eq!(page.next(), Some(key(70)));
            let (pages, has_more) = read(tr, RangeRead::of((key(0), key(70))).reverse(true)).await;
            assert_eq!((pages.concat(), has_more), ((0..70).rev().collect(), false));
        });
    }

    #[test]
    fn a_limit_is_for_all_pages_and_a_page_limit_for_each() {
        on_rows(async |tr| {
            let (pages, has_more) = read(tr, all().limit(60)).await;
            assert_eq!((pages.len(), pages.concat(), has_more), (2, (0..60).collect(), true));
            let (pages, has_more) = read(tr, all().page_limit(30)).await;
            let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
            assert_eq!((lengths, has_more), (vec![30, 30, 30, 10], false));
            let (pages, _) = read(tr, all().page_bytes(1)).await;
            // Behind a reply that is full there may be nothing.
            assert_eq!(pages.last(), Some(&Vec::new()));
            assert!(pages.iter().take(ROWS.into()).all(|page| page.len() == 1));
        });
    }

    #[test]
    fn all_rows_are_collected_and_the_first_key_is_found_in_both_directions() {
        on_rows(async |tr| {
            let number = |row: &FdbKeyValue| row.key()[1];
            assert_eq!(all().collect(tr, number).await.unwrap(), (0..ROWS).collect::<Vec<_>>());
            assert_eq!(all().limit(50).collect(tr, number).await.unwrap().len(), 50);
            assert_eq!(all().first_row_key(tr).await.unwrap(), Some(key(0)));
            assert_eq!(all().reverse(true).first_row_key(tr).await.unwrap(), Some(key(ROWS - 1)));
            assert_eq!(RangeRead::of((key(ROWS), key(255))).first_row_key(tr).await.unwrap(), None);
        });
    }
}
