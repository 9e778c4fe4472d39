//! The slots of a queue with a limit of running items, which its sessions hand to themselves.
//!
//! All sessions of a queue share its limit. If each of their fetches excluded the others, a queue that is full would be served by one fetch after the other. So the limit is divided
//! into *lanes*, each with a capacity. A row of each lane counts items, and a fetch that takes slots of a lane takes its gate. The sum of all rows is the number of running items.
//!
//! - A session has a lane of its own, its *home*, by its id. Whatever ends an item of its leases subtracts from that lane, wherever the slot came from. So the slot is free where the session's next
//!   fetch takes it, and fetches of sessions with different homes do not exclude each other.
//! - A fetch that needs more takes slots of other lanes, too. If few are free, such a slot has usually just become free, and its own session is about to take it. So a session that has lost a race
//!   against another one leaves these slots alone, unless more than a quarter of all is free ([`PLENTY`]), or the lane has not changed for a while ([`idle_after`]).
//!
//! **Why that is exact.** A fetch reads the rows at snapshot isolation and adds to a lane no more than its capacity allows. No other fetch adds to the lane before it commits, ends only subtract, and
//! a change of the limit conflicts with it. So no lane gets beyond its capacity, and the capacities together are the limit. A lane may be below zero, if more of its session's items have ended than
//! began in it; others have as much more then.
//!
//! A lane is beyond its capacity after a change of the limit, or after a recount. A fetch that finds one takes all gates, and divides all running items among the lanes again.
//!
//! `tests/models/lanes.rs` checks the rule in every order of transactions.

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use mutant::{bound, mutant};

use super::gates;
use crate::keys::keyed::{KeyedSpace, LANES};
use crate::keys::{after, counters};
use crate::model::error::QueueError;
use crate::model::rng::Rng;
use crate::model::session_id::SessionId;
use crate::run::range_read::RangeRead;

/// If more than this part of all slots is free, a fetch takes whichever it needs.
const PLENTY: u64 = 4;
/// After how many versions without a change of its lane a slot may be taken by a session that leaves those of others alone.
pub(crate) fn idle_after() -> u64 {
    bound("lane-idle", 100_000) as u64
}
/// A look is of no use after this many times [`idle_after`].
const LOOK_LASTS: u64 = 8;

/// How many lanes have a capacity.
fn lanes_of(most: u64) -> u64 {
    most.clamp(1, LANES)
}

/// What a lane gets of `n`, evenly divided. Of the limit that is the lane's capacity.
fn share(n: u64, lane: u64, lanes: u64) -> i64 {
    if lane >= lanes {
        return 0;
    }
    (n / lanes + u64::from(lane < n % lanes)).cast_signed()
}

/// A session's own lane.
pub(crate) fn home(session: SessionId, most: u64) -> u64 {
    Rng::of(session).next() % lanes_of(most)
}

/// Adds to the running items of a lane, or subtracts from them.
pub(crate) fn count(keyed: &KeyedSpace, tr: &Transaction, lane: u64, by: i64) {
    let key = keyed.lane_key(lane);
    tr.atomic_op(&key, &by.to_le_bytes(), MutationType::Add);
    tr.atomic_op(&key, &0_u64.to_le_bytes(), MutationType::CompareAndClear);
}

/// How many items each lane counts. Lanes behind the last one count 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lanes(Vec<i64>);

impl Lanes {
    /// Reads without a conflict.
    pub(crate) async fn read(keyed: &KeyedSpace, tr: &Transaction) -> Result<Lanes, QueueError> {
        let mut pages = RangeRead::of(keyed.lanes()).page_limit(LANES as usize + 1).pages(tr);
        let mut lanes = Lanes::default();
        while let Some(page) = pages.next_page().await? {
            for row in page.iter() {
                if let Some((_, lane)) = keyed.decode_running(row.key()) {
                    lanes.set(lane, counters::decode(Some(row.value())).cast_signed());
                }
            }
        }
        Ok(lanes)
    }

    fn set(&mut self, lane: u64, running: i64) {
        let at = lane as usize;
        self.0.resize(self.0.len().max(at + 1), 0);
        self.0[at] = running;
    }

    fn of(&self, lane: u64) -> i64 {
        self.0.get(lane as usize).copied().unwrap_or_default()
    }

    /// How many items of the queue run.
    pub(crate) fn running(&self) -> u64 {
        // Only a foreign writer can bring it out of range.
        self.0.iter().fold(0, |sum: i64, running| sum.saturating_add(*running)).max(0).cast_unsigned()
    }
}

/// The lanes as a session has found them, and when.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    at: u64,
    lanes: Lanes,
}

/// What a fetch does with slots that are free in the lanes of other sessions.
#[derive(Debug, Clone)]
pub(crate) enum Others {
    /// It takes them.
    Take,
    /// Its session has lost against others. It takes slots of lanes that are as they were at the session's last look.
    Leave(Option<Look>),
}

