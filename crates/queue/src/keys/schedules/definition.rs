//! The value of (q, "schedule", name): what is pushed, and when.
//!
//! Written and removed by configurations and operators, and read by every look at the schedule.

use std::time::Duration;

use kvqueue_calendar::Calendar;

use crate::keys::fields::{each, number, pair, put, put_pair, text};
use crate::model::new_item::NewItem;
use crate::model::schedule::{Missed, MissedPolicy, Overlap, Schedule};
use crate::model::time::span_millis;

const CRON: u8 = 1;
const ZONE: u8 = 2;
const PERIOD: u8 = 3;
const OWNER: u8 = 4;
const PAYLOAD: u8 = 5;
const ATTRIBUTE: u8 = 6;
const CONTENT_TYPE: u8 = 7;
const ITEM_KEY: u8 = 8;
const PRIORITY: u8 = 9;
const MISSED: u8 = 10;
const OVERLAP: u8 = 11;
const JITTER: u8 = 12;

/// The window of a schedule without one.
const NO_WINDOW: u64 = u64::MAX;

/// Names in records of what is done about missed occurrences.
const POLICIES: [(u8, MissedPolicy); 3] =
    [(0, MissedPolicy::Skip), (1, MissedPolicy::Once), (2, MissedPolicy::All)];
/// The same for overlaps.
const OVERLAPS: [(u8, Overlap); 3] = [(0, Overlap::Allow), (1, Overlap::Skip), (2, Overlap::Queue)];

pub(crate) fn encode(schedule: &Schedule) -> Vec<u8> {
    let Schedule { name: _, calendar, owner, item, missed, overlap, jitter } = schedule;
    let mut out = Vec::new();
    match calendar.period() {
        Some(period) => put(&mut out, PERIOD, &[&to_millis(period).to_le_bytes()]),
        None => {
            put(&mut out, CRON, &[calendar.to_string().as_bytes()]);
            put(&mut out, ZONE, &[calendar.zone().unwrap_or_default().as_bytes()]);
        }
    }
    if let Some(owner) = owner {
        put(&mut out, OWNER, &[owner.as_bytes()]);
    }
    put(&mut out, PAYLOAD, &[&item.payload]);
    for (name, value) in &item.attributes {
        put_pair(&mut out, ATTRIBUTE, name, value);
    }
    if let Some(text) = &item.content_type {
        put(&mut out, CONTENT_TYPE, &[text.as_bytes()]);
    }
    if let Some(key) = &item.key {
        put(&mut out, ITEM_KEY, &[key]);
    }
    if item.priority != 0 {
        put(&mut out, PRIORITY, &[&item.priority.to_le_bytes()]);
    }
    let window = missed.window.map_or(NO_WINDOW, to_millis);
    let policy = code(&POLICIES, missed.policy);
    put(&mut out, MISSED, &[&[policy], &window.to_le_bytes(), &missed.most.to_le_bytes()]);
    put(&mut out, OVERLAP, &[&[code(&OVERLAPS, *overlap)]]);
    if !jitter.is_zero() {
        put(&mut out, JITTER, &[&to_millis(*jitter).to_le_bytes()]);
    }
    out
}

/// Reads a definition; `None` if it is not one, or says something that this version does not know. Fields that it does not know are
/// passed over.
pub(crate) fn decode(name: &str, value: &[u8]) -> Option<Schedule> {
    let (mut item, mut owner, mut jitter) = (NewItem::default(), None, Duration::ZERO);
    let (mut cron, mut zone, mut period, mut missed, mut overlap) = (None, None, None, None, None);
    for field in each(value) {
        let (tag, content) = field?;
        match tag {
            CRON => cron = Some(text(content)?),
            ZONE => zone = Some(text(content)?),
            PERIOD => period = Some(Duration::from_millis(number(content)?)),
            OWNER => owner = Some(text(content)?),
            PAYLOAD => item.payload = content.to_vec().into(),
            ATTRIBUTE => item.attributes.extend([pair(content)?]),
            CONTENT_TYPE => item.content_type = Some(text(content)?),
            ITEM_KEY => item.key = Some(content.to_vec()),
            PRIORITY => item.priority = i64::from_le_bytes(content.try_into().ok()?),
            MISSED => missed = Some(decode_missed(content)?),
            OVERLAP => overlap = Some(of_code(&OVERLAPS, *content.first()?)?),
            JITTER => jitter = Duration::from_millis(number(content)?),
            _ => {}
        }
    }
    let calendar = match period {
        Some(period) => Calendar::every(period),
        None => Calendar::cron(&cron?, &zone?),
    };
    let (calendar, missed, overlap) = (calendar.ok()?, missed?, overlap?);
    Some(Schedule { name: name.to_owned(), calendar, owner, item, missed, overlap, jitter })
}

