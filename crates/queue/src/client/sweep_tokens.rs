//! Removing the token slots of sessions that are gone.

use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime};

use foundationdb::{Database, Transaction};
use mutant::bound;

use crate::client::queue::Queue;
use crate::keys::{Space, tokens};
use crate::model::error::QueueError;
use crate::model::retry_error::RetryError;
use crate::model::time::{Millis, millis, versions};
use crate::ops::times;
use crate::run::range_read::RangeRead;
use crate::run::retry::{RetryPolicy, run};
use crate::run::version_history::VersionHistory;
use crate::run::{conflict, version};

/// How many slots one transaction looks at.
const PAGE: NonZeroUsize = NonZeroUsize::new(1_000).expect("1000 is not 0");

/// A sweep ends after this many slots of pages in which it cleared less than one slot in [`WORTH`].
fn max_idle() -> usize {
    bound("idle-tokens", 20_000)
}

/// A sweep goes on while one slot of this many is to be cleared.
const WORTH: usize = 10;

/// Where the next sweep of a queue's token slots begins. The default: at the first slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenPlace(Option<Vec<u8>>);

/// The result of a sweep of token slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweptTokens {
    /// Slots cleared.
    pub cleared: usize,
    /// Slots that it looked at and that were younger, or of a layout this version does not know.
    pub kept: usize,
}

/// Clears the token slots that were last written more than `older_than_versions` database versions ago (10^6 a
/// second), and as many microseconds before `now`, as far as sweeps have noted the time. Sessions that end well clear their own.
/// With a `history` that knew a version before `now` was read, it notes the time for later sweeps.
///
/// A sweep looks at 20,000 slots, and goes on as long as it clears a tenth of them. It remembers in `place` where it stopped; pass the same place
/// to the next sweep of the queue. So where many sessions end without [`Session::close`](crate::Session::close), a sweep reads about ten slots at most
/// for each one that it clears, and 20,000 more.
///
/// A slot is needed only from an attempt whose outcome is unknown until the session's next attempt, which follows
/// within seconds: after five, the database refuses the old attempt. A day, 86,400,000,000 versions, leaves room for
/// a process that was suspended. Versions that jump ahead make no slot old.
pub async fn sweep_tokens(
    db: &Database,
    queue: &Queue,
    history: &VersionHistory,
    place: &mut TokenPlace,
    now: SystemTime,
    older_than: Duration,
    policy: &RetryPolicy,
) -> Result<SweptTokens, RetryError> {
    let (now, known) = (millis(now), history.last_version());
    let mut swept = SweptTokens::default();
    let (first, end) = queue.space().token_range();
    let mut begin = place.0.take().unwrap_or(first);
    let mut idle = 0;
    loop {
        let (from, to) = (&begin, &end);
        let page = run(db, policy, |tr| async move {
            let page = sweep_page(queue.space(), &tr, (from, to), now, versions(older_than)).await;
            (tr, page)
        });
        let page = page.await?.value;
        swept.cleared += page.swept.cleared;
        swept.kept += page.swept.kept;
        let looked_at = page.swept.cleared + page.swept.kept;
        if page.swept.cleared * WORTH < looked_at {
            idle += looked_at;
        }
        match page.next {
            Some(next) if idle < max_idle() => begin = next,
            next => {
                place.0 = next;
                break;
            }
        }
    }
    if let Some(known) = known.filter(|_| swept.kept > 0) {
        let noted = run(db, policy, |tr| async move {
            let noted = times::note(queue.space(), &tr, known, now, versions(older_than)).await;
            (tr, noted)
        });
        noted.await?;
    }
    Ok(swept)
}

/// One transaction's part of a sweep.
struct TokenPage {
    swept: SweptTokens,
    /// Where the next page begins; `None` behind the last.
    next: Option<Vec<u8>>,
}

async fn sweep_page(
    space: &Space,
    tr: &Transaction,
    (begin, end): (&[u8], &[u8]),
    now: Millis,
    older_than_versions: u64,
) -> Result<TokenPage, QueueError> {
    let times = times::read(space, tr, true).await?;
    let old_before = times::old_before(&times, version::now(tr).await?, now, older_than_versions);
    // Without a conflict: sessions at work write their slots all the time, and only those cleared matter.
    let rows = RangeRead::of((begin, end)).limit(PAGE.get()).page(tr).await?;
    let mut swept = SweptTokens::default();
    for row in rows.iter() {
        debug_assert!(row.key().starts_with(&space.tokens));
        let old = tokens::decode(row.value()).is_some_and(|token| token.version() < old_before);
        if old {
            conflict::as_reader(tr, row.key())?;
            tr.clear(row.key());
            swept.cleared += 1;
        } else {
            swept.kept += 1;
        }
    }
    Ok(TokenPage { swept, next: rows.next() })
}
