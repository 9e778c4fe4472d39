//! Whether the clock of a sweeper's process is to be believed.
//!
//! A sweeper that is alone goes by its clock. One that finds no new reading of another when it starts asks whether it is alone: it writes its own reading down
//! and wakes the other sweepers, which write theirs if these differ. It removes nothing until [`ALONE_AFTER`] is over. Where readings of others, or its own last
//! one, say that it is ahead, it asks in the same way. Until [`WAIT`] is over, and as long as the others are not outvoted after that, the sweeper goes
//! by the slowest of those clocks. So a wrong clock does nothing early, and removes nothing. Readings of sweepers that are gone are not repeated, so a right clock
//! is believed again soon, also after an outage, for which versions stood still.

use std::time::Duration;

use foundationdb::Transaction;
use futures::future::try_join4;

use crate::keys::clocks::{Reading, Readings};
use crate::keys::{Counter, Space};
use crate::model::clocks::{Believed, ClocksDiffer};
use crate::model::error::QueueError;
use crate::model::session_id::SessionId;
use crate::model::time::Millis;
use crate::ops::schedule::write::wake_sweepers;
use crate::run::pause::check_unfrozen;
use mutant::mutant;

/// How long a sweeper waits for the readings of others, in versions: thirty seconds. Sweepers are woken, and answer within a few.
const WAIT: u64 = 30_000_000;

/// How long a sweeper that has found no reading of another removes nothing, in versions: three seconds. Where no sweeper is on duty, which would have written its
/// reading down, others answer within a tenth of a second.
const ALONE_AFTER: u64 = 3_000_000;

/// How often a sweeper asks as long as clocks differ, in versions: ten minutes.
const AGAIN: u64 = 600_000_000;

/// How often a sweeper on duty writes its reading down, in versions: a minute.
const FRESH: u64 = 60_000_000;

/// How long readings are kept that nobody repeats, in versions: an hour.
const KEPT: u64 = 3_600_000_000;

/// A sweeper's clock, before it looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnClock {
    /// Its time.
    pub(crate) time: Millis,
    /// How far it may be from others.
    pub(crate) tolerance: Duration,
    pub(crate) check: ClockCheck,
}

/// What a sweeper has found out about its clock so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClockCheck {
    /// What it said at the last look.
    last: Option<Reading>,
    doubt: Option<Doubt>,
    comparison: Comparison,
}

/// Whether a sweeper has compared its clock with others since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Comparison {
    /// It has not, and has asked nobody.
    #[default]
    Open,
    /// It found no reading of another, and asked at this version.
    Asked(u64),
    /// It has, or nobody has answered.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Doubt {
    /// The version at which it asked last.
    asked: u64,
    /// Readings from this version on are answers to a question for which it has waited long enough.
    answered_from: Option<u64>,
    /// What its clock had said before it stepped ahead, until the answers are there.
    stepped_from: Option<Reading>,
}

/// What a sweeper does about its clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) check: ClockCheck,
    /// It goes by no later time than this.
    pub(crate) latest: Option<Millis>,
    /// It removes nothing by a later time than this.
    pub(crate) removes_by: Option<Millis>,
    /// It asks, with this reading. Readings from before the version are of sweepers that are gone.
    pub(crate) asks: Option<(Reading, u64)>,
    /// In how many versions the answers are there.
    pub(crate) settles_in: Option<u64>,
    /// How far its clock is ahead of the one of another sweeper that is furthest away, in milliseconds.
    pub(crate) ahead: Option<i64>,
    /// It has no reading in the record, or an old one; this one would be right.
    pub(crate) stale: Option<Reading>,
    /// No reading of anybody is new.
    pub(crate) is_forgotten: bool,
}

