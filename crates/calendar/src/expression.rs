//! A cron expression: five or six fields, or a name such as `@daily`.

use crate::field::{Field, FieldValues};
use crate::values::Values;
use crate::{CalendarError, LONGEST_EXPRESSION};

/// The local times at which a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(crate) seconds: Values,
    pub(crate) minutes: Values,
    pub(crate) hours: Values,
    pub(crate) months: Values,
    pub(crate) days: Days,
}

/// The days of a month on which a schedule fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Days {
    pub(crate) days: Values,
    pub(crate) last_day: bool,
    /// 0 is Sunday.
    pub(crate) weekdays: Values,
    /// Whether the day of the month and the weekday have to match both. Otherwise either has to.
    pub(crate) both: bool,
}

/// The names of frequent expressions.
const NAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Expression {
    /// Reads an expression, and refuses one that matches no day.
    pub(crate) fn parse(text: &str) -> Result<Expression, CalendarError> {
        if text.len() > LONGEST_EXPRESSION {
            return Err(CalendarError::TooLong { length: text.len() });
        }
        let fields = if text.trim().starts_with('@') { named(text.trim())? } else { text };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => {
                let (expression, found) = (text.to_owned(), fields.len());
                return Err(CalendarError::FieldCount { expression, found });
            }
        };
        let expression = Expression {
            seconds: FieldValues::parse(Field::Second, second)?.values,
            minutes: FieldValues::parse(Field::Minute, minute)?.values,
            hours: FieldValues::parse(Field::Hour, hour)?.values,
            days: Days::parse(day, weekday)?,
            months: FieldValues::parse(Field::Month, month)?.values,
        };
        if expression.matches_a_day() {
            Ok(expression)
        } else {
            Err(CalendarError::NeverMatches { expression: text.to_owned() })
        }
    }

    /// Whether the schedule fires in each of the 24 hours, and therefore follows the time that
    /// passes instead of the clock on the wall.
    pub(crate) fn is_of_every_hour(&self) -> bool {
        self.hours == Values::range(Field::Hour.all())
    }
}

impl Days {
    /// Reads the fields day and weekday. Vixie cron's rule: if neither begins with `*`, either has
    /// to match, otherwise both.
    fn parse(day: &str, weekday: &str) -> Result<Days, CalendarError> {
        let day = FieldValues::parse(Field::Day, day)?;
        let weekday = FieldValues::parse(Field::Weekday, weekday)?;
        Ok(Days {
            days: day.values,
            last_day: day.last_day,
            weekdays: weekday.values,
            both: day.has_star || weekday.has_star,
        })
    }
}

/// The expression that a name such as `@daily` stands for.
fn named(name: &str) -> Result<&'static str, CalendarError> {
    if let Some((_, expression)) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok(expression);
    }
    let known = NAMES.map(|(known, _)| known);
    let lower = name.to_ascii_lowercase();
    let nearest = known.iter().min_by_key(|known| strsim::damerau_levenshtein(&lower, known));
    let fix = match nearest.filter(|known| strsim::damerau_levenshtein(&lower, known) <= 2) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None if lower == "@reboot" => "a schedule does not depend on when a program starts".to_owned(),
        None if lower.starts_with("@every") => "write a period as in every = \"5m\"".to_owned(),
        None => format!("write {}, or five fields", known.join(", ")),
    };
    Err(CalendarError::UnknownName { name: name.to_owned(), fix })
}
