//! Schedules as people write them. A table of the configuration file, the body of an HTTP request and the options of a command are all
//! a [`ScheduleDefinition`]; it becomes a schedule of the queue layer.

mod checks;
mod definition;
pub(super) mod in_toml;
mod json_text;

pub use definition::{DefinitionError, MissedName, OverlapName, ScheduleDefinition};
pub use json_text::JsonText;
