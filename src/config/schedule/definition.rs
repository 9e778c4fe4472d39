//! The definition of a schedule: when it fires, and what it pushes.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use kvqueue_queue::{
    Kind, NewItem, PushError,
    schedule::{Calendar, CalendarError, Missed, MissedPolicy, Overlap, Schedule, ScheduleError},
};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    base::causes::with_causes,
    config::{JsonText, duration, number, whole},
};

/// The content type of a payload that is given as JSON.
const JSON: &str = "application/json";

/// The time zone of a cron expression without one.
const UTC: &str = "UTC";

/// A schedule without its name and its owner.
///
/// In JSON the names of the fields are as here, and a field has a value or is left out. In TOML they have hyphens: `missed-max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ScheduleDefinition {
    /// When it fires: a cron expression. Either this or `every`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// How often it fires, at the multiples of this since 1970 in UTC.
    #[serde(with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// The time zone of the cron expression; UTC by default.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The payload of the items as a text. At most one of the three payloads; without any, the payload is empty.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload in base64.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The payload as JSON, whose text becomes the payload as it stands.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub payload_json: Option<JsonText>,
    /// The attributes of the items.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The payload's media type; `application/json` by default if the payload is `payload_json`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The key of the items, in a keyed queue.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key in base64.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub key_base64: Option<String>,
    /// The priority of the items, in a priority queue.
    #[serde(deserialize_with = "whole::deserialize", skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// Which missed occurrences fire.
    pub missed: MissedName,
    /// How old a missed occurrence may be to fire; `None`: any age.
    #[serde(with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub missed_window: Option<Duration>,
    /// How many missed occurrences fire after one outage at most, with `missed` = `all`.
    #[serde(deserialize_with = "number::deserialize", skip_serializing_if = "is_default_maximum")]
    pub missed_max: u32,
    /// What happens to an occurrence while the schedule's last item has not ended.
    pub overlap: OverlapName,
    /// It fires later than its nominal times, always by the same time, which is less than this.
    #[serde(with = "duration", skip_serializing_if = "Duration::is_zero")]
    pub jitter: Duration,
}

/// Which missed occurrences fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum MissedName {
    /// None.
    Skip,
    /// The newest.
    #[default]
    Once,
    /// All, in their order.
    All,
}

/// What happens to an occurrence while the schedule's last item has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum OverlapName {
    /// It is pushed.
    #[default]
    Allow,
    /// It is skipped.
    Skip,
    /// It waits until the item has ended.
    Queue,
}

/// A definition that cannot be a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct DefinitionError {
    /// The name of the field at fault as in JSON; `name` for the schedule's name, `owner` for its owner.
    pub field: &'static str,
    /// What is wrong with it, and the fix.
    pub problem: String,
}

impl DefinitionError {
    fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }

    /// The field that [`Schedule::check`] refuses.
    fn of(error: &ScheduleError, definition: &ScheduleDefinition) -> Self {
        let field = match error {
            ScheduleError::Length { what: "name", .. } => "name",
            ScheduleError::Length { what: "owner", .. } => "owner",
            ScheduleError::Length { .. } => definition.payload_field(),
            ScheduleError::Time { what: "jitter", .. } => "jitter",
            ScheduleError::Time { .. } => "missed_window",
            ScheduleError::Maximum { .. } => "missed_max",
            ScheduleError::AllWithoutOverlap => "overlap",
            ScheduleError::ReservedAttribute { .. } => "attributes",
            ScheduleError::Item(error) => definition.field_of(error),
            _ => "name",
        };
        let problem = match error {
            ScheduleError::Item(error) => with_causes(error),
            error => with_causes(error),
        };
        Self::new(field, problem)
    }
}

impl Default for ScheduleDefinition {
    /// It has no times yet. Of missed occurrences the newest fires, and items may overlap.
    fn default() -> Self {
        Self {
            cron: None,
            every: None,
            zone: None,
            payload: None,
            payload_base64: None,
            payload_json: None,
            attributes: BTreeMap::new(),
            content_type: None,
            key: None,
            key_base64: None,
            priority: 0,
            missed: MissedName::default(),
            missed_window: None,
            missed_max: Missed::default().most,
            overlap: OverlapName::default(),
            jitter: Duration::ZERO,
        }
    }
}