impl OwnClock {
    /// Judges by the readings, of which those of a later version are from another life of the database.
    pub(crate) fn judge(&self, me: SessionId, readings: &Readings, version: u64) -> Judgement {
        let known = readings.iter().filter(|it| it.version <= version).copied();
        let (mine, others): (Vec<_>, Vec<_>) = known.partition(|it| it.sweeper == me);
        let last = self.check.last.filter(|it| it.version <= version);
        let (steady, stepped): (Option<Reading>, Option<Reading>) = last.map_or((None, None), |it| {
            if self.differs(&it, version) { (None, Some(it)) } else { (Some(it), None) }
        });
        let since = steady.map_or(version, |it| it.since);
        let mine = mine.first();
        let reading =
            Reading { sweeper: me, since, version, time: self.time, asked: mine.map_or(0, |it| it.asked) };
        let stepped_from = stepped.filter(|it| self.is_ahead_of(it, version));
        let standing = self.check.doubt.filter(|it| steady.is_some() && it.asked <= version);
        let doubts = others.iter().any(|it| self.differs(it, version))
            || stepped_from.or_else(|| standing?.stepped_from).is_some();
        if !doubts || mutant("sweepers-trust-their-clocks") {
            let is_fresh =
                |it: &Reading| it.version.saturating_add(FRESH) > version && !self.differs(it, version);
            let comparison = self.compare(&others, version);
            let asks = comparison == Comparison::Asked(version);
            return Judgement {
                check: ClockCheck { last: Some(reading), doubt: None, comparison },
                removes_by: (comparison != Comparison::Done).then_some(0),
                asks: asks.then(|| (Reading { asked: version, ..reading }, version.saturating_sub(KEPT))),
                settles_in: comparison.settles_in(version),
                stale: (!mine.is_some_and(is_fresh)).then_some(reading),
                is_forgotten: !others.iter().chain(mine).any(|it| it.is_new(version)),
                ..Judgement::default()
            };
        }
        let asked_by_others = others.iter().filter(|it| self.differs(it, version)).map(|it| it.asked).max();
        let (doubt, asks) = match standing {
            Some(doubt) => doubt.next(mine, asked_by_others, version),
            None => {
                // The other sweeper has just asked, and has woken all.
                let asked =
                    asked_by_others.filter(|it| it.saturating_add(WAIT / 2) > version).unwrap_or(version);
                (Doubt { asked, answered_from: None, stepped_from }, true)
            }
        };
        let asks = asks.then(|| (Reading { asked: doubt.asked, ..reading }, doubt.keeps_from(version)));
        let is_settled = doubt.answered_from.is_some();
        let comparison = if is_settled { Comparison::Done } else { self.check.comparison };
        let check = ClockCheck { last: Some(reading), doubt: Some(doubt), comparison };
        Judgement { check, asks, ..self.verdict(doubt, &others, reading) }
    }

    /// A reading of another from before the start is as good as an answer, if it is new.
    fn compare(&self, others: &[Reading], version: u64) -> Comparison {
        match self.check.comparison {
            Comparison::Done => Comparison::Done,
            _ if self.tolerance == Duration::MAX => Comparison::Done,
            _ if others.iter().any(|it| it.is_new(version)) || mutant("sweepers-do-not-ask-first") => {
                Comparison::Done
            }
            asked @ Comparison::Asked(at) if at <= version => match asked.settles_in(version) {
                Some(0) => Comparison::Done,
                _ => asked,
            },
            Comparison::Open | Comparison::Asked(_) => Comparison::Asked(version),
        }
    }

    fn verdict(&self, doubt: Doubt, others: &[Reading], own: Reading) -> Judgement {
        let version = own.version;
        let answers = others.iter().filter(|it| doubt.counts(it)).copied();
        let (differing, agreeing): (Vec<_>, Vec<_>) = answers.partition(|it| self.differs(it, version));
        let ahead =
            differing.iter().map(|it| self.apart(it, version)).max_by_key(|apart| apart.unsigned_abs());
        let slower = differing.into_iter().chain(doubt.stepped_from);
        let slower: Vec<_> = slower.filter(|it| self.is_ahead_of(it, version)).collect();
        let slowest = slower.iter().map(|it| it.at(version)).min();
        let is_settled = doubt.answered_from.is_some();
        let is_outvoted = |others: usize| is_settled && agreeing.len() + 1 < others;
        // If as many clocks agree as differ, none is known to be right. What can be undone goes on by the clock that was there first.
        let was_first = slower.iter().all(|it| own.since < it.since);
        let is_believed = slower.is_empty() || (is_settled && agreeing.len() + 1 > slower.len());
        let goes_on = is_believed || (was_first && !is_outvoted(slower.len()));
        Judgement {
            latest: slowest.filter(|_| !goes_on),
            removes_by: slowest.filter(|_| !is_believed),
            settles_in: (!is_settled).then(|| doubt.asked.saturating_add(WAIT).saturating_sub(version)),
            ahead,
            ..Judgement::default()
        }
    }

    /// How far this clock is ahead of another one, in milliseconds.
    fn apart(&self, other: &Reading, version: u64) -> i64 {
        let apart = i128::from(self.time) - i128::from(other.at(version));
        i64::try_from(apart).unwrap_or(if apart < 0 { i64::MIN } else { i64::MAX })
    }

    fn differs(&self, other: &Reading, version: u64) -> bool {
        u128::from(self.apart(other, version).unsigned_abs()) > self.tolerance.as_millis()
    }

    fn is_ahead_of(&self, other: &Reading, version: u64) -> bool {
        self.differs(other, version) && self.apart(other, version) > 0
    }
}

impl Judgement {
    /// The question whether it is alone is not written down: there is no queue yet, or the database did not answer. So it asks again at its next look.
    pub(crate) fn take_question_back(&mut self) {
        if let Comparison::Asked(_) = self.check.comparison
            && self.check.doubt.is_none()
        {
            self.check.comparison = Comparison::Open;
            self.settles_in = None;
        }
    }

