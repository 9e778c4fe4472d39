//! Which sweeper looks after a queue: one does, and the others only look whether it still does.
//!
//! The sweeper on duty has written down when it looks again. The others are on standby until then, and for a grace time that is
//! different for each of them. Then the first of them takes over, since the one on duty is late and may be dead.

use std::ops::Range;

use foundationdb::Transaction;
use futures::future::try_join;

use crate::keys::clocks::Reading;
use crate::keys::duty::Duty;
use crate::keys::{Counter, Space};
use crate::model::error::QueueError;
use crate::model::session_id::SessionId;
use crate::model::time::Millis;
use crate::ops::clocks;
use crate::ops::clocks::OwnClock;
use mutant::mutant;

/// How late the sweeper on duty may be before another one takes over, in versions: one second.
const GRACE: u64 = 1_000_000;

/// The grace times of the others differ by up to this, in versions: two seconds.
pub(crate) const SPREAD: u64 = 2_000_000;

/// How soon a sweeper looks at marks of batches again, in versions: half a second.
pub(crate) const MARKS_PACE: u64 = 500_000;

/// How long an idle queue is not looked through, in versions: ten minutes. All records that need a sweeper appear with a change of
/// `npop`; except in a recipe's queue, from which foreign programs take without it.
pub(crate) const IDLE: u64 = 600_000_000;

/// A sweeper, before it looks.
#[derive(Debug, Clone)]
pub(crate) struct Lookout {
    pub(crate) me: SessionId,
    /// The time by which it works: that of its clock, or an earlier one.
    pub(crate) now: Millis,
    /// The length of the shortest leases that it knows, in versions. 0: it looks at everything, whatever others do.
    pub(crate) lease: u64,
    /// Its own part of [`SPREAD`], in versions.
    pub(crate) share: u64,
    /// The version of its last look.
    pub(crate) last: u64,
    /// Whether it has found the one on duty late.
    pub(crate) takes_over: bool,
    /// At these versions, which began with its last look at everything, it need not look at everything again.
    pub(crate) pause: Range<u64>,
    /// The version from which on it looks at marks of batches again.
    pub(crate) marks_from: u64,
    /// Its clock, which a look judges.
    pub(crate) clock: OwnClock,
}

/// How much a look reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nothing more: another sweeper is on duty until this version.
    Standby(u64),
    /// Scheduled items.
    Scheduled,
    /// Scheduled items; and everything, unless `npop` is still this. The version is when it is to be read again.
    Unless(u64, u64),
    /// Everything.
    Everything,
}

impl Lookout {
    #[cfg(test)]
    pub(crate) fn always() -> Lookout {
        Lookout {
            me: SessionId([0; 16]),
            now: 0,
            lease: 0,
            share: 0,
            last: 0,
            takes_over: false,
            pause: 0..0,
            marks_from: 0,
            clock: OwnClock::default(),
        }
    }

    /// Whether it looks at everything, whatever others do.
    pub(crate) fn looks_always(&self) -> bool {
        self.lease == 0
    }

    /// The scope of a look at this version, from the record of duty and from the earliest time that an item waits for.
    pub(crate) fn scope(&self, version: u64, duty: Option<Duty>, due: Option<Millis>) -> Scope {
        if self.looks_always() {
            return Scope::Everything;
        }
        let duty = duty.filter(|duty| is_plausible(duty, version));
        let is_mine = duty.is_some_and(|duty| duty.sweeper == self.me);
        let late_after = if is_mine { 0 } else { self.patience() };
        if duty.is_some() && !is_mine && (self.takes_over || due.is_some_and(|due| self.is_late(due))) {
            return Scope::Everything;
        }
        let own = if self.pause.contains(&version) { Scope::Scheduled } else { Scope::Everything };
        let Some(duty) = duty else { return own };
        let until = duty.until.min(duty.looked.saturating_add(IDLE)).saturating_add(late_after);
        match duty.idle {
            Some(npop) if version < until && own == Scope::Everything => {
                Scope::Unless(npop, until.min(version.saturating_add(self.lease)))
            }
            Some(_) => own,
            None if is_mine => own,
            None => {
                // The sweeper on duty may know longer leases only.
                let until = until.min(duty.looked.saturating_add(self.lease + late_after));
                if version <= until && !mutant("all-sweepers-look") { Scope::Standby(until + 1) } else { own }
            }
        }
    }