impl ScheduleDefinition {
    /// The schedule of this definition. `owner` is the label of the configuration; `None` if it is made at run time.
    ///
    /// # Errors
    /// Names the field, what is wrong with it, and the fix. What depends on the kind of the queue, [`Self::checked`] finds.
    pub fn schedule(
        &self,
        name: impl Into<String>,
        owner: Option<String>,
    ) -> Result<Schedule, DefinitionError> {
        let mut schedule = Schedule::new(name, self.calendar()?, self.item()?);
        schedule.owner = owner;
        schedule.missed = Missed {
            policy: match self.missed {
                MissedName::Skip => MissedPolicy::Skip,
                MissedName::Once => MissedPolicy::Once,
                MissedName::All => MissedPolicy::All,
            },
            window: self.missed_window,
            most: self.missed_max,
        };
        schedule.overlap = match self.overlap {
            OverlapName::Allow => Overlap::Allow,
            OverlapName::Skip => Overlap::Skip,
            OverlapName::Queue => Overlap::Queue,
        };
        schedule.jitter = self.jitter;
        Ok(schedule)
    }

    /// As [`Self::schedule`], and a queue of this kind can have it.
    ///
    /// # Errors
    /// Names the field, what is wrong with it, and the fix.
    pub fn checked(
        &self,
        name: impl Into<String>,
        owner: Option<String>,
        kind: Kind,
    ) -> Result<Schedule, DefinitionError> {
        let schedule = self.schedule(name, owner)?;
        match schedule.check(kind) {
            Ok(()) => Ok(schedule),
            Err(error) => Err(DefinitionError::of(&error, self)),
        }
    }

    fn calendar(&self) -> Result<Calendar, DefinitionError> {
        let wrong = |field, error: CalendarError| DefinitionError::new(field, error.to_string());
        match (&self.cron, self.every) {
            (Some(cron), None) => {
                let zone = self.zone.as_deref().unwrap_or(UTC);
                Calendar::cron(cron, zone).map_err(|error| match error {
                    CalendarError::UnknownZone { .. } => wrong("zone", error),
                    error => wrong("cron", error),
                })
            }
            (None, Some(_)) if self.zone.is_some() => {
                let problem =
                    "it belongs to a cron expression, and the schedule has a period (every); leave it out";
                Err(DefinitionError::new("zone", problem))
            }
            (None, Some(period)) => Calendar::every(period).map_err(|error| wrong("every", error)),
            (None, None) => {
                let problem =
                    "the schedule has no times; give cron, as in \"0 7 * * 1-5\", or every, as in \"5m\"";
                Err(DefinitionError::new("cron", problem))
            }
            (Some(_), Some(_)) => {
                Err(DefinitionError::new("every", "the schedule has cron, too; leave one of the two out"))
            }
        }
    }

    fn item(&self) -> Result<NewItem, DefinitionError> {
        let mut item = NewItem::new(self.payload()?);
        item.attributes = self.attributes.clone();
        let content_type = self.content_type.as_deref();
        item.content_type = content_type.or(self.payload_json.as_ref().map(|_| JSON)).map(ToOwned::to_owned);
        item.key = self.key()?;
        item.priority = self.priority;
        Ok(item)
    }

    fn payload(&self) -> Result<Bytes, DefinitionError> {
        match (&self.payload, &self.payload_base64, &self.payload_json) {
            (None, None, None) => Ok(Bytes::new()),
            (Some(text), None, None) => Ok(Bytes::from(text.clone())),
            (None, Some(text), None) => Ok(Bytes::from(decoded("payload_base64", text)?)),
            (None, None, Some(json)) => Ok(Bytes::from(json.as_str().to_owned())),
            _ => {
                let problem = "the schedule has more than one payload; give one of payload, payload_base64 and payload_json";
                Err(DefinitionError::new(self.payload_field(), problem))
            }
        }
    }

