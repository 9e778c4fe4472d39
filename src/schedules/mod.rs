//! Schedules as people write them. A table of the configuration file, the body of an HTTP request and the options of a command are all
//! a [`ScheduleDefinition`]; it becomes a schedule of the queue layer.

mod definition;
pub(crate) mod in_toml;

pub use definition::{DefinitionError, MissedName, OverlapName, ScheduleDefinition};