    /// Whether an item should have been made ready long since by the sweeper on duty.
    fn is_late(&self, due: Millis) -> bool {
        due.saturating_add(self.patience() / 1_000) <= self.now
    }

    /// When it looks at marks of batches again, if it has done so a short while before: the ends of many members must not keep it busy all the time.
    pub(crate) fn marks_again(&self, version: u64) -> Option<Millis> {
        let left = self.marks_from.saturating_sub(version);
        // Versions may have gone back.
        (1..=MARKS_PACE).contains(&left).then(|| self.now.saturating_add(left.div_ceil(1_000)))
    }

    /// How long it leaves work to the sweeper on duty, in versions.
    pub(crate) fn patience(&self) -> u64 {
        GRACE + self.share
    }

    /// Whether it leaves work to another sweeper at first.
    pub(crate) fn is_second(&self, version: u64, duty: Option<Duty>) -> bool {
        let other = |duty: Duty| duty.sweeper != self.me && is_plausible(&duty, version);
        !self.looks_always() && duty.is_some_and(other)
    }
}

/// A record from a later version is of another life of the database, before versions went back.
fn is_plausible(duty: &Duty, version: u64) -> bool {
    duty.looked <= version
}

/// The record of duty.
pub(crate) async fn read(
    space: &Space,
    tr: &Transaction,
    snapshot: bool,
) -> Result<Option<Duty>, QueueError> {
    Ok(tr.get(&space.duty, snapshot).await?.as_deref().and_then(Duty::decode))
}

/// Writes that this sweeper is on duty, and what its clock says, unless another one has since the record was `seen`. Returns whether it wrote that.
///
/// It writes nothing into a queue without `npop`: the queue has been deleted since, and a record would bring its name back.
pub(crate) async fn take(
    space: &Space,
    tr: &Transaction,
    seen: Option<Duty>,
    duty: Duty,
    clock: Option<Reading>,
) -> Result<bool, QueueError> {
    // A later deletion clears the record, too, so this transaction conflicts with it.
    let is_counted = async { Ok(tr.get(space.counter(Counter::Pop), true).await?.is_some()) };
    let (now, is_counted) = try_join(read(space, tr, false), is_counted).await?;
    let is_free = now == seen && is_counted;
    if is_free {
        tr.set(&space.duty, &duty.encode());
        if let Some(reading) = clock {
            clocks::note(space, tr, reading).await?;
        }
    }
    Ok(is_free)
}

