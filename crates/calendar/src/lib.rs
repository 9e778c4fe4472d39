//! The times of kvqueue's schedules: it reads what a user has written and answers which time is next.
//!
//! A [`Calendar`] is a cron expression in a time zone, or a period. Everything here is a function of its
//! arguments: nothing reads a clock, a file or a database. The time zones are those of the IANA database
//! in the version that is compiled in.
//!
//! # Cron expressions
//!
//! Five fields `minute hour day month weekday`, or six with the second first.
//!
//! | field | values | names |
//! |---|---|---|
//! | second | 0 to 59 | |
//! | minute | 0 to 59 | |
//! | hour | 0 to 23 | |
//! | day | 1 to 31, `L` for the last day of the month | |
//! | month | 1 to 12 | `JAN` to `DEC` |
//! | weekday | 0 to 7, where 0 and 7 are Sunday | `SUN` to `SAT` |
//!
//! A field is a list with commas. Its elements are `*`, a value, or a range such as `9-17`. With a step,
//! `*/15` and `0-30/10` take every 15th or 10th value; `5/15` is `5-59/15`. `?` is `*` in the fields day
//! and weekday. `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually` are
//! names of expressions.
//!
//! **Day and weekday.** If one of the two fields begins with `*` or `?`, both have to match. If neither
//! does, either has to match: `0 0 13 * FRI` fires on each 13th and on each Friday. This is the rule of
//! Vixie cron.
//!
//! # Where clocks change
//!
//! *An expression whose hour field has all 24 hours* follows the time that passes. It fires at each
//! instant whose local time matches. `*/15 * * * *` fires every 15 minutes, also while an hour is skipped
//! or repeated.
//!
//! *Any other expression* fires when the clock on the wall first reaches or passes a matching time:
//!
//! - A local time that is skipped fires at the first instant after the gap. If the gap has several
//!   matching times, or the first instant after it matches too, the schedule fires there once.
//! - A local time that is repeated fires once, at its first occurrence.
//!
//! Changes by less than an hour, as on Lord Howe Island, follow the same rules.
//!
//! `docs/decisions/0039-calendar.md` gives the reasons, and says where Vixie cron differs.

mod calendar;
mod cron;
mod describe;
mod error;
mod expression;
mod field;
mod matching;
mod period;
mod values;
mod zone;

use std::time::Duration;

pub use calendar::{Calendar, TimeCount, Times};
pub use error::CalendarError;
pub use field::Field;

/// The longest cron expression that is read, in bytes.
pub const LONGEST_EXPRESSION: usize = 1_000;
/// The shortest period of a schedule.
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// The longest period of a schedule: ten years of 365 days.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(3_650 * 86_400);
