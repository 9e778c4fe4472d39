//! Taking a lease away that has run out, and giving its items back.

use foundationdb::Transaction;

use crate::keys::leases::Held;
use crate::keys::{Space, meta};
use crate::model::error::QueueError;
use crate::model::lease_id::LeaseId;
use crate::model::meta::{Failure, Meta};
use crate::model::rng::Rng;
use crate::model::rules::RetryRules;
use crate::model::time::{Millis, from_millis, span_millis};
use crate::ops::cost::part_bytes;
use crate::ops::transition::{After, Before, Record, Subject, Transitions};
use crate::ops::{cost, lease, place};
use crate::run::version::now;
use crate::run::version_history::VersionHistory;

/// The failure of an attempt whose lease expired.
const RAN_OUT: &str = "the lease ran out: its worker died, hung or lost the database";
/// How much a dead letter says before that, at most, in bytes.
const PREFACE: usize = 40;

/// The result for the items of a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Items that have another attempt, now or after a pause.
    pub(crate) returned: usize,
    /// The items that had no attempt left.
    pub(crate) dead: usize,
}

/// How items are given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How many attempts an item has, and how long it waits between two of them.
    pub(crate) retry: RetryRules,
    /// The time of the failure. The pause before the next attempt begins with it.
    pub(crate) at: Millis,
    /// For what one transaction cannot give back: the first of new leases without a holder, which have run out from the start. As
    /// many numbers follow as a lease can have items.
    pub(crate) spare: LeaseId,
}

/// Takes a lease away; `None`, having written nothing, if it is gone, has been extended, or its holder may still have it.
///
/// A crash spends an attempt, like a failure that a handler reports: each item waits as long as the retry rules say for that attempt,
/// or becomes a dead letter if the attempt was its last. The pause is different for each item. A worker dies of one item at most,
/// so the items that were lost together must not all come back at the same moment, to be lost together again.
///
/// The former holder finds the lease gone. Items of a lease that was served and never taken up are ready as they were before, since
/// nobody has begun with them; and so is one whose side record cannot be read.
pub(crate) async fn expire(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    history: &VersionHistory,
    terms: Terms,
    rng: &mut Rng,
) -> Result<Option<Expired>, QueueError> {
    let version = now(tr).await?;
    let Some(mut header) = lease::header(space, tr, id).await? else { return Ok(None) };
    if history.left(&header, version).is_some() {
        return Ok(None);
    }
    let items = lease::body(space, tr, id, &header, false).await?;
    items.iter().try_for_each(|held| place::check_kind(space, &held.id))?;
    let open: Vec<Held> = header.acknowledged.open().map(|index| items[index].clone()).collect();
    let mut transitions = Transitions::begin(space, tr).await?;
    let mut parts = parts(space, open).into_iter();
    let mut expired = Expired::default();
    for held in parts.next().unwrap_or_default() {
        let (after, record) = match header.served {
            true => (After::Ready, Record::Same(&held.meta)),
            false => next(&held, terms, rng.next()),
        };
        match after {
            After::Dead => expired.dead += 1,
            _ => expired.returned += 1,
        }
        let item = Subject { id: &held.id, value: &held.value, record };
        transitions.add(tr, Before::Leased(id.session), after, item)?;
    }
    transitions.write(tr, None).await?;
    for (number, part) in (terms.spare.number..).zip(parts) {
        let id = LeaseId { number, ..terms.spare };
        match header.served {
            true => lease::put_served(space, tr, id, (0, 0), &part),
            false => drop(lease::put(space, tr, id, (0, 0), &part)),
        }
    }
    header.acknowledged.fill();
    lease::update(space, tr, id, &header);
    Ok(Some(expired))
}

/// Items in their order, in as many parts as there have to be transactions.
fn parts(space: &Space, items: Vec<Held>) -> Vec<Vec<Held>> {
    let (mut parts, mut bytes) = (Vec::new(), part_bytes());
    for held in items {
        // As if it was the last attempt of each, which takes most.
        let reason = RAN_OUT.len() + PREFACE;
        let cost = cost::dead(space, &held.id, held.value.len(), &held.meta, reason)
            + cost::ended(space, &held.id, &held.meta, reason);
        if bytes + cost > part_bytes() {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += cost;
        parts.last_mut().expect("the first item begins a part").push(held);
    }
    parts
}

/// Where an item goes whose attempt ended with its lease.
fn next(held: &Held, terms: Terms, random: u64) -> (After<'static>, Record<'_>) {
    let Some(meta) = meta::decode(&held.meta) else {
        // A take that cannot read it either makes it a dead letter.
        return (After::Ready, Record::Same(&held.meta));
    };
    let (meta, pause) = crashed(meta, terms, random);
    let after = match pause {
        None => After::Dead,
        Some(0) => After::Ready,
        Some(pause) => After::Scheduled(terms.at.saturating_add(pause)),
    };
    (after, Record::Changed(Box::new(meta)))
}

/// The side record of an item whose lease ran out, and how long the item waits for its next attempt; `None` if it has none left.
fn crashed(mut meta: Meta, terms: Terms, random: u64) -> (Meta, Option<Millis>) {
    meta.attempts = meta.attempts.saturating_add(1);
    meta.crashes = meta.crashes.saturating_add(1);
    meta.failed(&Failure::new(from_millis(terms.at), meta.attempts, RAN_OUT));
    let pause = terms.retry.delay(meta.attempts, random);
    if pause.is_none() {
        let reason = format!("no attempt left of {}: {RAN_OUT}", terms.retry.max_attempts);
        meta.death = Some(Failure::new(from_millis(terms.at), meta.attempts, &reason));
    }
    (meta, pause.map(span_millis))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::model::id::ItemId;
    use crate::model::kind::Kind;
    use crate::model::session_id::SessionId;

    fn terms() -> Terms {
        let base = Duration::from_secs(1);
        let retry = RetryRules { max_attempts: 3, base, max: Duration::from_secs(60), jitter: true };
        Terms { retry, at: 7, spare: LeaseId { session: SessionId([0; 16]), number: 1 } }
    }

    #[test]
    fn a_crash_spends_an_attempt_and_the_last_one_makes_a_dead_letter() {
        let (first, pause) = crashed(Meta::default(), terms(), 0);
        assert_eq!((first.attempts, first.crashes, first.death.is_some()), (1, 1, false));
        assert_eq!(pause, Some(500));
        let (second, pause) = crashed(first, terms(), u64::MAX);
        assert_eq!((second.attempts, second.crashes, second.death.is_some()), (2, 2, false));
        assert_eq!(pause, Some(1_999));
        let (third, pause) = crashed(second, terms(), 0);
        assert_eq!((third.failures.len(), pause), (3, None));
        let death = third.death.expect("that was the last attempt");
        assert_eq!((death.at, death.attempt), (from_millis(7), 3));
        assert_eq!(death.reason, format!("no attempt left of 3: {RAN_OUT}"));
    }

    #[test]
    fn parts_of_a_lease_leave_room_for_dead_letters() {
        let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
        let unique = Some(vec![b'u'; 1_000]);
        let meta = Bytes::from(meta::encode(&Meta { unique, ..Meta::default() }));
        let held =
            Held { id: ItemId::new(vec![0; 13].into()), meta: meta.clone(), value: Bytes::from_static(b"x") };
        let parts = parts(&space, vec![held; 2_500]);
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 2_500);
        // The record, and the unique key four times, as the database counts a clear.
        assert!(parts.iter().all(|part| part.len() * (meta.len() + 4_000) <= part_bytes()));
    }
}
