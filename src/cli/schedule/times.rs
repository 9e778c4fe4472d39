//! The options for the times of a schedule.

use std::time::Duration;

use crate::{
    cli::UsageError,
    config::{DefinitionError, ScheduleDefinition, duration},
};

/// When a schedule fires.
#[derive(Debug, clap::Args)]
pub(super) struct Times {
    /// At the times of this cron expression: minute, hour, day, month, weekday, as in "0 7 * * MON-FRI"; or @daily and the like
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true, conflicts_with = "every")]
    cron: Option<String>,
    /// The time zone of the expression, as in Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron")]
    zone: Option<String>,
    /// At the multiples of this time since 1970, as in 5m or "1h 30m"
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    every: Option<Duration>,
}

impl Times {
    pub(super) fn is_given(&self) -> bool {
        self.cron.is_some() || self.every.is_some()
    }

    /// A definition with these times and nothing else.
    pub(super) fn definition(&self) -> ScheduleDefinition {
        let (cron, zone) = (self.cron.clone(), self.zone.clone());
        ScheduleDefinition { cron, zone, every: self.every, ..ScheduleDefinition::default() }
    }
}

/// The error for a definition, with the option in place of its field.
pub(super) fn wrong(DefinitionError { field, problem }: DefinitionError) -> UsageError {
    let option = match field {
        "name" => "the name".to_owned(),
        "payload" | "payload_base64" | "payload_json" => "the payload".to_owned(),
        "attributes" => "--attr".to_owned(),
        "key_base64" => "--key".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    };
    UsageError(format!("{option}: {problem}"))
}
