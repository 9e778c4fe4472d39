//! The tables of a queue's schedules in the configuration file, whose fields have hyphens.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::{
    JsonText, MissedName, OverlapName, ScheduleDefinition, duration, number,
    schedule::{
        definition::{is_default_maximum, is_zero},
        json_text::as_value,
    },
    whole,
};

/// The same fields; the compiler checks that.
#[derive(Serialize, Deserialize)]
#[serde(
    remote = "ScheduleDefinition",
    rename_all = "kebab-case",
    deny_unknown_fields,
    default = "ScheduleDefinition::default",
    expecting = "a table such as { every = \"5m\" }"
)]
struct Hyphened {
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(with = "duration::optional", skip_serializing_if = "Option::is_none")]
    every: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(with = "as_value", skip_serializing_if = "Option::is_none")]
    payload_json: Option<JsonText>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(deserialize_with = "whole::deserialize", skip_serializing_if = "is_zero")]
    priority: i64,
    missed: MissedName,
    #[serde(with = "duration::optional", skip_serializing_if = "Option::is_none")]
    missed_window: Option<Duration>,
    #[serde(deserialize_with = "number::deserialize", skip_serializing_if = "is_default_maximum")]
    missed_max: u32,
    overlap: OverlapName,
    #[serde(with = "duration", skip_serializing_if = "Duration::is_zero")]
    jitter: Duration,
}

#[derive(Deserialize)]
struct Read(#[serde(with = "Hyphened")] ScheduleDefinition);

#[derive(Serialize)]
struct Write<'a>(#[serde(with = "Hyphened")] &'a ScheduleDefinition);

/// Reads the tables, by the names of the schedules.
pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<BTreeMap<String, ScheduleDefinition>, D::Error> {
    let tables = BTreeMap::<String, Read>::deserialize(input)?;
    Ok(tables.into_iter().map(|(name, Read(definition))| (name, definition)).collect())
}

/// Writes them as [`deserialize`] reads them.
pub(in crate::config) fn serialize<S: Serializer>(
    schedules: &BTreeMap<String, ScheduleDefinition>,
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_map(schedules.iter().map(|(name, definition)| (name, Write(definition))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_configuration_has_the_same_fields_with_hyphens() {
        #[derive(Serialize, Deserialize)]
        struct Queue(
            #[serde(with = "crate::config::schedule::in_toml")] BTreeMap<String, ScheduleDefinition>,
        );
        let text = "[nightly]\ncron = \"30 2 * * *\"\nzone = \"Europe/Berlin\"\ncontent-type = \"text/plain\"\n\
            missed = \"all\"\nmissed-window = \"1d\"\nmissed-max = 3\noverlap = \"allow\"\n\n[nightly.attributes]\nCase = \"a\"\n";
        let Queue(schedules) = toml::from_str(text).unwrap();
        let json = serde_json::json!({"cron": "30 2 * * *", "zone": "Europe/Berlin", "content_type": "text/plain", "missed": "all",
            "missed_window": "24h", "missed_max": 3, "attributes": {"Case": "a"}});
        assert_eq!(schedules["nightly"], serde_json::from_value(json).unwrap());
        let written = toml::to_string(&Queue(schedules.clone())).unwrap();
        assert_eq!(toml::from_str::<Queue>(&written).unwrap().0, schedules);
        let unknown =
            |line: &str| toml::from_str::<Queue>(&format!("[s]\n{line}")).err().unwrap().message().to_owned();
        assert!(
            unknown("missed_max = 3").contains("unknown field `missed_max`"),
            "{}",
            unknown("missed_max = 3")
        );
    }
}
