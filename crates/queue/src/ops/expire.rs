//! Taking a lease away that has run out, and giving its items back.

use foundationdb::Transaction;

use crate::error::QueueError;
use crate::keys::leases::{Held, LeaseId};
use crate::keys::{Space, meta};
use crate::meta::{Failure, Meta, Millis};
use crate::ops::cost::PART;
use crate::ops::version::now;
use crate::ops::{cost, lease, place};

/// What is said of an attempt whose lease ran out.
const RAN_OUT: &str = "the lease ran out: its worker died, hung or lost the database";
/// How much a dead letter says before that, at most, in bytes.
const PREFACE: usize = 40;

/// What became of the items of a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    /// Those that are ready again.
    pub(crate) returned: usize,
    /// Those that had no attempt left.
    pub(crate) dead: usize,
}

/// How items are given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The most attempts that an item has.
    pub(crate) max_attempts: u32,
    /// What is noted as the time of the failure.
    pub(crate) at: Millis,
    /// For what one transaction cannot give back: the first of new leases without a holder, which have run out from the start. As
    /// many numbers follow as a lease can have items.
    pub(crate) spare: LeaseId,
}

/// Takes a lease away; `None`, having written nothing, if it is gone or has been extended.
///
/// Its items are ready again, each with an attempt and a crash more, or dead letters if that was the last attempt. Whoever held it
/// finds it gone. Items of a lease that was served and never taken up are ready as they were before, since nobody has begun with them; and
/// so is one whose side record cannot be read.
pub(crate) async fn expire(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    terms: Terms,
) -> Result<Option<Expired>, QueueError> {
    let version = now(tr).await?;
    let Some(mut header) = lease::header(space, tr, id).await?.filter(|header| header.has_run_out(version))
    else {
        return Ok(None);
    };
    let items = lease::body(space, tr, id, &header).await?;
    items.iter().try_for_each(|held| place::check_kind(space, &held.id))?;
    let open: Vec<Held> = header.settled.open().map(|index| items[index].clone()).collect();
    let mut parts = parts(space, open).into_iter();
    let mut expired = Expired::default();
    for held in parts.next().unwrap_or_default() {
        if header.served {
            place::ready(space, tr, &held.id, &held.value, &held.meta);
            expired.returned += 1;
        } else {
            give_back(space, tr, &held, terms, &mut expired);
        }
    }
    place::count_ready(space, tr, expired.returned);
    place::count_dead(space, tr, expired.dead);
    for (number, part) in (terms.spare.number..).zip(parts) {
        let id = LeaseId { number, ..terms.spare };
        match header.served {
            true => lease::put_served(space, tr, id, (0, 0), &part),
            false => drop(lease::put(space, tr, id, (0, 0), &part)),
        }
    }
    header.settled.fill();
    lease::update(space, tr, id, &header);
    Ok(Some(expired))
}

/// Items in their order, in as many parts as there have to be transactions.
fn parts(space: &Space, items: Vec<Held>) -> Vec<Vec<Held>> {
    let (mut parts, mut bytes) = (Vec::new(), PART);
    for held in items {
        // As if it was the last attempt of each, which takes most.
        let cost = cost::dead(space, &held.id, held.value.len(), &held.meta, RAN_OUT.len() + PREFACE);
        if bytes + cost > PART {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += cost;
        parts.last_mut().expect("the first item begins a part").push(held);
    }
    parts
}

fn give_back(space: &Space, tr: &Transaction, held: &Held, terms: Terms, expired: &mut Expired) {
    let Some(meta) = meta::decode(&held.meta).map(|meta| crashed(meta, terms)) else {
        // A take that cannot read it either makes it a dead letter.
        place::ready(space, tr, &held.id, &held.value, &held.meta);
        expired.returned += 1;
        return;
    };
    if meta.death.is_some() {
        place::dead(space, tr, &held.id, &held.value, &meta);
        expired.dead += 1;
    } else {
        place::ready(space, tr, &held.id, &held.value, &meta::encode(&meta));
        expired.returned += 1;
    }
}

/// The side record of an item whose lease ran out.
fn crashed(mut meta: Meta, terms: Terms) -> Meta {
    meta.attempts = meta.attempts.saturating_add(1);
    meta.crashes = meta.crashes.saturating_add(1);
    meta.failed(&Failure::new(terms.at, meta.attempts, RAN_OUT));
    if meta.attempts >= terms.max_attempts {
        let reason = format!("no attempt left of {}: {RAN_OUT}", terms.max_attempts);
        meta.death = Some(Failure::new(terms.at, meta.attempts, &reason));
    }
    meta
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::id::ItemId;
    use crate::kind::Kind;
    use crate::session::SessionId;

    const TERMS: Terms =
        Terms { max_attempts: 3, at: 7, spare: LeaseId { session: SessionId([0; 16]), number: 1 } };

    #[test]
    fn a_crash_is_an_attempt_and_the_last_one_is_the_end() {
        let first = crashed(Meta::default(), TERMS);
        assert_eq!((first.attempts, first.crashes, first.death.is_some()), (1, 1, false));
        let second = crashed(first, TERMS);
        assert_eq!((second.attempts, second.crashes, second.death.is_some()), (2, 2, false));
        let third = crashed(second, TERMS);
        assert_eq!(third.failures.len(), 3);
        let death = third.death.expect("that was the last attempt");
        assert_eq!((death.at, death.attempt), (7, 3));
        assert_eq!(death.reason, format!("no attempt left of 3: {RAN_OUT}"));
    }

    #[test]
    fn a_part_has_room_for_what_a_dead_letter_clears() {
        let space = Space::new(b"", b"q", Kind::Fifo).unwrap();
        let unique = Some(vec![b'u'; 1_000]);
        let meta = Bytes::from(meta::encode(&Meta { unique, ..Meta::default() }));
        let held =
            Held { id: ItemId::new(vec![0; 13].into()), meta: meta.clone(), value: Bytes::from_static(b"x") };
        let parts = parts(&space, vec![held; 2_500]);
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 2_500);
        // The record, and the unique key four times, as the database counts a clear.
        assert!(parts.iter().all(|part| part.len() * (meta.len() + 4_000) <= PART));
    }
}
