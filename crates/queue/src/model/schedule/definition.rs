//! What a schedule pushes, and when.

use std::ops::RangeInclusive;
use std::time::Duration;

use kvqueue_calendar::Calendar;

use super::{ScheduleError, owner::is_same_owner};
use crate::model::kind::Kind;
use crate::model::new_item::NewItem;
use crate::model::time::{Millis, from_millis, span_millis};

/// The longest name of a schedule in bytes.
pub const MAX_SCHEDULE_NAME: usize = 255;
/// The most schedules of a queue. Processes that make schedules at the same moment may make a few more.
pub const MAX_SCHEDULES: usize = 1_000;
/// The longest payload of a schedule's items in bytes: a definition is one value.
pub const MAX_SCHEDULE_PAYLOAD: usize = 64 << 10;
/// The longest label of a configuration in bytes.
pub const MAX_OWNER: usize = 1 << 10;
/// The most that the times of a schedule are moved.
pub const MAX_JITTER: Duration = Duration::from_hours(24);
/// The longest window of missed occurrences: ten years of 365 days.
pub const MAX_WINDOW: Duration = Duration::from_hours(3_650 * 24);
/// The highest maximum of missed occurrences that fire.
pub const MAX_MOST: u32 = 1_000;

/// The attributes that an item of a schedule has in addition to those of its definition: the schedule's name; the nominal time, as the decimal number of its
/// milliseconds since 1970; the number of the item, from 1. A definition cannot have attributes of these names.
pub const ATTRIBUTES: [&str; 3] = ["schedule", "schedule-time", "schedule-occurrence"];

/// What is done about occurrences that did not fire in time: no daemon ran, the machine slept, or the database was away.
///
/// An occurrence is missed if a later one is due too, or if it is more than a minute late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Which of them fire.
    pub policy: MissedPolicy,
    /// How old a missed occurrence may be to fire, in whole milliseconds; `None`: any age.
    pub window: Option<Duration>,
    /// How many fire after one outage at most, the newest ones; 1 to [`MAX_MOST`]. Only [`MissedPolicy::All`] uses it.
    pub most: u32,
}

impl Default for Missed {
    /// Only the newest fires, however old it is.
    fn default() -> Missed {
        Missed { policy: MissedPolicy::Once, window: None, most: 100 }
    }
}

/// Which missed occurrences fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissedPolicy {
    /// None.
    Skip,
    /// The newest.
    Once,
    /// All, in their order, within the window and the maximum. Only for schedules whose items may overlap.
    All,
}

/// What happens to an occurrence while the schedule's last item has not ended: it is ready, scheduled, retrying or running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It is pushed.
    #[default]
    Allow,
    /// It is skipped.
    Skip,
    /// It waits until the item has ended, however long that takes. At most one occurrence waits; others are skipped meanwhile.
    Queue,
}

/// A schedule: what is pushed, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its name in the queue; 1 to [`MAX_SCHEDULE_NAME`] bytes.
    pub name: String,
    /// When it fires.
    pub calendar: Calendar,
    /// The label of the configuration that it belongs to; `None` if it was made at run time.
    pub owner: Option<String>,
    /// What is pushed: payload, attributes, content type, priority and key. The other fields have to be `None`.
    pub item: NewItem,
    /// What is done about missed occurrences.
    pub missed: Missed,
    /// What is done about an occurrence while the last item has not ended.
    pub overlap: Overlap,
    /// The schedule fires later than its nominal times, always by the same time, which is less than this; up to [`MAX_JITTER`], in whole
    /// milliseconds. It differs between schedules, so that those of the same calendar do not all fire at the same moment.
    pub jitter: Duration,
}

impl Schedule {
    /// A schedule that was made at run time: of missed occurrences the newest fires, and items may overlap.
    pub fn new(name: impl Into<String>, calendar: Calendar, item: NewItem) -> Schedule {
        Schedule {
            name: name.into(),
            calendar,
            owner: None,
            item,
            missed: Missed::default(),
            overlap: Overlap::default(),
            jitter: Duration::ZERO,
        }
    }

