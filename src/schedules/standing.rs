//! How a schedule stands: its state, and when it fires next.

use std::{
    iter::successors,
    time::{Duration, SystemTime},
};

use kvqueue_queue::{
    from_millis, millis,
    schedule::{Schedule, ScheduleState, ScheduleView},
};
use serde_json::{Map, Value, json};

use crate::{
    base::{
        json::{insert_bytes, time},
        times::{after, just_before},
    },
    config::ScheduleDefinition,
};

/// A schedule is overdue if it has not fired this long after it should have.
const OVERDUE: Duration = Duration::from_mins(1);

/// What a schedule does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It fires when it is due.
    Active,
    /// It has been due for more than a minute: no daemon processes its queue, or they cannot.
    Overdue,
    /// It does not fire, since this time.
    Paused(SystemTime),
    /// The occurrence of this nominal time waits for the end of the last item.
    Waiting(SystemTime),
    /// This version of kvqueue cannot read it.
    Unreadable,
}

impl Standing {
    /// At `now`, of a schedule in a queue of this name.
    pub(crate) fn of(view: &ScheduleView, queue: &[u8], now: SystemTime) -> Self {
        let (Some(schedule), Some(state)) = (&view.schedule, &view.state) else { return Self::Unreadable };
        match (state.paused, state.waiting, state.next) {
            (Some(since), ..) => Self::Paused(since),
            (None, Some(nominal), _) => Self::Waiting(nominal),
            (None, None, Some(next)) if after(after(next, schedule.offset(queue)), OVERDUE) < now => {
                Self::Overdue
            }
            _ => Self::Active,
        }
    }

    /// The name, for programs and for people.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Overdue => "overdue",
            Self::Paused(_) => "paused",
            Self::Waiting(_) => "waiting",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A time at which a schedule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Firing {
    /// The time that the calendar gives.
    pub(crate) nominal: SystemTime,
    /// The same with the jitter.
    pub(crate) fires: SystemTime,
}

impl Firing {
    pub(crate) fn json(self) -> Value {
        json!({ "time": time(self.nominal), "fires_at": time(self.fires) })
    }
}

/// When a schedule of a queue of this name fires behind a time, by its calendar alone.
pub(crate) fn firings(schedule: &Schedule, queue: &[u8], behind: SystemTime) -> impl Iterator<Item = Firing> {
    let (offset, calendar) = (schedule.offset(queue), &schedule.calendar);
    let times = successors(calendar.next_after(millis(behind)), |last| calendar.next_after(*last));
    times.map(from_millis).map(move |nominal| Firing { nominal, fires: after(nominal, offset) })
}

/// After which time the next ones are: what is stored, or for a paused schedule `now`, since it skips what is due when it is resumed.
pub(crate) fn from(state: &ScheduleState, now: SystemTime) -> SystemTime {
    match (state.paused, state.next) {
        (None, Some(next)) => just_before(next),
        (Some(_), _) | (None, None) => now,
    }
}

/// A schedule as JSON. A payload is there only if it is asked for.
pub(crate) fn object(queue: &[u8], view: &ScheduleView, now: SystemTime, with_payload: bool) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "queue", queue);
    let standing = Standing::of(view, queue, now);
    object.insert("name".to_owned(), json!(view.name));
    object.insert("state".to_owned(), json!(standing.as_str()));
    if let Standing::Paused(since) = standing {
        object.insert("paused_since".to_owned(), json!(time(since)));
    }
    if let Standing::Waiting(nominal) = standing {
        object.insert("waiting_time".to_owned(), json!(time(nominal)));
    }
    if let Some(schedule) = &view.schedule {
        object.insert("description".to_owned(), json!(schedule.calendar.description()));
        object.insert("owner".to_owned(), json!(schedule.owner));
        object.insert("definition".to_owned(), definition(schedule, with_payload));
        object.insert("payload_bytes".to_owned(), json!(schedule.item.payload.len()));
    }
    if let Some(state) = &view.state {
        let next = state.next.filter(|_| state.paused.is_none());
        let offset = view.schedule.as_ref().map_or(Duration::ZERO, |schedule| schedule.offset(queue));
        let next = next.map(|nominal| Firing { nominal, fires: after(nominal, offset) });
        object.insert("next".to_owned(), json!(next.map(Firing::json)));
        let last = state.last.as_ref();
        let last = last.map(|(nominal, id)| json!({ "time": time(*nominal), "item": id.to_string() }));
        object.insert("last".to_owned(), json!(last));
        object.insert("occurrences".to_owned(), json!(state.occurrences));
    }
    Value::Object(object)
}