fn decode_missed(content: &[u8]) -> Option<Missed> {
    let (policy, rest) = content.split_first()?;
    let (window, most) = rest.split_first_chunk::<8>()?;
    let window = Some(u64::from_le_bytes(*window)).filter(|window| *window != NO_WINDOW);
    Some(Missed {
        policy: of_code(&POLICIES, *policy)?,
        window: window.map(Duration::from_millis),
        most: u32::from_le_bytes(*most.first_chunk()?),
    })
}

fn code<T: Copy + PartialEq>(codes: &[(u8, T)], of: T) -> u8 {
    let found = codes.iter().find(|(_, known)| *known == of);
    found.map(|(code, _)| *code).expect("all are in the table")
}

fn of_code<T: Copy>(codes: &[(u8, T)], code: u8) -> Option<T> {
    codes.iter().find(|(known, _)| *known == code).map(|(_, of)| *of)
}

/// As it is stored; what is longer than can be counted is as long as can be, and no [`NO_WINDOW`].
fn to_millis(time: Duration) -> u64 {
    span_millis(time).min(NO_WINDOW - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calendar() -> impl Strategy<Value = Calendar> {
        prop_oneof![
            (1_000_u64..1_000_000).prop_map(|millis| Calendar::every(Duration::from_millis(millis)).unwrap()),
            (0..60, 0..24, prop_oneof!["UTC", "Europe/Berlin"]).prop_map(|(minute, hour, zone)| {
                Calendar::cron(&format!("{minute} {hour} * * *"), &zone).unwrap()
            }),
        ]
    }

    prop_compose! {
        fn schedule()(
            calendar in calendar(),
            owner: Option<String>, payload: Vec<u8>, priority: i64, key: Option<Vec<u8>>,
            attributes in prop::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
            content_type: Option<String>,
            (policy, overlap) in (0..3_usize, 0..3_usize),
            (window, most, jitter) in (any::<Option<u32>>(), any::<u32>(), any::<u32>()),
        ) -> Schedule {
            let mut item = NewItem { attributes, content_type, priority, key, ..NewItem::default() };
            item.payload = payload.into();
            let window = window.map(|window| Duration::from_millis(window.into()));
            Schedule {
                name: "s".to_owned(),
                calendar,
                owner,
                item,
                missed: Missed { policy: POLICIES[policy].1, window, most },
                overlap: OVERLAPS[overlap].1,
                jitter: Duration::from_millis(jitter.into()),
            }
        }
    }

    proptest! {
        #[test]
        fn definitions_round_trip(schedule in schedule()) {
            prop_assert_eq!(decode("s", &encode(&schedule)), Some(schedule));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode("s", &value);
        }
    }

    #[test]
    fn a_policy_of_a_later_version_makes_a_definition_unreadable_and_a_field_does_not() {
        let schedule = Schedule::new("s", Calendar::cron("@daily", "UTC").unwrap(), NewItem::new("v"));
        let mut value = encode(&schedule);
        put(&mut value, 200, &[b"later"]);
        assert_eq!(decode("s", &value), Some(schedule));
        put(&mut value, OVERLAP, &[&[9]]);
        assert_eq!(decode("s", &value), None);
    }
}