    /// Whether it belongs to the configuration of this label; `None`: whether it was made at run time. Paths of a file that differ by
    /// `..` alone are the same label.
    pub fn belongs_to(&self, owner: Option<&str>) -> bool {
        match (self.owner.as_deref(), owner) {
            (Some(own), Some(owner)) => is_same_owner(own, owner),
            (own, owner) => own == owner,
        }
    }

    /// Whether a queue of this kind can have it.
    ///
    /// # Errors
    /// Names what is wrong, and what is possible.
    pub fn check(&self, kind: Kind) -> Result<(), ScheduleError> {
        let Schedule { name, calendar: _, owner, item, missed, overlap, jitter } = self;
        check_len("name", name.len(), 1..=MAX_SCHEDULE_NAME)?;
        check_len("owner", owner.as_ref().map_or(0, String::len), 0..=MAX_OWNER)?;
        check_len("payload", item.payload.len(), 0..=MAX_SCHEDULE_PAYLOAD)?;
        check_millis("jitter", *jitter, MAX_JITTER)?;
        check_millis("window", missed.window.unwrap_or_default(), MAX_WINDOW)?;
        let foreign = [
            ("a unique key", item.unique.is_some()),
            ("a due time", item.due.is_some()),
            ("a time of its push", item.enqueued_at.is_some()),
            ("a trace parent", item.trace_parent.is_some()),
            ("an expiry", item.expires.is_some()),
        ];
        if let Some((what, _)) = foreign.into_iter().find(|(_, is_there)| *is_there) {
            return Err(ScheduleError::ForeignField { what });
        }
        if let Some(name) = ATTRIBUTES.into_iter().find(|name| item.attributes.contains_key(*name)) {
            return Err(ScheduleError::ReservedAttribute { name });
        }
        if !(1..=MAX_MOST).contains(&missed.most) {
            return Err(ScheduleError::Maximum { most: missed.most });
        }
        if missed.policy == MissedPolicy::All && *overlap != Overlap::Allow {
            return Err(ScheduleError::AllWithoutOverlap);
        }
        // With all attributes, which count too.
        Ok(self.item(u64::MAX, u64::MAX, 0, None).check(kind, MAX_SCHEDULE_PAYLOAD)?)
    }

    /// The item of an occurrence, pushed at `now` by the clock of the look. It expires after `ttl`, if there is one.
    pub(crate) fn item(
        &self,
        nominal: Millis,
        occurrence: u64,
        now: Millis,
        ttl: Option<Duration>,
    ) -> NewItem {
        let [name, time, number] = ATTRIBUTES;
        let mut item = self.item.clone().with_enqueued_at(from_millis(now));
        item.expires = ttl.and_then(|ttl| from_millis(now).checked_add(ttl));
        let item = item.with_attribute(name, self.name.clone()).with_attribute(time, nominal.to_string());
        let item = item.with_attribute(number, occurrence.to_string());
        match self.overlap {
            Overlap::Allow => item,
            Overlap::Skip | Overlap::Queue => item.with_unique(unique_key(&self.name)),
        }
    }

    /// How much later than its nominal times it fires in a queue of this name, in whole milliseconds: less than the jitter.
    pub fn offset(&self, queue: &[u8]) -> Duration {
        Duration::from_millis(self.offset_millis(queue))
    }

    /// [`Schedule::offset`] in milliseconds.
    pub(crate) fn offset_millis(&self, queue: &[u8]) -> Millis {
        let jitter = span_millis(self.jitter);
        // FNV-1a, and a finalizer: a fixed function of both names, the same in every process.
        let names = queue.iter().chain(b"\0").chain(self.name.as_bytes());
        let hash = names.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        if jitter == 0 { 0 } else { (hash ^ (hash >> 32)) % jitter }
    }
}

