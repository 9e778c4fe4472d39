//! How a queue is divided: `partitions`, `max-disorder`.

use std::time::Duration;

use kvqueue_queue::Partitions;

use super::{ConfigError, KindName, QueueConfig, queue::quoted};

/// How far items may be out of order if the configuration does not say.
const MAX_DISORDER: Duration = Duration::from_secs(1);

impl QueueConfig {
    /// Sets the number of partitions, and how much younger than the oldest ready item a fetched item may be.
    #[must_use]
    pub fn with_partitions(mut self, count: usize, max_disorder: Duration) -> Self {
        (self.partitions, self.max_disorder) = (Some(count), Some(max_disorder));
        self
    }

    /// How the queue is to be divided; `None`: it is left as it is.
    pub(crate) fn division(&self) -> Option<Partitions> {
        Partitions::new(self.partitions?, self.max_disorder.unwrap_or(MAX_DISORDER)).ok()
    }

    pub(super) fn validate_partitions(&self, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let Some(count) = self.partitions else {
            let Some(max_disorder) = self.max_disorder else { return Ok(()) };
            let fix = "set partitions, too, or leave the key out";
            let problem = "it has no effect without partitions";
            return Err(ConfigError::value(key("max-disorder"), quoted(max_disorder), problem, fix));
        };
        if self.kind != KindName::Fifo {
            let problem = "only a fifo can have partitions";
            let fix = "leave the key out, or set kind to \"fifo\"";
            return Err(ConfigError::value(key("partitions"), count, problem, fix));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut QueueConfig)) -> Option<String> {
        let mut queue = QueueConfig::new("log");
        change(&mut queue);
        let checked = queue.validate("q", Duration::from_secs(10));
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn partitions_are_checked() {
        assert_eq!(refusal(|queue| queue.partitions = Some(64)), None);
        for (count, kind) in [(0, KindName::Fifo), (65, KindName::Fifo), (2, KindName::Recipe)] {
            let refusal = refusal(|queue| (queue.partitions, queue.kind) = (Some(count), kind)).unwrap();
            assert!(refusal.contains("queues.q.partitions"), "{refusal}");
        }
        let alone = refusal(|queue| queue.max_disorder = Some(Duration::ZERO)).unwrap();
        assert!(alone.contains("no effect without partitions"), "{alone}");
        let long = refusal(|queue| *queue = queue.clone().with_partitions(2, Duration::MAX)).unwrap();
        assert!(long.contains("queues.q.max-disorder"), "{long}");
    }

    #[test]
    fn partitions_without_a_disorder_have_a_second() {
        let read = |text: &str| toml::from_str::<QueueConfig>(&format!("handler = 'log'\n{text}"));
        assert_eq!(read("").unwrap().division(), None);
        let division = |text: &str| read(text).unwrap().division().unwrap();
        assert_eq!(division("partitions = 4"), Partitions::new(4, Duration::from_secs(1)).unwrap());
        let strict = division("partitions = 4\nmax-disorder = '0s'");
        assert_eq!(strict, Partitions::new(4, Duration::ZERO).unwrap());
        assert!(read("partitions = -1").is_err() && read("partitions = '4'").is_err());
    }
}
