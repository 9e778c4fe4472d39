//! Removing the token slots of sessions that are gone.

use std::num::NonZeroUsize;

use foundationdb::options::StreamingMode;
use foundationdb::{Database, RangeOption, Transaction};

use crate::error::QueueError;
use crate::keys::{Space, after, tokens};
use crate::ops::conflict;
use crate::ops::version::now;
use crate::queue::Queue;
use crate::retry::{RetryError, RetryPolicy, run};

/// How many slots one transaction looks at.
const PAGE: NonZeroUsize = NonZeroUsize::new(1_000).expect("1000 is not 0");

/// What a sweep of token slots did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweptTokens {
    /// Slots cleared.
    pub cleared: usize,
    /// Slots that were younger, or of a layout this version does not know.
    pub kept: usize,
}

/// Clears the token slots that were last written more than `older_than_versions` database versions ago (10^6 a
/// second). Sessions that end well clear their own.
///
/// A slot is needed only from an attempt whose outcome is unknown until the session's next attempt, which follows
/// within seconds: after five, the database refuses the old attempt. A day, 86,400,000,000 versions, leaves room for
/// a process that was suspended, and for the jump that versions make when a database is recovered or reopened.
pub async fn sweep_tokens(
    db: &Database,
    queue: &Queue,
    older_than_versions: u64,
    policy: &RetryPolicy,
) -> Result<SweptTokens, RetryError> {
    let mut swept = SweptTokens::default();
    let (mut begin, end) = queue.space().token_range();
    loop {
        let (from, to) = (&begin, &end);
        let page = run(db, policy, |tr| async move {
            let page = sweep_page(queue.space(), &tr, from, to, older_than_versions).await;
            (tr, page)
        });
        let page = page.await?.value;
        swept.cleared += page.swept.cleared;
        swept.kept += page.swept.kept;
        match page.next {
            Some(next) => begin = next,
            None => return Ok(swept),
        }
    }
}

/// One transaction's part of a sweep.
struct Page {
    swept: SweptTokens,
    /// Where the next page begins; `None` behind the last.
    next: Option<Vec<u8>>,
}

async fn sweep_page(
    space: &Space,
    tr: &Transaction,
    begin: &[u8],
    end: &[u8],
    older_than_versions: u64,
) -> Result<Page, QueueError> {
    let now = now(tr).await?;
    let range = RangeOption {
        limit: Some(PAGE.get()),
        mode: StreamingMode::WantAll,
        ..RangeOption::from((begin, end))
    };
    // A snapshot read: sessions at work write their slots all the time, and only those cleared matter.
    let rows = tr.get_range(&range, 1, true).await?;
    let mut swept = SweptTokens::default();
    for row in &rows {
        debug_assert!(row.key().starts_with(&space.tokens));
        let old = tokens::decode(row.value())
            .is_some_and(|token| now.saturating_sub(token.version()) > older_than_versions);
        if old {
            conflict::as_reader(tr, row.key())?;
            tr.clear(row.key());
            swept.cleared += 1;
        } else {
            swept.kept += 1;
        }
    }
    let next = rows.last().filter(|_| rows.more()).map(|row| after(row.key()));
    Ok(Page { swept, next })
}