fn check_len(what: &'static str, len: usize, possible: RangeInclusive<usize>) -> Result<(), ScheduleError> {
    if possible.contains(&len) {
        return Ok(());
    }
    Err(ScheduleError::Length { what, len, least: *possible.start(), most: *possible.end() })
}

fn check_millis(what: &'static str, time: Duration, most: Duration) -> Result<(), ScheduleError> {
    let is_stored = Duration::from_millis(span_millis(time)) == time;
    if is_stored && time <= most { Ok(()) } else { Err(ScheduleError::Time { what, time, most }) }
}

/// What the unique keys of schedules' items begin with.
const UNIQUE: &[u8] = b"\xff\x00schedule\x00";

/// The unique key of the items of a schedule, if they may not overlap.
pub(crate) fn unique_key(name: &str) -> Vec<u8> {
    [UNIQUE, name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        Schedule::new("s", Calendar::every(Duration::from_secs(1)).unwrap(), NewItem::new("v"))
    }

    fn refused(change: impl FnOnce(&mut Schedule)) -> String {
        let mut schedule = schedule();
        change(&mut schedule);
        schedule.check(Kind::Fifo).expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_schedule_that_cannot_be_stored_is_refused() {
        schedule().check(Kind::Fifo).unwrap();
        assert!(refused(|s| s.name = String::new()).contains("name"));
        assert!(refused(|s| s.name = "x".repeat(256)).contains("256"));
        assert!(refused(|s| s.owner = Some("x".repeat(1_025))).contains("owner"));
        assert!(refused(|s| s.item.payload = vec![0; MAX_SCHEDULE_PAYLOAD + 1].into()).contains("payload"));
        assert!(refused(|s| s.item.unique = Some(vec![1])).contains("unique key"));
        assert!(refused(|s| s.item.expires = Some(from_millis(1))).contains("an expiry"));
        assert!(refused(|s| s.item = s.item.clone().with_attribute("schedule", "x")).contains("schedule"));
        assert!(refused(|s| s.missed.most = 0).contains("1 to 1000"));
        assert!(refused(|s| s.item.priority = 3).contains("cannot push"));
        assert!(refused(|s| s.jitter = Duration::from_micros(1_500)).contains("jitter"));
        assert!(refused(|s| s.jitter = MAX_JITTER + Duration::from_secs(1)).contains("86400s"));
        assert!(refused(|s| s.missed.window = Some(Duration::MAX)).contains("window"));
        let all = Missed { policy: MissedPolicy::All, ..Missed::default() };
        let overlaps = |overlap| Schedule { missed: all, overlap, ..schedule() }.check(Kind::Fifo);
        overlaps(Overlap::Allow).unwrap();
        overlaps(Overlap::Queue).unwrap_err();
    }

    #[test]
    fn jitter_is_fixed_for_a_schedule_and_below_its_bound() {
        let offset = |name: &str, jitter| {
            Schedule { name: name.to_owned(), jitter: Duration::from_millis(jitter), ..schedule() }
                .offset_millis(b"q")
        };
        let offsets: Vec<_> = (0..100).map(|n| offset(&format!("s{n}"), 1_000)).collect();
        assert!(offsets.iter().all(|offset| *offset < 1_000));
        assert!(offsets.iter().filter(|offset| **offset < 500).count() > 25, "{offsets:?}");
        assert_eq!((offset("s1", 1_000), offset("s1", 0)), (offsets[1], 0));
    }

    #[test]
    fn an_item_that_may_not_overlap_has_the_unique_key_of_its_schedule() {
        let item = |overlap| Schedule { overlap, ..schedule() }.item(60_000, 7, 60_500, None);
        assert_eq!(item(Overlap::Allow).unique, None);
        let item = item(Overlap::Skip);
        assert_eq!(item.attributes["schedule-time"], "60000");
        assert_eq!(item.attributes["schedule-occurrence"], "7");
        assert_eq!(item.unique, Some(b"\xff\x00schedule\x00s".to_vec()));
    }
}