/// Whose fetch it is, and which slots it may take.
#[derive(Debug, Clone)]
pub(crate) struct Taker {
    pub(crate) session: SessionId,
    /// Which gate of a tenant or key it takes: this number, modulo the number of gates that are open to it. Where it begins in the lanes of others.
    pub(crate) gate: u64,
    pub(crate) others: Others,
}

/// The slots of a queue, as a fetch has found them.
#[derive(Debug)]
pub(crate) struct QueueSlots {
    most: u64,
    at: u64,
    lanes: Lanes,
    home: u64,
    /// Whether a lane is beyond its capacity.
    is_over: bool,
    /// The lanes that the fetch may take slots of, in this order, and how many of each.
    open: Vec<(u64, u64)>,
}

impl QueueSlots {
    /// `at`: the version of the fetch.
    pub(crate) fn new(most: u64, lanes: Lanes, at: u64, taker: &Taker) -> QueueSlots {
        let home = home(taker.session, most);
        let mut slots = QueueSlots { most, at, lanes, home, is_over: false, open: Vec::new() };
        slots.is_over = (0..LANES).any(|lane| slots.lanes.of(lane) > slots.capacity(lane));
        if !slots.is_over {
            slots.open = slots.open_to(taker);
        }
        slots
    }

    fn open_to(&self, taker: &Taker) -> Vec<(u64, u64)> {
        let is_plenty = PLENTY.saturating_mul(self.free_of_all()) > self.most;
        let may_take = |lane: u64| match &taker.others {
            Others::Take => true,
            Others::Leave(look) => {
                is_plenty || look.as_ref().is_some_and(|look| self.is_unchanged(look, lane))
            }
        };
        let others = (0..LANES).map(|lane| (lane + taker.gate % LANES) % LANES);
        let others = others.filter(|lane| *lane != self.home && may_take(*lane));
        let free =
            |lane: u64| u64::try_from(self.capacity(lane).saturating_sub(self.lanes.of(lane))).unwrap_or(0);
        let lanes = std::iter::once(self.home).chain(others);
        lanes.map(|lane| (lane, free(lane))).filter(|(_, free)| *free > 0).collect()
    }

    fn capacity(&self, lane: u64) -> i64 {
        share(self.most, lane, lanes_of(self.most))
    }

    fn is_unchanged(&self, look: &Look, lane: u64) -> bool {
        let age = self.at.saturating_sub(look.at);
        (idle_after()..idle_after().saturating_mul(LOOK_LASTS)).contains(&age)
            && look.lanes.of(lane) == self.lanes.of(lane)
            && !mutant("free-slots-stay-free")
    }

    fn free_of_all(&self) -> u64 {
        self.most.saturating_sub(self.lanes.running())
    }

    /// How many slots the fetch may take.
    pub(crate) fn free(&self) -> u64 {
        if self.is_over { self.free_of_all() } else { self.open.iter().map(|(_, free)| free).sum() }
    }

    /// Whether slots are free that are left to others.
    pub(crate) fn leaves_some(&self) -> bool {
        self.free_of_all() > self.free()
    }

    /// Whether a fetch of `n` items takes slots of other sessions' lanes.
    pub(crate) fn takes_of_others(&self, n: u64) -> bool {
        let of_home = self.open.first().filter(|(lane, _)| *lane == self.home).map_or(0, |(_, free)| *free);
        n > of_home
    }

    /// The row to watch if none is free: `nfreed`, which changes with each end of an item. If slots are left to others, that would wake the session in vain each time; so
    /// it is the row of its own lane.
    pub(crate) fn watched_row(&self, keyed: &KeyedSpace) -> Vec<u8> {
        if self.leaves_some() { keyed.lane_key(self.home) } else { keyed.nfreed.clone() }
    }

    /// The look for its session to remember: the last one until that is [`idle_after`] old, and then this one.
    pub(crate) fn look(&self, last: Option<Look>) -> Look {
        let age = |look: &Look| self.at.saturating_sub(look.at);
        last.filter(|last| age(last) < idle_after())
            .unwrap_or_else(|| Look { at: self.at, lanes: self.lanes.clone() })
    }

    /// Takes `n` slots, not more than are [free](Self::free), and excludes other fetches that would take the same ones.
    pub(crate) fn take(&self, keyed: &KeyedSpace, tr: &Transaction, n: u64) -> Result<(), QueueError> {
        if self.is_over {
            return self.divide_all(keyed, tr, n);
        }
        let mut left = n;
        for (lane, free) in &self.open {
            let taken = left.min(*free);
            if taken == 0 {
                break;
            }
            left -= taken;
            let gate = keyed.gate_key(&[], *lane);
            let end = after(&gate);
            gates::take(tr, &(gate, end))?;
            count(keyed, tr, *lane, taken.cast_signed());
        }
        Ok(())
    }

