//! What can be wrong with a schedule that a user has written.

use crate::{Field, LONGEST_EXPRESSION, LONGEST_PERIOD, SHORTEST_PERIOD};

/// A schedule that cannot be used, with the reason and how to write it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// The text is longer than [`LONGEST_EXPRESSION`].
    #[error(
        "the cron expression has {length} bytes; at most {LONGEST_EXPRESSION} are allowed, so write lists of \
         values as ranges, such as 0-10, or steps, such as */5"
    )]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// The text has neither five nor six fields.
    #[error(
        "the cron expression {expression:?} has {found} fields; write 5 (minute hour day month weekday), such \
         as \"0 3 * * *\", or 6 (second minute hour day month weekday), such as \"30 0 3 * * *\""
    )]
    FieldCount {
        /// The expression as the user has written it.
        expression: String,
        /// How many fields it has.
        found: usize,
    },
    /// The text begins with `@`, and is not one of the names for frequent expressions.
    #[error("{name:?} is not a name of a cron expression; {fix}")]
    UnknownName {
        /// The text as the user has written it.
        name: String,
        /// What to write instead.
        fix: String,
    },
    /// A field, or an element of the list in a field, is wrong.
    #[error("cannot read {text:?} in the field {field} of the cron expression: {problem}; {fix}")]
    Field {
        /// The field.
        field: Field,
        /// The element at fault.
        text: String,
        /// What is wrong with it.
        problem: String,
        /// What to write instead.
        fix: String,
    },
    /// No day of the calendar matches, as in `0 0 30 2 *`.
    #[error(
        "the cron expression {expression:?} never matches, because no month that it names has such a day; \
         write a day that exists, or L for the last day of the month"
    )]
    NeverMatches {
        /// The expression as the user has written it.
        expression: String,
    },
    /// The time zone database has no such zone.
    #[error("unknown time zone {name:?}; {fix}")]
    UnknownZone {
        /// The name as the user has written it.
        name: String,
        /// The names that are nearest to it, the best one first; none if none is near.
        nearest: Vec<String>,
        /// What to write instead.
        fix: String,
    },
    /// A period is too short or too long, or has a fraction of a millisecond.
    #[error(
        "a schedule cannot have the period {period:?}; write {SHORTEST_PERIOD:?} to {} days, in whole milliseconds",
        LONGEST_PERIOD.as_secs() / 86_400
    )]
    Period {
        /// The period.
        period: std::time::Duration,
    },
}