/// Clears the record, if this sweeper is on duty.
pub(crate) async fn leave(space: &Space, tr: &Transaction, me: SessionId) -> Result<(), QueueError> {
    if read(space, tr, false).await?.is_some_and(|duty| duty.sweeper == me) {
        tr.clear(&space.duty);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue::Queue;
    use crate::keys::counters;
    use crate::testing::on_database;

    const ME: SessionId = SessionId([1; 16]);
    const OTHER: SessionId = SessionId([2; 16]);
    const LEASE: u64 = 30_000_000;
    const NOW: Millis = 50_000;
    const SHARE: u64 = 500_000;

    fn lookout(pause: Range<u64>) -> Lookout {
        Lookout {
            me: ME,
            now: NOW,
            lease: LEASE,
            share: SHARE,
            last: 0,
            takes_over: false,
            pause,
            marks_from: 0,
            clock: OwnClock::default(),
        }
    }

    fn duty(sweeper: SessionId, idle: Option<u64>) -> Option<Duty> {
        Some(Duty { sweeper, looked: 1_000, until: 20_000_000, idle })
    }

    #[test]
    fn a_sweeper_is_on_standby_until_the_one_on_duty_is_late() {
        let scope = |version| lookout(0..0).scope(version, duty(OTHER, None), None);
        let until = 20_000_000 + GRACE + SHARE;
        assert_eq!(scope(1_000), Scope::Standby(until + 1));
        assert_eq!(scope(until), Scope::Standby(until + 1));
        assert_eq!(scope(until + 1), Scope::Everything);
        // The record is from before versions went back.
        assert_eq!(scope(999), Scope::Everything);
        assert_eq!(lookout(0..0).scope(5_000, None, None), Scope::Everything);
    }

    #[test]
    fn the_sweeper_on_duty_goes_by_its_own_pause() {
        let scope = |version| lookout(1_000..9_000).scope(version, duty(ME, None), Some(0));
        assert_eq!((scope(8_999), scope(9_000)), (Scope::Scheduled, Scope::Everything));
        let all = Lookout { lease: 0, ..lookout(0..u64::MAX) };
        assert_eq!(all.scope(5_000, duty(OTHER, None), None), Scope::Everything);
    }

    #[test]
    fn a_sweeper_with_shorter_leases_does_not_wait_longer_than_these() {
        let short = Lookout { lease: 1_000_000, ..lookout(0..0) };
        let until = 1_000 + 1_000_000 + GRACE + SHARE;
        assert_eq!(short.scope(until, duty(OTHER, None), None), Scope::Standby(until + 1));
        assert_eq!(short.scope(until + 1, duty(OTHER, None), None), Scope::Everything);
    }

    #[test]
    fn a_late_scheduled_item_ends_a_standby() {
        let late = NOW - (GRACE + SHARE) / 1_000;
        for idle in [None, Some(7)] {
            let scope = |due| lookout(0..9_000).scope(5_000, duty(OTHER, idle), Some(due));
            assert_eq!(scope(late), Scope::Everything);
            assert_ne!(scope(late + 1), Scope::Everything);
            // It is the one on duty itself.
            assert_eq!(lookout(0..9_000).scope(5_000, duty(ME, idle), Some(0)), Scope::Scheduled);
        }
    }

    #[test]
    fn an_idle_queue_is_looked_through_when_npop_changes_or_after_ten_minutes() {
        let seen = |sweeper| Some(Duty { sweeper, looked: 1_000, until: u64::MAX, idle: Some(7) });
        let scope = |version, sweeper| lookout(1_000..9_000).scope(version, seen(sweeper), None);
        assert_eq!(scope(8_999, OTHER), Scope::Scheduled);
        assert_eq!(scope(9_000, OTHER), Scope::Unless(7, 9_000 + LEASE));
        assert_eq!(scope(IDLE, ME), Scope::Unless(7, IDLE + 1_000));
        assert_eq!(scope(IDLE + 1_000, ME), Scope::Everything);
        let until = IDLE + 1_000 + GRACE + SHARE;
        assert_eq!(scope(until - 1, OTHER), Scope::Unless(7, until));
        assert_eq!(scope(until, OTHER), Scope::Everything);
    }

    #[test]
    fn a_sweeper_does_not_bring_back_a_deleted_queue() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let (space, taken) = (queue.space(), duty(ME, None).unwrap());
            let begin = || db.create_trx().unwrap();
            // It has been deleted before the record is written.
            assert!(!take(space, &begin(), None, taken, None).await.unwrap());
            let tr = begin();
            tr.set(space.counter(Counter::Pop), &counters::increment(1));
            tr.commit().await.unwrap();
            // It is deleted while the record is written.
            let tr = begin();
            assert!(take(space, &tr, None, taken, None).await.unwrap());
            let deletes = begin();
            queue.delete(&deletes);
            deletes.commit().await.unwrap();
            assert!(tr.commit().await.is_err());
            assert_eq!(read(space, &begin(), true).await.unwrap(), None);
        });
    }
}