    /// Whether the clock was compared with those of others, or there are none.
    pub(crate) fn has_compared(&self) -> bool {
        self.check.comparison == Comparison::Done || self.check.doubt.is_some()
    }

    /// What the clocks say, if another sweeper's differs.
    pub(crate) fn differs(&self) -> Option<ClocksDiffer> {
        let believed = match (self.latest, self.removes_by) {
            (Some(_), _) => Believed::Not,
            (None, Some(_)) => Believed::NotForRemovals,
            (None, None) => Believed::InAll,
        };
        self.ahead.map(|ahead| ClocksDiffer {
            apart: Duration::from_millis(ahead.unsigned_abs()),
            is_ahead: ahead > 0,
            believed,
        })
    }

    /// The time by which a sweeper works whose clock says `own`.
    pub(crate) fn time(&self, own: Millis) -> Millis {
        self.latest.map_or(own, |latest| latest.min(own))
    }

    /// The time by which it removes.
    pub(crate) fn removal_time(&self, own: Millis) -> Millis {
        self.removes_by.map_or(own, |latest| latest.min(own))
    }
}

impl ClockCheck {
    /// That of a sweeper which does not ask.
    pub(crate) const COMPARED: ClockCheck =
        ClockCheck { last: None, doubt: None, comparison: Comparison::Done };
}

impl Comparison {
    /// In how many versions the answers are there.
    fn settles_in(self, version: u64) -> Option<u64> {
        match self {
            Comparison::Asked(at) => Some(at.saturating_add(ALONE_AFTER).saturating_sub(version)),
            Comparison::Open | Comparison::Done => None,
        }
    }
}

impl Reading {
    /// Whether its sweeper was there a short while ago.
    fn is_new(&self, version: u64) -> bool {
        self.version.saturating_add(AGAIN) > version
    }
}

impl Doubt {
    /// A doubt that goes on, and whether to write down what the clock says: nobody has that reading, another sweeper asks, or it is time to ask again.
    fn next(mut self, mine: Option<&Reading>, asked_by_others: Option<u64>, version: u64) -> (Doubt, bool) {
        if version >= self.asked.saturating_add(WAIT) {
            self = Doubt { answered_from: Some(self.asked), stepped_from: None, ..self };
        }
        let asked = asked_by_others.filter(|it| *it <= version).map_or(self.asked, |it| it.max(self.asked));
        let asked = if version >= asked.saturating_add(AGAIN) { version } else { asked };
        (Doubt { asked, ..self }, mine.is_none_or(|it| it.asked < asked))
    }

    /// Whether a reading says something: of a question that is answered only the answers do.
    fn counts(&self, reading: &Reading) -> bool {
        self.answered_from.is_none_or(|from| reading.asked >= from)
    }

    fn keeps_from(&self, version: u64) -> u64 {
        self.answered_from.unwrap_or_else(|| version.saturating_sub(KEPT))
    }
}

/// The readings. A record that this version does not know says nothing, and is replaced.
pub(crate) async fn read(space: &Space, tr: &Transaction, snapshot: bool) -> Result<Readings, QueueError> {
    let value = tr.get(&space.clocks, snapshot).await?;
    Ok(value.as_deref().and_then(Readings::decode).unwrap_or_default())
}

/// Adds a reading, and drops those from before a version.
pub(crate) async fn add(
    space: &Space,
    tr: &Transaction,
    reading: Reading,
    from: u64,
) -> Result<(), QueueError> {
    let mut readings = read(space, tr, false).await?;
    readings.add(reading, from);
    tr.set(&space.clocks, &readings.encode());
    Ok(())
}

/// Adds a reading together with the duty, without asking other sweepers.
pub(crate) async fn note(space: &Space, tr: &Transaction, reading: Reading) -> Result<(), QueueError> {
    add(space, tr, reading, reading.version.saturating_sub(KEPT)).await
}

/// Writes a reading down unless the queue has been deleted: the record would bring its name back. If `wakes`, all sweepers look, and answer.
/// Returns whether there is a queue.
pub(crate) async fn publish(
    space: &Space,
    tr: &Transaction,
    (reading, from): (Reading, u64),
    wakes: bool,
) -> Result<bool, QueueError> {
    // A later deletion clears the record, too, so this transaction conflicts with it.
    let count = async |counter| Ok(tr.get(space.counter(counter), true).await?.is_some());
    let counts = try_join4(
        count(Counter::Push),
        count(Counter::Pop),
        count(Counter::Later),
        check_unfrozen(space, tr),
    );
    let (is_pushed, is_popped, is_late, ()) = counts.await?;
    let exists = is_pushed || is_popped || is_late;
    if exists {
        add(space, tr, reading, from).await?;
        if wakes {
            wake_sweepers(space, tr);
        }
    }
    Ok(exists)
}
