//! A time zone as a series of stretches in which its offset from UTC stays the same.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::CalendarError;

/// How many names an error about an unknown zone suggests.
const SUGGESTIONS: usize = 3;

/// A time zone of the IANA database that is compiled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Zone(TimeZone);

/// A time in which the offset from UTC stays the same. Changes of offsets happen at whole seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    /// The first instant, or the first one of jiff's calendar.
    pub(crate) start: Timestamp,
    /// The first instant of the next stretch. None if the offset never changes again.
    pub(crate) end: Option<Timestamp>,
    offset: Offset,
    /// The local time that the clock on the wall has reached when the stretch before this one ends. No
    /// earlier stretch has shown a later time, because none of the database is so short; a test holds that.
    pub(crate) passed: DateTime,
}

impl Zone {
    /// Finds the zone. Upper and lower case do not matter.
    pub(crate) fn get(name: &str) -> Result<Zone, CalendarError> {
        let found = TimeZoneDatabase::bundled().get(name).ok();
        found.filter(|zone| !zone.is_unknown()).map(Zone).ok_or_else(|| unknown(name))
    }

    /// The name as the database writes it.
    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The stretch that `instant`, a whole second, belongs to.
    pub(crate) fn stretch(&self, instant: Timestamp) -> Stretch {
        let changes = |before| self.0.preceding(before).next().map(|change| change.timestamp());
        let start = instant.checked_add(SignedDuration::from_nanos(1)).ok().and_then(changes);
        let start = start.unwrap_or(Timestamp::MIN);
        let offset = self.0.to_offset(instant);
        let last_before = start.checked_sub(SignedDuration::from_secs(1));
        let offset_before = last_before.map_or(offset, |last| self.0.to_offset(last));
        Stretch {
            start,
            end: self.0.following(instant).next().map(|change| change.timestamp()),
            offset,
            passed: offset_before.to_datetime(start),
        }
    }
}

impl Stretch {
    pub(crate) fn contains(&self, instant: Timestamp) -> bool {
        self.start <= instant && self.end.is_none_or(|end| instant < end)
    }

    /// The local time at an instant of this stretch, or at its end.
    pub(crate) fn local(&self, instant: Timestamp) -> DateTime {
        self.offset.to_datetime(instant)
    }

    /// The instant of a local time, if the stretch has it.
    pub(crate) fn instant(&self, local: DateTime) -> Option<Timestamp> {
        self.offset.to_timestamp(local).ok().filter(|instant| self.contains(*instant))
    }
}

/// The error about an unknown zone, with the names that are nearest to `name`.
fn unknown(name: &str) -> CalendarError {
    let nearest = nearest(name);
    let fix = match nearest.split_first() {
        None => "write a name of the IANA time zone database, such as Europe/Berlin or UTC".to_owned(),
        Some((first, [])) => format!("did you mean {first}?"),
        Some(_) => format!("did you mean one of {}?", nearest.join(", ")),
    };
    CalendarError::UnknownZone { name: name.to_owned(), nearest, fix }
}

/// The names of zones that a user may have meant, the best one first. A part such as `Berlin` is enough.
fn nearest(name: &str) -> Vec<String> {
    let simplified = |name: &str| name.to_ascii_lowercase().replace([' ', '-'], "_");
    let wanted = simplified(name);
    let distance = |known: &str| {
        let known = simplified(known);
        let place = known.rsplit('/').next().unwrap_or_default().to_owned();
        [known, place]
            .into_iter()
            .map(|known| (strsim::damerau_levenshtein(&wanted, &known), known.len()))
            .filter(|(distance, length)| distance * 3 <= *length)
            .map(|(distance, _)| distance)
            .min()
    };
    let names = TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect::<Vec<_>>();
    let mut near: Vec<_> = names.into_iter().filter_map(|known| Some((distance(&known)?, known))).collect();
    near.sort();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    let names = near.into_iter().take_while(|(distance, _)| *distance <= best + 1).map(|(_, known)| known);
    names.take(SUGGESTIONS).collect()
}
