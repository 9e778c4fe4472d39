//! Schedules in the configuration: `schedule-owner`, and the tables `schedules` of queues.

use kvqueue_queue::schedule::{MAX_OWNER, MAX_SCHEDULES, Schedule};

use crate::config::{Config, ConfigError, JsonText, QueueConfig, ScheduleDefinition};

impl Config {
    /// Checks the label of schedules. Schedules need one.
    pub(in crate::config) fn validate_schedule_owner(&self) -> Result<(), ConfigError> {
        let key = "schedule-owner";
        match &self.schedule_owner {
            None => match self.queues.iter().find(|(_, queue)| !queue.schedules.is_empty()) {
                None => Ok(()),
                Some((name, _)) => {
                    let problem = format!(
                        "queues.{name} has schedules, and there is no configuration file whose path could be their label"
                    );
                    let fix = "set it to a name that all daemons with this configuration have, and no others";
                    Err(ConfigError::value(key, "(not set)", problem, fix))
                }
            },
            Some(owner) if owner.is_empty() || owner.len() > MAX_OWNER => {
                let problem = format!("it has {} bytes, 1 to {MAX_OWNER} are possible", owner.len());
                let value = if owner.is_empty() { "\"\"" } else { "\"...\"" };
                Err(ConfigError::value(key, value, problem, "change it, or leave the key out"))
            }
            Some(_) => Ok(()),
        }
    }
}

impl QueueConfig {
    /// Adds a schedule, or replaces the one of that name. The configuration needs [`Config::schedule_owner`], too.
    #[must_use]
    pub fn with_schedule(mut self, name: impl Into<String>, definition: ScheduleDefinition) -> Self {
        self.schedules.insert(name.into(), definition);
        self
    }

    /// The schedules, with their owner. They have been checked.
    pub(crate) fn schedules(&self, owner: &str) -> Vec<Schedule> {
        let checked = self.schedules.iter().map(|(name, definition)| {
            definition.checked(name.as_str(), Some(owner.to_owned()), self.layout())
        });
        checked.filter_map(Result::ok).collect()
    }

    pub(in crate::config) fn validate_schedules(
        &self,
        key: impl Fn(&str) -> String,
    ) -> Result<(), ConfigError> {
        if self.schedules.len() > MAX_SCHEDULES {
            let problem = format!("a queue has at most {MAX_SCHEDULES} schedules");
            let fix = "remove some, or let another queue have them";
            let value = format!("{} tables", self.schedules.len());
            return Err(ConfigError::value(key("schedules"), value, problem, fix));
        }
        for (name, definition) in &self.schedules {
            let path = key(&format!("schedules.{name}"));
            let wrong = |field: &str, problem| {
                let key = if field == "name" {
                    path.clone()
                } else {
                    format!("{path}.{}", field.replace('_', "-"))
                };
                ConfigError::Schedule { key, problem }
            };
            // A configuration is compared and shown as TOML, which has fewer values than JSON.
            let in_toml = |text: &JsonText| {
                let value = text.value().map_err(|error| error.to_string())?;
                toml::Value::try_from(value).map_err(|error| error.to_string())
            };
            if let Some(Err(error)) = definition.payload_json.as_ref().map(in_toml) {
                let problem = format!(
                    "TOML cannot have this value ({error}); give the JSON as a text in payload, with content-type"
                );
                return Err(wrong("payload_json", problem));
            }
            let checked = definition.checked(name.as_str(), None, self.layout());
            checked.map_err(|error| wrong(error.field, error.problem))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(schedule: &str) -> String {
        let text = format!(
            "schedule-owner = 'o'\n[queues.emails]\nhandler = 'log'\n[queues.emails.schedules.daily]\n{schedule}"
        );
        let config: Config = toml::from_str(&text).unwrap();
        config.validate().expect_err("this schedule is wrong").to_string()
    }

    #[test]
    fn messages_name_the_key_and_the_fix() {
        insta::assert_snapshot!(problem(""), @r#"queues.emails.schedules.daily.cron: the schedule has no times; give cron, as in "0 7 * * 1-5", or every, as in "5m""#);
        insta::assert_snapshot!(problem("cron = '0 25 * * *'"), @r#"queues.emails.schedules.daily.cron: cannot read "25" in the field hour of the cron expression: 25 is out of range; write 0 to 23"#);
        insta::assert_snapshot!(problem("cron = '0 7 * * *'\nzone = 'Europe/Berlim'"), @r#"queues.emails.schedules.daily.zone: unknown time zone "Europe/Berlim"; did you mean Europe/Berlin?"#);
        insta::assert_snapshot!(problem("every = '5m'\nmissed-max = 0"), @"queues.emails.schedules.daily.missed-max: the maximum of missed occurrences is 0, 1 to 1000 are possible");
        insta::assert_snapshot!(problem("every = '5m'\nkey = 'k'"), @r#"queues.emails.schedules.daily.key: cannot push an item with a key to a queue of kind fifo: it has no keys; leave the key out, or set kind = "keyed" for the queue"#);
        insta::assert_snapshot!(problem("every = '5m'\npayload-json = [nan]"), @"queues.emails.schedules.daily.payload-json: TOML cannot have this value (unsupported unit type); give the JSON as a text in payload, with content-type");
    }

    #[test]
    fn schedules_need_a_label() {
        let validated = |text: &str| toml::from_str::<Config>(text).unwrap().validate();
        let queue = "[queues.q]\nhandler = 'log'\n[queues.q.schedules.s]\nevery = '5m'";
        insta::assert_snapshot!(validated(queue).unwrap_err(), @"schedule-owner = (not set): queues.q has schedules, and there is no configuration file whose path could be their label; set it to a name that all daemons with this configuration have, and no others");
        insta::assert_snapshot!(validated("schedule-owner = ''").unwrap_err(), @r#"schedule-owner = "": it has 0 bytes, 1 to 1024 are possible; change it, or leave the key out"#);
        insta::assert_snapshot!(validated(&format!("schedule-owner = '{}'", "x".repeat(1_025))).unwrap_err(), @r#"schedule-owner = "...": it has 1025 bytes, 1 to 1024 are possible; change it, or leave the key out"#);
        validated(&format!("schedule-owner = 'o'\n{queue}")).unwrap();
    }

    #[test]
    fn a_queue_has_a_thousand_schedules_at_most() {
        let mut queue = QueueConfig::new("log");
        let every = Some(std::time::Duration::from_secs(1));
        let schedule = ScheduleDefinition { every, ..ScheduleDefinition::default() };
        for number in 0..MAX_SCHEDULES {
            queue = queue.with_schedule(number.to_string(), schedule.clone());
        }
        let validated = |queue: &QueueConfig| queue.validate_schedules(|key| key.to_owned());
        validated(&queue).unwrap();
        let problem = validated(&queue.with_schedule("more", schedule)).unwrap_err();
        insta::assert_snapshot!(problem, @"schedules = 1001 tables: a queue has at most 1000 schedules; remove some, or let another queue have them");
    }
}
