//! A schedule of each second of one of the queues, and whether each of its times is accounted for. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{payload::Name, plan::Queue};
use crate::support::Random;

/// Its name.
pub(super) const TICK: &str = "tick";

/// Between two of its times, in ms.
const SECOND: u64 = 1_000;

/// As many records as a history keeps.
pub(super) const RECORDS: usize = 1_000;

/// The policies. A time of an outage may fire late, or never; and a time at which the last item has not ended is skipped or not.
const POLICIES: [&[&str]; 4] = [
    &["--missed", "all"],
    &["--missed", "once"],
    &["--missed", "skip"],
    &["--missed", "once", "--overlap", "skip"],
];

/// Which queue it is of, and how it is made.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// The queue's place in the plan.
    pub(super) queue: usize,
    calendar: [&'static str; 2],
    policy: &'static [&'static str],
}

impl Schedule {
    /// Of any queue whose handlers record the attributes of items.
    pub(super) fn draw(random: &mut Random, queues: &[Queue]) -> Self {
        let recorded =
            queues.iter().enumerate().filter(|(_, queue)| queue.is_leased() && queue.is_recorded());
        let places: Vec<usize> = recorded.map(|(place, _)| place).collect();
        Self {
            queue: random.choose(&places),
            calendar: random.choose(&[["--cron", "* * * * * *"], ["--every", "1s"]]),
            policy: random.choose(&POLICIES),
        }
    }

    /// The arguments of the command that makes it.
    pub(super) fn add<'a>(&'a self, queue: &'a str, payload: &'a str) -> Vec<&'a str> {
        let mut args = vec!["schedule", "add", queue, TICK, payload, "--create"];
        args.extend(self.calendar);
        args.extend(self.policy);
        args
    }
}

/// What became of one of its times, or of several that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrences {
    /// The first and the last time, in ms.
    pub(super) from: u64,
    pub(super) to: u64,
    count: u64,
    outcome: String,
    /// The item, if it was pushed.
    id: Option<String>,
}

impl Occurrences {
    fn has_fired(&self) -> bool {
        self.outcome == "fired"
    }
}

/// What `kvqueue schedule history` has printed, the oldest first.
pub(super) fn read(printed: &str) -> Vec<Occurrences> {
    let time = |time: &Value| -> u64 {
        let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
        time.as_millisecond().try_into().unwrap()
    };
    let read = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["exact"], true, "{record}");
        Occurrences {
            from: time(&record["from"]),
            to: time(&record["to"]),
            count: record["count"].as_u64().unwrap(),
            outcome: record["outcome"].as_str().unwrap().to_owned(),
            id: record["item"].as_str().map(str::to_owned),
        }
    };
    printed.lines().rev().map(read).collect()
}

/// The items that have fired.
pub(super) fn fired(queue: usize, history: &[Occurrences]) -> BTreeSet<Name> {
    let fired = history.iter().filter(|record| record.has_fired());
    fired.map(|record| Name::of_time(queue, record.from)).collect()
}

/// The time of an item of a schedule, in ms.
pub(super) fn time(name: Name) -> Option<u64> {
    let time = name.place * SECOND;
    (name == Name::of_time(name.queue, time)).then_some(time)
}

/// The time in ms before which a history has no records any more.
pub(super) fn forgotten_before(history: &[Occurrences]) -> u64 {
    history.first().filter(|_| history.len() >= RECORDS).map_or(0, |first| first.from)
}

/// What is wrong with the history of a schedule that was made between two times, in ms, and that had a daemon after the third one.
pub(super) fn check(history: &[Occurrences], made: (u64, u64), end: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |right: bool, what: String| {
        if !right {
            wrong.push(format!("schedule: {what}"));
        }
    };
    let (Some(first), Some(last)) = (history.first(), history.last()) else {
        return vec!["schedule: none of its times is accounted for".to_owned()];
    };
    let is_whole = history.len() < RECORDS;
    let is_first = (made.0..=made.1 + SECOND).contains(&first.from);
    check(is_first || !is_whole, format!("made at {made:?}, and its first time is {first:?}"));
    check(last.to >= end, format!("was to fire until {end}, and its last time is {last:?}"));
    for pair in history.windows(2) {
        check(pair[1].from == pair[0].to + SECOND, format!("times are missing or double: {pair:?}"));
    }
    for record in history {
        let times = (record.to - record.from) / SECOND + 1;
        let is_right = record.count == times
            && record.from.is_multiple_of(SECOND)
            && record.has_fired() == record.id.is_some()
            && (times == 1 || !record.has_fired());
        check(is_right, format!("what is that: {record:?}"));
        let is_known = ["fired", "missed", "skipped"].contains(&record.outcome.as_str());
        check(is_known, format!("nobody has asked for that: {record:?}"));
    }
    let ids: Vec<_> = history.iter().filter_map(|record| record.id.as_ref()).collect();
    let own: BTreeSet<_> = ids.iter().collect();
    check(own.len() == ids.len(), "two times have one item".to_owned());
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: u64, to: u64, outcome: &str) -> Occurrences {
        let id = (outcome == "fired").then(|| from.to_string());
        Occurrences { from, to, count: (to - from) / SECOND + 1, outcome: outcome.to_owned(), id }
    }

    fn history() -> Vec<Occurrences> {
        vec![record(1_000, 1_000, "fired"), record(2_000, 5_000, "missed"), record(6_000, 6_000, "fired")]
    }

    fn wrong(change: impl FnOnce(&mut Vec<Occurrences>)) -> String {
        let mut history = history();
        change(&mut history);
        check(&history, (300, 400), 6_000).join("; ")
    }

    #[test]
    fn a_time_that_is_not_accounted_for_once_is_found() {
        assert_eq!(wrong(|_| {}), "");
        assert!(wrong(Vec::clear).contains("none"));
        assert!(wrong(|history| drop(history.remove(0))).contains("first time"));
        assert!(wrong(|history| drop(history.pop())).contains("last time"));
        assert!(wrong(|history| drop(history.remove(1))).contains("missing or double"));
        let again = |history: &mut Vec<Occurrences>| history.push(record(6_000, 6_000, "fired"));
        assert!(wrong(again).contains("missing or double"));
        assert!(wrong(|history| history[1].count = 3).contains("what is that"));
        assert!(wrong(|history| history[2].id = Some("1000".to_owned())).contains("one item"));
        assert_eq!(fired(2, &history()).len(), 2);
        assert_eq!(fired(2, &history()).into_iter().filter_map(time).collect::<Vec<_>>(), [1_000, 6_000]);
        assert_eq!(time(Name { queue: 2, producer: 1, place: 1 }), None);
        assert_eq!(forgotten_before(&history()), 0);
        let long: Vec<_> =
            (1..=1_000).map(|second| record(second * SECOND, second * SECOND, "fired")).collect();
        assert_eq!(forgotten_before(&long), 1_000);
    }
}
