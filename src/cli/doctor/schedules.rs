//! Schedules whose next time is later than their calendars explain: a clock was wrong. They do not fire until then.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant, SystemTime},
};

use foundationdb::Database;
use kvqueue_queue::{
    Queue, QueueError, RetryError, RetryPolicy, from_millis, millis, queues_page, retry,
    schedule::{ScheduleState, ScheduleView},
};

use super::findings::Findings;
use crate::{
    base::{clock, times::after},
    cli::output,
    config::Config,
    telemetry::listed,
};

const ABOUT: &str = "schedules";

/// A next time that is further ahead than this of the one that the calendar has was set by a clock that was wrong. A restart mends
/// such a schedule.
const WRONG_CLOCK: Duration = Duration::from_hours(1);

/// How many schedules one transaction reads.
const PAGE: NonZeroUsize = NonZeroUsize::new(100).expect("it is not 0");

/// The most schedules that are named one by one.
const NAMED: usize = 10;

/// The schedules of a database.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    count: usize,
    ahead: Vec<Ahead>,
    /// Schedules that this version cannot read, as `queue/schedule`.
    unreadable: Vec<String>,
    /// Schedules with the label of the configuration that it does not have, as `queue/schedule`.
    orphans: Vec<String>,
    /// Whether there was no time for other queues.
    is_partial: bool,
}

/// A schedule that waits for longer than its calendar explains.
#[derive(Debug, PartialEq, Eq)]
struct Ahead {
    queue: String,
    schedule: String,
    /// The next time that is stored; `None`: none before the year 10000.
    next: Option<SystemTime>,
    /// The next time by the calendar and this machine's clock.
    by_calendar: SystemTime,
}

