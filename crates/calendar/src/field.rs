//! The fields of a cron expression: their values and names, and how they are read.

use std::fmt;
use std::ops::RangeInclusive;

use crate::CalendarError;
use crate::values::Values;

/// A field of a cron expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// 0 to 59, only in expressions of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// The day of the month, 1 to 31 or `L`.
    Day,
    /// 1 to 12, or `JAN` to `DEC`.
    Month,
    /// 0 to 7, where 0 and 7 are Sunday, or `SUN` to `SAT`.
    Weekday,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Field {
    /// The values that `*` stands for.
    pub(crate) fn all(self) -> RangeInclusive<u8> {
        match self {
            Field::Second | Field::Minute => 0..=59,
            Field::Hour => 0..=23,
            Field::Day => 1..=31,
            Field::Month => 1..=12,
            Field::Weekday => 0..=6,
        }
    }

    /// The greatest number that may be written. It is 7 for weekdays, which is Sunday.
    fn greatest(self) -> u8 {
        if self == Field::Weekday { 7 } else { *self.all().end() }
    }

    /// The names of the values, beginning with the least value.
    fn names(self) -> &'static [&'static str] {
        match self {
            Field::Month => &MONTHS,
            Field::Weekday => &WEEKDAYS,
            _ => &[],
        }
    }

    /// The values in words, for errors.
    fn accepted(self) -> String {
        let numbers = format!("{} to {}", self.all().start(), self.greatest());
        match self.names() {
            [first, .., last] => format!("{numbers} or {first} to {last}"),
            _ => numbers,
        }
    }

    fn is_of_days(self) -> bool {
        matches!(self, Field::Day | Field::Weekday)
    }

    fn error(self, text: &str, problem: impl Into<String>, fix: impl Into<String>) -> CalendarError {
        CalendarError::Field { field: self, text: text.to_owned(), problem: problem.into(), fix: fix.into() }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Second => "second",
            Field::Minute => "minute",
            Field::Hour => "hour",
            Field::Day => "day",
            Field::Month => "month",
            Field::Weekday => "weekday",
        })
    }
}

/// What one field of an expression matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FieldValues {
    pub(crate) values: Values,
    /// Whether `L` is among the days.
    pub(crate) last_day: bool,
    /// Whether the field begins with `*` or `?`. The rule about day and weekday depends on it.
    pub(crate) has_star: bool,
}

impl FieldValues {
    /// Reads a field: elements with commas between them.
    pub(crate) fn parse(field: Field, text: &str) -> Result<FieldValues, CalendarError> {
        let mut parsed = FieldValues { has_star: text.starts_with(['*', '?']), ..FieldValues::default() };
        if text == "?" && field.is_of_days() {
            parsed.values = Values::range(field.all());
            return Ok(parsed);
        }
        for element in text.split(',') {
            if field == Field::Day && element.eq_ignore_ascii_case("L") {
                parsed.last_day = true;
            } else {
                parsed.values = parsed.values.union(element_values(field, element)?);
            }
        }
        if field == Field::Weekday && parsed.values.contains(7) {
            parsed.values.remove(7);
            parsed.values.insert(0);
        }
        Ok(parsed)
    }
}

/// The values of an element: `*`, a value or a range, each with or without a step.
fn element_values(field: Field, element: &str) -> Result<Values, CalendarError> {
    let (range_text, step_text) = match element.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (element, None),
    };
    let range = match range_text.split_once('-') {
        _ if range_text == "*" => field.all(),
        Some((start, end)) if !start.is_empty() => range(field, element, start, end)?,
        _ => {
            let start = value(field, element, range_text)?;
            // A value with a step stands for the range to the end, as in Quartz.
            let end = if step_text.is_some() { start.max(*field.all().end()) } else { start };
            start..=end
        }
    };
    let step = step_text.map_or(Ok(1), |text| step(field, element, text, &range))?;
    Ok(range.step_by(step.into()).collect())
}

/// A range such as `9-17` or `MON-FRI`.
fn range(field: Field, element: &str, start: &str, end: &str) -> Result<RangeInclusive<u8>, CalendarError> {
    let (first, last) = (value(field, element, start)?, value(field, element, end)?);
    if first <= last {
        return Ok(first..=last);
    }
    // A range of weekdays may end with Sunday.
    if field == Field::Weekday && last == 0 {
        return Ok(first..=7);
    }
    let all = field.all();
    let last_of_all = if field == Field::Weekday { 7 } else { *all.end() };
    let fix = format!("write \"{first}-{last_of_all},{}-{last}\"", all.start());
    Err(field.error(element, "the range ends before it begins", fix))
}

/// The step of an element whose values are in `range`.
fn step(field: Field, element: &str, text: &str, range: &RangeInclusive<u8>) -> Result<u8, CalendarError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || text.bytes().all(|byte| byte == b'0') {
        return Err(field.error(element, "the step is not a number from 1", "write it as in \"*/5\""));
    }
    let longest = (range.end() - range.start()).max(1);
    text.parse().ok().filter(|step| *step <= longest).ok_or_else(|| {
        let problem = format!("with this step, only {} would match", range.start());
        let mut fix = format!("write {} alone, or a smaller step", range.start());
        if matches!(field, Field::Second | Field::Minute | Field::Hour) {
            fix += "; longer periods are written as in every = \"90m\"";
        }
        field.error(element, problem, fix)
    })
}

/// A number, or a name of a month or weekday.
fn value(field: Field, element: &str, text: &str) -> Result<u8, CalendarError> {
    let name = field.names().iter().position(|name| name.eq_ignore_ascii_case(text));
    if let Some(position) = name {
        return Ok(position as u8 + field.all().start());
    }
    let allowed = *field.all().start()..=field.greatest();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_a_value(field, element, text));
    }
    text.parse().ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
        field.error(element, format!("{text} is out of range"), format!("write {}", field.accepted()))
    })
}

/// The error about a text that is neither a number nor a name.
fn not_a_value(field: Field, element: &str, text: &str) -> CalendarError {
    let write = format!("write {}", field.accepted());
    if text.is_empty() {
        return field.error(element, "a value is missing", write);
    }
    if text.contains('?') {
        return field.error(element, "? stands alone in the fields day and weekday", "write * instead");
    }
    if field == Field::Day && text.to_ascii_uppercase().contains('L') {
        let fix = "write L alone, or in a list such as \"1,L\"";
        return field.error(element, "L is the last day of the month", fix);
    }
    let is_extension = text.bytes().all(|byte| byte.is_ascii_digit() || b"LlWw#".contains(&byte));
    if field.is_of_days() && is_extension {
        return field.error(element, "L, W and # with a day are not supported", write);
    }
    let abbreviated =
        text.get(..3).filter(|start| field.names().iter().any(|n| n.eq_ignore_ascii_case(start)));
    match abbreviated {
        Some(name) => field.error(
            element,
            format!("{text:?} is not a name"),
            format!("write {}", name.to_ascii_uppercase()),
        ),
        None if field.names().is_empty() => field.error(element, format!("{text:?} is not a number"), write),
        None => field.error(element, format!("{text:?} is neither a number nor a name"), write),
    }
}
