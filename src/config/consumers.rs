//! Consumers of a queue: groups with the same batch size.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Unexpected, Visitor},
};

use super::{ConfigError, number};

/// The largest K: the most items of one transaction.
const MAX_K: usize = 10_000;

/// The K of consumers whose handler gets the items of a fetch one after the other in this process, or all together.
pub(super) const DEFAULT_K: usize = 10;

/// The most consumers of one queue in one process. More would only wait for each other.
const MAX_CONSUMERS: usize = 1_000;

/// Consumers with the same batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table such as { k = 10, count = 4 }"
)]
#[non_exhaustive]
pub struct ConsumerGroup {
    /// The most items of a batch. `None`: 1 with the handlers `exec` and `http`, if they get one item in a call, and 10 with others.
    #[serde(deserialize_with = "number::optional", skip_serializing_if = "Option::is_none")]
    pub k: Option<usize>,
    /// The number of such consumers.
    #[serde(deserialize_with = "number::deserialize")]
    pub count: usize,
}

impl ConsumerGroup {
    pub(super) fn defaults() -> Vec<Self> {
        vec![Self::default()]
    }
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        Self { k: None, count: 1 }
    }
}

/// Reads groups of consumers. A number stands for one group with that number of consumers.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<ConsumerGroup>, D::Error> {
    input.deserialize_any(Groups)
}

struct Groups;

impl<'de> Visitor<'de> for Groups {
    type Value = Vec<ConsumerGroup>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of consumers such as 4, or groups such as [ { k = 10, count = 4 } ]")
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<Self::Value, E> {
        match usize::try_from(count) {
            Ok(count) => Ok(vec![ConsumerGroup { count, ..ConsumerGroup::default() }]),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(count), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Self::Value, A::Error> {
        let mut groups = Vec::new();
        while let Some(group) = input.next_element()? {
            groups.push(group);
        }
        Ok(groups)
    }
}

/// Refuses groups that cannot work, and too many consumers.
pub(super) fn validate(groups: &[ConsumerGroup], key: &str) -> Result<(), ConfigError> {
    for (index, group) in groups.iter().enumerate() {
        group.validate(&format!("{key}[{index}]"))?;
    }
    let total = groups.iter().map(|group| group.count).sum::<usize>();
    if total == 0 {
        let fix = "write a number such as 4, or leave the key out";
        return Err(ConfigError::value(key, "[]", "no consumer would process the queue", fix));
    }
    if total > MAX_CONSUMERS {
        let problem = format!("a process may hold {MAX_CONSUMERS} consumers of one queue");
        return Err(ConfigError::value(key, format_args!("{total} in all"), problem, "lower the counts"));
    }
    Ok(())
}

impl ConsumerGroup {
    fn validate(&self, key: &str) -> Result<(), ConfigError> {
        if self.k == Some(0) {
            let problem = "a consumer has to take at least one item at a time";
            return Err(ConfigError::value(format!("{key}.k"), 0, problem, "set it to 1 or more"));
        }
        if let Some(k) = self.k.filter(|k| *k > MAX_K) {
            let problem = format!("one transaction takes at most {MAX_K} items");
            return Err(ConfigError::value(format!("{key}.k"), k, problem, "lower it"));
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

#[cfg(test)]
mod tests {
    use crate::config::Config;

    /// The K of each group of a queue with these lines.
    fn ks(lines: &str) -> Vec<usize> {
        let config: Config = toml::from_str(&format!("[queues.q]\n{lines}")).unwrap();
        let queue = &config.queues["q"];
        let ks = queue.consumers.iter().map(|group| queue.k_of(group)).collect();
        let shown = config.clone().spelled_out();
        assert_eq!(shown.queues["q"].consumers.iter().filter_map(|group| group.k).collect::<Vec<_>>(), ks);
        ks
    }

    #[test]
    fn a_consumer_of_one_item_per_call_fetches_one_item() {
        for handler in ["exec", "http"] {
            assert_eq!(ks(&format!("handler = '{handler}'")), [1]);
            assert_eq!(ks(&format!("consumers = 4\nhandler = '{handler}'")), [1]);
            assert_eq!(
                ks(&format!("handler = '{handler}'\nconsumers = [{{ count = 2 }}, {{ k = 7 }}]")),
                [1, 7]
            );
        }
        assert_eq!(ks("handler = 'exec'\nhandler-config = { mode = 'worker' }"), [1]);
        assert_eq!(ks("handler = 'http'\nhandler-config = { batch = false }"), [1]);
    }

    #[test]
    fn a_consumer_whose_handler_gets_batches_or_is_in_this_process_fetches_ten_items() {
        assert_eq!(ks("handler = 'http'\nconsumers = 4\nhandler-config = { batch = true }"), [10]);
        for handler in ["log", "stdout", "own"] {
            assert_eq!(ks(&format!("handler = '{handler}'")), [10]);
        }
    }
}