    /// Divides the running items, and `n` more, among all lanes.
    fn divide_all(&self, keyed: &KeyedSpace, tr: &Transaction, n: u64) -> Result<(), QueueError> {
        gates::take(tr, &keyed.gate_range(&[]))?;
        let running = self.lanes.running() + n;
        for lane in 0..LANES {
            let by = share(running, lane, lanes_of(self.most)).saturating_sub(self.lanes.of(lane));
            if by != 0 {
                count(keyed, tr, lane, by);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: SessionId = SessionId([7; 16]);

    fn slots(most: u64, rows: &[(u64, i64)], others: Others, at: u64) -> QueueSlots {
        let mut lanes = Lanes::default();
        rows.iter().for_each(|(lane, running)| lanes.set(*lane, *running));
        QueueSlots::new(most, lanes, at, &Taker { session: ME, gate: 5, others })
    }

    #[test]
    fn capacities_together_are_the_limit() {
        for most in [1, 2, 48, 64, 65, 1_000, 4_294_967_295] {
            let lanes = lanes_of(most);
            let sum: i64 = (0..lanes).map(|lane| share(most, lane, lanes)).sum();
            assert_eq!(sum.cast_unsigned(), most);
            assert_eq!(share(most, lanes, lanes), 0);
        }
    }

    #[test]
    fn a_fetch_takes_slots_of_its_home_first() {
        let home = home(ME, 8);
        let empty = slots(8, &[], Others::Take, 0);
        assert_eq!(empty.open[0], (home, 1));
        assert_eq!((empty.open.len(), empty.free()), (8, 8));
        // Its items have ended.
        let other = (home + 1) % 8;
        let mine = slots(8, &[(home, -2), (other, 1)], Others::Take, 0);
        assert_eq!(mine.open[0], (home, 3));
        assert_eq!((mine.free(), mine.lanes.running()), (9, 0));
    }

    #[test]
    fn a_patient_session_takes_what_stays_free() {
        let home = home(ME, 8);
        let all: Vec<_> = (0..8).map(|lane| (lane, 1)).collect();
        // A slot is free in a lane of others.
        let but_one: Vec<_> = all.iter().copied().filter(|(lane, _)| *lane != (home + 3) % 8).collect();
        assert_eq!(slots(8, &but_one, Others::Take, 0).free(), 1);
        let first = slots(8, &but_one, Others::Leave(None), 1_000);
        assert_eq!((first.free(), first.leaves_some()), (0, true));
        let look = first.look(None);
        let soon = slots(8, &but_one, Others::Leave(Some(look.clone())), 1_000 + idle_after() - 1);
        assert_eq!(soon.free(), 0);
        assert_eq!(soon.look(Some(look.clone())).at, 1_000);
        let later = slots(8, &but_one, Others::Leave(Some(look.clone())), 1_000 + idle_after());
        assert_eq!(later.open, [((home + 3) % 8, 1)]);
        // Another slot is free now.
        let but_another: Vec<_> = all.iter().copied().filter(|(lane, _)| *lane != (home + 4) % 8).collect();
        let later = slots(8, &but_another, Others::Leave(Some(look.clone())), 1_000 + idle_after());
        assert_eq!((later.free(), later.leaves_some()), (0, true));
        let long_after = slots(8, &but_one, Others::Leave(Some(look)), 1_000 + LOOK_LASTS * idle_after());
        assert_eq!(long_after.free(), 0);
        // None is left to others where none is free.
        let full = slots(8, &all, Others::Leave(None), 0);
        assert_eq!((full.free(), full.leaves_some()), (0, false));
        // Where many are free, nobody waits.
        assert_eq!(slots(8, &all[..5], Others::Leave(None), 0).free(), 3);
    }

    #[test]
    fn lanes_beyond_their_capacity_are_counted_together() {
        let by_an_earlier_limit = slots(8, &[(0, 6)], Others::Leave(None), 0);
        assert!(by_an_earlier_limit.is_over);
        assert_eq!(by_an_earlier_limit.free(), 2);
        assert_eq!(slots(4, &[(0, 3), (1, 4)], Others::Take, 0).free(), 0);
        // A lane that the limit has no more counts less than nothing.
        let lower = slots(2, &[(0, 1), (1, 1), (40, -1)], Others::Take, 0);
        assert_eq!((lower.is_over, lower.free()), (false, 1));
    }

    #[test]
    fn rows_of_a_foreign_writer_make_no_slot() {
        let absurd = slots(8, &[(0, i64::MIN), (1, i64::MIN), (2, 1)], Others::Take, 0);
        assert_eq!(absurd.lanes.running(), 0);
        assert!(slots(8, &[(0, i64::MAX), (1, i64::MAX)], Others::Take, 0).free() == 0);
    }
}