    fn key(&self) -> Result<Option<Vec<u8>>, DefinitionError> {
        match (&self.key, &self.key_base64) {
            (Some(_), Some(_)) => {
                Err(DefinitionError::new("key_base64", "the schedule has key, too; leave one of the two out"))
            }
            (Some(text), None) => Ok(Some(text.clone().into_bytes())),
            (None, Some(text)) => decoded("key_base64", text).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The last of the fields for the payload that is given.
    fn payload_field(&self) -> &'static str {
        match (&self.payload_base64, &self.payload_json) {
            (_, Some(_)) => "payload_json",
            (Some(_), None) => "payload_base64",
            (None, None) => "payload",
        }
    }

    /// The field of an item that a queue refuses.
    fn field_of(&self, error: &PushError) -> &'static str {
        match error {
            PushError::AttributesTooLarge { .. } => "attributes",
            PushError::TextTooLong { .. } | PushError::NulInContentType => "content_type",
            PushError::NoPriorities { .. } => "priority",
            PushError::NoKeys { .. } | PushError::ItemKeyTooLong { .. } if self.key_base64.is_some() => {
                "key_base64"
            }
            PushError::NoKeys { .. } | PushError::ItemKeyTooLong { .. } => "key",
            _ => self.payload_field(),
        }
    }
}

/// For showing, and for another queue: [`ScheduleDefinition::schedule`] makes the same schedule of it.
impl From<&Schedule> for ScheduleDefinition {
    fn from(schedule: &Schedule) -> Self {
        let Schedule { calendar, item, missed, overlap, jitter, .. } = schedule;
        let every = calendar.period();
        let mut definition = Self {
            cron: every.is_none().then(|| calendar.to_string()),
            every,
            zone: calendar.zone().map(ToOwned::to_owned),
            attributes: item.attributes.clone(),
            content_type: item.content_type.clone(),
            priority: item.priority,
            missed: match missed.policy {
                MissedPolicy::Skip => MissedName::Skip,
                MissedPolicy::Once => MissedName::Once,
                MissedPolicy::All => MissedName::All,
            },
            missed_window: missed.window,
            missed_max: missed.most,
            overlap: match overlap {
                Overlap::Allow => OverlapName::Allow,
                Overlap::Skip => OverlapName::Skip,
                Overlap::Queue => OverlapName::Queue,
            },
            jitter: *jitter,
            ..Self::default()
        };
        definition.show_payload(item);
        match item.key.as_deref().map(|key| (std::str::from_utf8(key), key)) {
            Some((Ok(text), _)) => definition.key = Some(text.to_owned()),
            Some((Err(_), key)) => definition.key_base64 = Some(BASE64_STANDARD.encode(key)),
            None => {}
        }
        definition
    }
}

impl ScheduleDefinition {
    /// Sets the payload in the most readable way that gives the same bytes.
    fn show_payload(&mut self, item: &NewItem) {
        let is_json = self.content_type.as_deref() == Some(JSON);
        let value =
            is_json.then(|| serde_json::from_slice::<serde_json::Value>(&item.payload).ok()).flatten();
        // Answers and configurations hold values. A text that is not that of its value is shown as a text.
        if let Some(value) = value.filter(|value| value.to_string().as_bytes() == item.payload) {
            (self.payload_json, self.content_type) = (Some(value.into()), None);
            return;
        }
        match std::str::from_utf8(&item.payload) {
            Ok("") => {}
            Ok(text) => self.payload = Some(text.to_owned()),
            Err(_) => self.payload_base64 = Some(BASE64_STANDARD.encode(&item.payload)),
        }
    }
}

fn decoded(field: &'static str, text: &str) -> Result<Vec<u8>, DefinitionError> {
    BASE64_STANDARD.decode(text).map_err(|error| {
        DefinitionError::new(field, format!("it is not base 64 with padding ({error}); encode it again"))
    })
}

/// A field that is there has a value: `null` is none.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(in crate::config) fn is_zero(priority: &i64) -> bool {
    *priority == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(in crate::config) fn is_default_maximum(most: &u32) -> bool {
    *most == Missed::default().most
}

#[cfg(test)]
mod tests;
