//! What the sweepers of this process have found out about its clock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kvqueue_queue::{Believed, ClocksDiffer};

/// The queues in which the clock differs from another process's.
#[derive(Debug, Default)]
pub(super) struct ClockNotes(BTreeMap<Arc<str>, ClocksDiffer>);

impl ClockNotes {
    /// Notes what a sweeper has found. Returns whether it is the first that finds a difference, or the last one is over.
    pub(super) fn note(&mut self, queue: &Arc<str>, clock: Option<ClocksDiffer>) -> Option<ClockChange> {
        let differed = !self.0.is_empty();
        match clock {
            Some(clock) => self.0.insert(queue.clone(), clock),
            None => self.0.remove(queue),
        };
        match (differed, self.text()) {
            (false, Some(text)) => Some(ClockChange::Differs(text)),
            (true, None) => Some(ClockChange::Agrees),
            _ => None,
        }
    }

    /// How far the clock is ahead of one that it does not outvote.
    pub(super) fn lag(&self) -> Duration {
        self.0.values().map(lag).max().unwrap_or_default()
    }

    /// The difference in words, if there is one: where it is greatest.
    pub(super) fn text(&self) -> Option<String> {
        self.0.values().max_by_key(|it| it.apart).map(text)
    }
}

/// A change of what is known about the clock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClockChange {
    /// It differs from another one, in these words.
    Differs(String),
    /// It differs from none any more.
    Agrees,
}

/// How much later than by this clock things are old.
pub(crate) fn lag(clock: &ClocksDiffer) -> Duration {
    let is_ahead = clock.believed != Believed::InAll && clock.is_ahead;
    if is_ahead { clock.apart } else { Duration::ZERO }
}

fn text(clock: &ClocksDiffer) -> String {
    let apart = jiff::SignedDuration::from_secs(clock.apart.as_secs().try_into().unwrap_or(i64::MAX));
    let side = if clock.is_ahead { "ahead of" } else { "behind" };
    let effect = match clock.believed {
        Believed::InAll => "this daemon goes by its own",
        Believed::NotForRemovals => {
            "until one of them is set right, nothing that is old is removed by this one"
        }
        Believed::Not => "until one of them is set right, this daemon goes by the other one",
    };
    format!("this machine's clock is {apart:#} {side} that of another process: {effect}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(hours: u64, is_ahead: bool, believed: Believed) -> Option<ClocksDiffer> {
        Some(ClocksDiffer { apart: Duration::from_hours(hours), is_ahead, believed })
    }

    #[test]
    fn the_first_and_the_last_queue_whose_clocks_differ_make_a_change() {
        let (mut notes, a, b) = (ClockNotes::default(), "a".into(), "b".into());
        assert_eq!(notes.note(&a, None), None);
        let said = notes.note(&a, differ(1, true, Believed::Not));
        let Some(ClockChange::Differs(text)) = said else { panic!("{said:?}") };
        assert_eq!(
            text,
            "this machine's clock is 1h ahead of that of another process: until one of them is set right, this daemon goes by the other one"
        );
        assert_eq!(notes.note(&b, differ(2, false, Believed::InAll)), None);
        assert_eq!(
            notes.text().unwrap(),
            "this machine's clock is 2h behind that of another process: this daemon goes by its own"
        );
        assert_eq!(notes.note(&a, None), None);
        assert_eq!(notes.note(&b, None), Some(ClockChange::Agrees));
        assert_eq!(notes.note(&b, None), None);
    }
}
