//! Schedules as people write them. A table of the configuration file, the body of an HTTP request and the options of a command are all
//! a [`ScheduleDefinition`]; it becomes a schedule of the queue layer.

mod change;
mod definition;
mod history;
pub(crate) mod in_toml;
mod json_text;
mod names;
mod standing;
mod times;

pub(crate) use change::{Change, Effect, Refusal, ScheduleChange, check_firable, gone};
pub use definition::{DefinitionError, MissedName, OverlapName, ScheduleDefinition};
pub(crate) use history::{object as record_object, words as outcome_words};
pub use json_text::JsonText;
pub(crate) use names::SchedulePage;
pub(crate) use standing::{Firing, firings, from, object as schedule_object};
pub(crate) use times::{from_now, local, local_exact};