impl Schedules {
    /// Reads the schedules of all queues, no longer than this.
    pub(super) async fn of(db: &Database, config: &Config, patience: Duration) -> Result<Self, RetryError> {
        let (prefix, end) = (config.prefix.as_bytes(), Instant::now() + patience);
        let mut found = Self::default();
        let mut from = None;
        loop {
            let first = from.as_deref();
            let page = read(db, async |tr| queues_page(tr, prefix, first).await).await?;
            for name in &page.names {
                if Instant::now() >= end {
                    return Ok(Self { is_partial: true, ..found });
                }
                if let Ok(queue) = Queue::new(prefix, name) {
                    found.look_at(db, &queue, config).await?;
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(found);
            }
        }
    }

    async fn look_at(&mut self, db: &Database, queue: &Queue, config: &Config) -> Result<(), RetryError> {
        let mut last = None::<String>;
        loop {
            let behind = last.as_deref();
            let page = read(db, async |tr| queue.schedules_after(tr, behind, PAGE).await).await?;
            let name = queue.name().escape_ascii().to_string();
            for view in &page {
                self.judge(&name, view, clock::now());
                if is_orphan(queue.name(), view, config) {
                    self.orphans.push(format!("{name}/{}", view.name));
                }
            }
            match page.into_iter().next_back() {
                Some(view) => last = Some(view.name),
                None => return Ok(()),
            }
        }
    }

    fn judge(&mut self, queue: &str, view: &ScheduleView, now: SystemTime) {
        self.count += 1;
        let (Some(schedule), Some(state)) = (&view.schedule, &view.state) else {
            self.unreadable.push(format!("{queue}/{}", view.name));
            return;
        };
        let ScheduleState { next, paused, .. } = *state;
        let by_calendar = schedule.calendar.next_after(millis(now)).map(from_millis);
        let Some(by_calendar) = by_calendar else { return };
        let is_ahead = next.is_none_or(|next| next > after(by_calendar, WRONG_CLOCK));
        // The end of a pause looks at the clock.
        if is_ahead && paused.is_none() {
            self.ahead.push(Ahead {
                queue: queue.to_owned(),
                schedule: view.name.clone(),
                next,
                by_calendar,
            });
        }
    }

    pub(super) fn add_to(self, findings: &mut Findings) {
        for Ahead { queue, schedule, next, by_calendar } in self.ahead.iter().take(NAMED) {
            let waits = next.map_or_else(
                || "does not fire any more".to_owned(),
                |next| format!("does not fire before {}", output::time(next)),
            );
            let text = format!(
                "schedule {schedule:?} of queue {queue:?} {waits}, although {} is one of its times: a clock was wrong, of this machine or of a daemon",
                output::time(*by_calendar)
            );
            let advice =
                format!("set the clocks right; then: kvqueue schedule resume --restart {queue} {schedule}");
            findings.problem(ABOUT, text, advice);
        }
        if self.ahead.len() > NAMED {
            let rest = self.ahead.iter().skip(NAMED);
            let names: Vec<_> = rest.map(|it| format!("{}/{}", it.queue, it.schedule)).collect();
            findings.problem(
                ABOUT,
                format!("wait for a wrong time, too: {}", listed(&names)),
                "restart each (kvqueue schedule resume --restart)",
            );
        }
        if !self.unreadable.is_empty() {
            let text = format!("this version cannot read, and does not fire: {}", listed(&self.unreadable));
            findings.note(ABOUT, text, "upgrade kvqueue; or remove the schedule, and put it again");
        }
        if !self.orphans.is_empty() {
            let text = format!(
                "belong to this configuration and are not in it, and fire all the same: {}",
                listed(&self.orphans)
            );
            let advice = "if no other version of the configuration has them: kvqueue reload; or kvqueue schedule remove --force";
            findings.note(ABOUT, text, advice);
        }
        if self.is_partial {
            let text = "schedules of other queues were not looked at: there was no time for more";
            findings.note(ABOUT, text, "give the command more time with --timeout, or try again");
        } else if self.ahead.is_empty()
            && self.unreadable.is_empty()
            && self.orphans.is_empty()
            && self.count > 0
        {
            findings
                .fine(ABOUT, format!("their next times fit this machine's clock, schedules: {}", self.count));
        }
    }
}

/// Whether a schedule belongs to this configuration, which does not have it: daemons with another version of it have stored it.
fn is_orphan(queue: &[u8], view: &ScheduleView, config: &Config) -> bool {
    let owner = config.schedule_owner.as_deref();
    let is_ours =
        owner.is_some() && view.schedule.as_ref().is_some_and(|schedule| schedule.belongs_to(owner));
    let configured = str::from_utf8(queue).ok().and_then(|name| config.queues.get(name));
    is_ours && !configured.is_some_and(|queue| queue.schedules.contains_key(&view.name))
}

/// Reads something in a transaction.
pub(super) async fn read<T>(
    db: &Database,
    body: impl AsyncFn(&foundationdb::Transaction) -> Result<T, QueueError>,
) -> Result<T, RetryError> {
    let (policy, body) = (RetryPolicy::default(), &body);
    let read = retry::run(db, &policy, |tr| async move {
        let found = body(&tr).await;
        (tr, found)
    });
    Ok(read.await?.value)
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{
        NewItem,
        schedule::{Calendar, Schedule},
    };

    use super::*;

    const HOUR: u64 = 3_600_000;

    /// What is found about an hourly schedule an hour and a half after the epoch.
    fn found(next: Option<u64>, paused: Option<u64>) -> String {
        let calendar = Calendar::every(Duration::from_hours(1)).unwrap();
        let schedule = Schedule::new("tick", calendar, NewItem::new("x"));
        let (next, paused) = (next.map(from_millis), paused.map(from_millis));
        let state = ScheduleState { next, occurrences: 0, last: None, paused, waiting: None };
        let view = ScheduleView { name: "tick".to_owned(), schedule: Some(schedule), state: Some(state) };
        let mut schedules = Schedules::default();
        schedules.judge("q", &view, from_millis(HOUR + HOUR / 2));
        let mut findings = Findings::default();
        schedules.add_to(&mut findings);
        findings.lines()
    }

    #[test]
    fn a_next_time_that_the_calendar_does_not_explain_is_a_problem() {
        let fine = "schedules fine     their next times fit this machine's clock, schedules: 1\n";
        // Not yet fired; the next one; an hour later, as a clock that is a little ahead has it.
        for next in [HOUR, 2 * HOUR, 3 * HOUR] {
            assert_eq!(found(Some(next), None), fine);
        }
        insta::assert_snapshot!(found(Some(48 * HOUR), None), @r#"schedules PROBLEM  schedule "tick" of queue "q" does not fire before 1970-01-03T00:00:00.000Z, although 1970-01-01T02:00:00.000Z is one of its times: a clock was wrong, of this machine or of a daemon; set the clocks right; then: kvqueue schedule resume --restart q tick"#);
        insta::assert_snapshot!(found(None, None), @r#"schedules PROBLEM  schedule "tick" of queue "q" does not fire any more, although 1970-01-01T02:00:00.000Z is one of its times: a clock was wrong, of this machine or of a daemon; set the clocks right; then: kvqueue schedule resume --restart q tick"#);
        assert_eq!(found(Some(48 * HOUR), Some(HOUR)), fine);
    }

    #[test]
    fn a_schedule_of_the_configuration_that_it_does_not_have_is_noted() {
        let calendar = Calendar::every(Duration::from_hours(1)).unwrap();
        let mut schedule = Schedule::new("tick", calendar, NewItem::new("x"));
        let config = Config { schedule_owner: Some("ours".to_owned()), ..Config::default() };
        let mut is_orphan = |owner: Option<&str>| {
            schedule.owner = owner.map(str::to_owned);
            let view =
                ScheduleView { name: "tick".to_owned(), schedule: Some(schedule.clone()), state: None };
            is_orphan(b"q", &view, &config)
        };
        assert_eq!([None, Some("theirs"), Some("ours")].map(&mut is_orphan), [false, false, true]);
        let mut findings = Findings::default();
        Schedules { orphans: vec!["q/tick".to_owned()], ..Schedules::default() }.add_to(&mut findings);
        insta::assert_snapshot!(findings.lines(), @"schedules note     belong to this configuration and are not in it, and fire all the same: q/tick; if no other version of the configuration has them: kvqueue reload; or kvqueue schedule remove --force");
    }

    #[test]
    fn a_schedule_that_cannot_be_read_is_noted() {
        let mut schedules = Schedules::default();
        schedules.judge(
            "q",
            &ScheduleView { name: "s".to_owned(), schedule: None, state: None },
            from_millis(HOUR),
        );
        let mut findings = Findings::default();
        schedules.add_to(&mut findings);
        insta::assert_snapshot!(findings.lines(), @"schedules note     this version cannot read, and does not fire: q/s; upgrade kvqueue; or remove the schedule, and put it again");
    }
}