fn definition(schedule: &Schedule, with_payload: bool) -> Value {
    let mut definition = json!(ScheduleDefinition::from(schedule));
    if !with_payload && let Some(fields) = definition.as_object_mut() {
        fields.retain(|name, _| !name.starts_with("payload"));
    }
    definition
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{NewItem, schedule::Calendar};

    use super::*;

    const MINUTE: u64 = 60_000;

    fn view(change: impl FnOnce(&mut ScheduleState)) -> ScheduleView {
        let calendar = Calendar::every(Duration::from_mins(5)).unwrap();
        let mut state = ScheduleState {
            next: Some(from_millis(5 * MINUTE)),
            occurrences: 0,
            last: None,
            paused: None,
            waiting: None,
        };
        change(&mut state);
        let schedule = Schedule::new("s", calendar, NewItem::new("the payload"));
        ScheduleView { name: "s".to_owned(), schedule: Some(schedule), state: Some(state) }
    }

    #[test]
    fn a_schedule_is_overdue_after_a_minute_unless_it_is_paused_or_waits() {
        let at = |view: &ScheduleView, now| Standing::of(view, b"q", from_millis(now));
        let active = view(|_| {});
        assert_eq!(at(&active, 6 * MINUTE), Standing::Active);
        assert_eq!(at(&active, 6 * MINUTE + 1), Standing::Overdue);
        assert_eq!(
            at(&view(|state| state.paused = Some(from_millis(7))), 9 * MINUTE),
            Standing::Paused(from_millis(7))
        );
        assert_eq!(
            at(&view(|state| state.waiting = Some(from_millis(7))), 9 * MINUTE),
            Standing::Waiting(from_millis(7))
        );
        assert_eq!(at(&ScheduleView { state: None, ..active }, 0), Standing::Unreadable);
    }

    #[test]
    fn the_next_times_of_a_paused_schedule_begin_now() {
        let next = |view: &ScheduleView, now| {
            let (schedule, state) = (view.schedule.as_ref().unwrap(), view.state.as_ref().unwrap());
            firings(schedule, b"q", from(state, from_millis(now)))
                .map(|it| millis(it.nominal) / MINUTE)
                .take(2)
                .collect::<Vec<_>>()
        };
        assert_eq!(next(&view(|_| {}), 12 * MINUTE), [5, 10], "it is overdue, and fires");
        assert_eq!(next(&view(|state| state.paused = Some(from_millis(7))), 12 * MINUTE), [15, 20]);
    }

    #[test]
    fn json_of_a_schedule_has_its_payload_only_if_asked_and_no_next_time_in_a_pause() {
        let shown = |view: &ScheduleView, whole| object(b"q", view, from_millis(0), whole);
        let active = shown(&view(|_| {}), true);
        assert_eq!(active["definition"]["payload"], "the payload");
        assert_eq!(active["next"]["time"], "1970-01-01T00:05:00.000Z");
        let paused = shown(&view(|state| state.paused = Some(from_millis(0))), false);
        assert_eq!(paused["definition"]["payload"], Value::Null);
        assert_eq!((&paused["payload_bytes"], &paused["next"]), (&json!(11), &Value::Null));
        assert_eq!(
            (&paused["state"], &paused["paused_since"]),
            (&json!("paused"), &json!("1970-01-01T00:00:00.000Z"))
        );
    }
}
