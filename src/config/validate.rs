//! What a type cannot say: ranges, and values that contradict each other.

use std::time::Duration;

use super::{Config, ConfigError, ConsumerGroup, QueueConfig, duration};

/// More items in one take would not fit a transaction with payloads of their full size.
const MAX_K: usize = 10_000;

/// Consumers of one queue in one process; beyond it they only wait for each other.
const MAX_CONSUMERS: usize = 1_000;

impl Config {
    /// Checks every value and relation; the first fault is the error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_database()?;
        crate::telemetry::parse_level(&self.log.level)?;
        self.queues.iter().try_for_each(|(name, queue)| queue.validate(name, self.grace))
    }

    fn validate_database(&self) -> Result<(), ConfigError> {
        let problem = match self.database.strip_prefix(fdb_embedded::SCHEME) {
            None if self.database.is_empty() => "no database is named",
            Some("") => "no directory is named",
            _ => return Ok(()),
        };
        Err(ConfigError::value(
            "database",
            format_args!("{:?}", self.database),
            problem,
            "write embedded:DIRECTORY or the path of a cluster file",
        ))
    }
}

impl QueueConfig {
    fn validate(&self, name: &str, grace: Duration) -> Result<(), ConfigError> {
        let key = |key: &str| format!("queues.{name}.{key}");
        if name.is_empty() {
            return Err(ConfigError::value("queues", "\"\"", "a queue has no name", "name it"));
        }
        self.validate_consumers(&key("consumers"))?;
        if self.slow_look.is_zero() {
            let fix = "write a time such as \"30s\"; pushes wake consumers at once in any case";
            return Err(ConfigError::value(
                key("slow-look"),
                "\"0s\"",
                "an idle consumer would never rest",
                fix,
            ));
        }
        match self.handler_timeout {
            Some(timeout) => validate_timeout(key("handler-timeout"), timeout, grace),
            None => Ok(()),
        }
    }

    fn validate_consumers(&self, key: &str) -> Result<(), ConfigError> {
        for (index, group) in self.consumers.iter().enumerate() {
            group.validate(&format!("{key}[{index}]"))?;
        }
        let total = self.consumers.iter().map(|group| group.count).sum::<usize>();
        if total == 0 {
            let fix = "add a group such as { k = 10, count = 1 }, or leave the key out";
            return Err(ConfigError::value(key, "[]", "nothing would work the queue off", fix));
        }
        if total > MAX_CONSUMERS {
            let problem = format!("a process may hold {MAX_CONSUMERS} consumers of one queue");
            return Err(ConfigError::value(key, format_args!("{total} in all"), problem, "lower the counts"));
        }
        Ok(())
    }
}

impl ConsumerGroup {
    fn validate(&self, key: &str) -> Result<(), ConfigError> {
        if self.k == 0 {
            let problem = "a consumer has to take at least one item at a time";
            return Err(ConfigError::value(format!("{key}.k"), 0, problem, "set it to 1 or more"));
        }
        if self.k > MAX_K {
            let problem = format!("one transaction takes at most {MAX_K} items");
            return Err(ConfigError::value(format!("{key}.k"), self.k, problem, "lower it"));
        }
        if self.count == 0 {
            let fix = "set it to 1 or more, or remove the group";
            return Err(ConfigError::value(format!("{key}.count"), 0, "the group has no consumers", fix));
        }
        if self.count > MAX_CONSUMERS {
            let problem = format!("a process may hold {MAX_CONSUMERS} consumers of one queue");
            return Err(ConfigError::value(format!("{key}.count"), self.count, problem, "lower it"));
        }
        Ok(())
    }
}

fn validate_timeout(key: String, timeout: Duration, grace: Duration) -> Result<(), ConfigError> {
    let value = format!("{:?}", duration::format(timeout));
    if timeout.is_zero() {
        let fix = "write a time such as \"10s\", or leave the key out for no limit";
        return Err(ConfigError::value(key, value, "no item could be handled in no time", fix));
    }
    if timeout > grace {
        let problem = format!(
            "an item may take longer than a stop waits (grace = {:?}), so a stop would lose it",
            duration::format(grace)
        );
        return Err(ConfigError::value(key, value, problem, "raise grace or lower the timeout"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let config: Config = toml::from_str(text).unwrap();
        config.validate().expect_err("this configuration is wrong").to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert!(Config::default().validate().is_ok());
    }

    #[test]
    fn messages_name_key_value_and_fix() {
        let queue = |line: &str| format!("[queues.emails]\nhandler = 'log'\n{line}");
        insta::assert_snapshot!(problem("database = ''"), @r#"database = "": no database is named; write embedded:DIRECTORY or the path of a cluster file"#);
        insta::assert_snapshot!(problem("database = 'embedded:'"), @r#"database = "embedded:": no directory is named; write embedded:DIRECTORY or the path of a cluster file"#);
        insta::assert_snapshot!(problem("log.level = 'loud'"), @r#"log.level = "loud": "loud" is not a level; use error, warn, info, debug or trace, alone or by target as in "info,kvqueue::actors=debug""#);
        insta::assert_snapshot!(problem(&queue("consumers = []")), @"queues.emails.consumers = []: nothing would work the queue off; add a group such as { k = 10, count = 1 }, or leave the key out");
        insta::assert_snapshot!(problem(&queue("consumers = [ { k = 0 } ]")), @"queues.emails.consumers[0].k = 0: a consumer has to take at least one item at a time; set it to 1 or more");
        insta::assert_snapshot!(problem(&queue("consumers = [ { k = 1000000 } ]")), @"queues.emails.consumers[0].k = 1000000: one transaction takes at most 10000 items; lower it");
        insta::assert_snapshot!(problem(&queue("consumers = [ { count = 0 } ]")), @"queues.emails.consumers[0].count = 0: the group has no consumers; set it to 1 or more, or remove the group");
        insta::assert_snapshot!(problem(&queue("consumers = [ { count = 100000 } ]")), @"queues.emails.consumers[0].count = 100000: a process may hold 1000 consumers of one queue; lower it");
        insta::assert_snapshot!(problem(&queue("consumers = [ { count = 600 }, { count = 600 } ]")), @"queues.emails.consumers = 1200 in all: a process may hold 1000 consumers of one queue; lower the counts");
        insta::assert_snapshot!(problem(&queue("slow-look = '0s'")), @r#"queues.emails.slow-look = "0s": an idle consumer would never rest; write a time such as "30s"; pushes wake consumers at once in any case"#);
        insta::assert_snapshot!(problem(&queue("handler-timeout = '0s'")), @r#"queues.emails.handler-timeout = "0s": no item could be handled in no time; write a time such as "10s", or leave the key out for no limit"#);
        insta::assert_snapshot!(problem(&queue("handler-timeout = '1m'")), @r#"queues.emails.handler-timeout = "1m": an item may take longer than a stop waits (grace = "30s"), so a stop would lose it; raise grace or lower the timeout"#);
    }
}
