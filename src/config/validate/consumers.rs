//! The consumers of a queue.

use crate::config::{ConfigError, ConsumerGroup};

/// More items in one take would not fit a transaction with payloads of their full size.
const MAX_K: usize = 10_000;

/// Consumers of one queue in one process; beyond it they only wait for each other.
const MAX_CONSUMERS: usize = 1_000;

pub(super) fn validate(groups: &[ConsumerGroup], key: &str) -> Result<(), ConfigError> {
    for (index, group) in groups.iter().enumerate() {
        group.validate(&format!("{key}[{index}]"))?;
    }
    let total = groups.iter().map(|group| group.count).sum::<usize>();
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
