//! A cron expression in English.

use crate::expression::{Days, Expression};
use crate::field::Field;
use crate::values::Values;

/// An expression with more hours than these is described by its fields, not by times of the day.
const MOST_TIMES_OF_DAY: u32 = 6;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The expression in English, such as `at 03:00 every day`.
pub(crate) fn describe(expression: &Expression) -> String {
    let mut text = times(expression);
    let days = days(&expression.days);
    // "every 15 minutes" and "at minute 0 of every hour" need no "every day".
    let is_all_day = text.rsplit(" of ").next().is_some_and(|last| last.starts_with("every"));
    if days != "every day" || !is_all_day {
        text = format!("{text} {days}");
    }
    if expression.months != Values::range(Field::Month.all()) {
        text = format!(
            "{text} in {}",
            list(expression.months, |month| MONTHS[usize::from(month) - 1].to_owned())
        );
    }
    text
}

/// The times of the day.
fn times(expression: &Expression) -> String {
    let Expression { seconds, minutes, hours, .. } = *expression;
    if let ([second], [minute]) = (&numbers(seconds)[..], &numbers(minutes)[..])
        && hours.count() <= MOST_TIMES_OF_DAY
    {
        let seconds = if *second == 0 { String::new() } else { format!(":{second:02}") };
        let times = numbers(hours).into_iter().map(|hour| format!("{hour:02}:{minute:02}{seconds}"));
        return format!("at {}", joined(&times.collect::<Vec<_>>()));
    }
    let mut parts = Vec::new();
    if seconds != Values::range(0..=0) {
        parts.push((part(Field::Second, seconds), seconds == Values::range(Field::Second.all())));
    }
    parts.push((part(Field::Minute, minutes), minutes == Values::range(Field::Minute.all())));
    parts.push((part(Field::Hour, hours), expression.is_of_every_hour()));
    // "every 15 minutes of every hour" is "every 15 minutes".
    while let [.., (before, _), (_, true)] = &parts[..]
        && before.starts_with("every")
    {
        parts.pop();
    }
    let text = parts.into_iter().map(|(text, _)| text).collect::<Vec<_>>().join(" of ");
    if text.starts_with("every") { text } else { format!("at {text}") }
}

/// A field of the time of the day: `every minute`, `every 15 minutes`, `minute 5` or `minutes 5 and 10`.
fn part(field: Field, values: Values) -> String {
    let all = field.all();
    if values == Values::range(all.clone()) {
        return format!("every {field}");
    }
    let step = numbers(values).get(1).copied().unwrap_or_default();
    let divides = step > 0 && (*all.end() + 1).is_multiple_of(step);
    if divides && values == all.step_by(step.into()).collect() {
        return format!("every {step} {field}s");
    }
    let plural = if values.count() == 1 { "" } else { "s" };
    format!("{field}{plural} {}", list(values, |value| value.to_string()))
}

/// The days of the month and the weekdays.
fn days(days: &Days) -> String {
    let every_day = days.days == Values::range(Field::Day.all());
    let every_weekday = days.weekdays == Values::range(Field::Weekday.all());
    match (every_day, every_weekday) {
        (true, true) => "every day".to_owned(),
        (true, _) | (_, true) if !days.both => "every day".to_owned(),
        (true, false) => format!("on {}", weekdays(days.weekdays)),
        (false, true) => format!("on {}", days_of_month(days)),
        (false, false) if days.both => {
            format!(
                "on {}, if that is {}",
                days_of_month(days),
                weekdays(days.weekdays).replace(" and ", " or ")
            )
        }
        (false, false) => format!("on {} and on {}", days_of_month(days), weekdays(days.weekdays)),
    }
}

fn days_of_month(days: &Days) -> String {
    let plural = if days.days.count() == 1 { "" } else { "s" };
    let numbers = list(days.days, |day| day.to_string());
    match (days.days.is_empty(), days.last_day) {
        (true, _) => "the last day of the month".to_owned(),
        (false, true) => format!("day{plural} {numbers} and the last day of the month"),
        (false, false) => format!("day{plural} {numbers} of the month"),
    }
}

/// The weekdays, Monday first.
fn weekdays(values: Values) -> String {
    let monday_is_1 = values.iter().map(|day| if day == 0 { 7 } else { day }).collect();
    list(monday_is_1, |day| WEEKDAYS[usize::from(day) - 1].to_owned())
}

/// The values with "and" before the last one. Three or more neighbours are written as a range.
fn list(values: Values, name: impl Fn(u8) -> String) -> String {
    let numbers = numbers(values);
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let names = runs.flat_map(|run| match *run {
        [first, _, .., last] => vec![format!("{} to {}", name(first), name(last))],
        _ => run.iter().map(|&value| name(value)).collect(),
    });
    joined(&names.collect::<Vec<_>>())
}

fn joined(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        _ => names.concat(),
    }
}

fn numbers(values: Values) -> Vec<u8> {
    values.iter().collect()
}
