//! Configurations in Rust, for programs that embed the daemon. Fields without a method here are set
//! directly.

use super::{Config, ConsumerGroup, Delivery, QueueConfig};

impl Config {
    /// The defaults, on this database: `embedded:DIRECTORY`, or the path of a FoundationDB cluster file.
    ///
    /// ```
    /// use kvqueue::config::{Config, Delivery, Listen, QueueConfig};
    ///
    /// let emails = QueueConfig::new("email").with_consumers(10, 4).with_delivery(Delivery::ExactlyOnce);
    /// let mut config = Config::new("embedded:./queues").with_queue("emails", emails);
    /// config.http.listen = Listen::Off;
    /// config.validate()?;
    /// # Ok::<_, kvqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn new(database: impl Into<String>) -> Self {
        Self { database: database.into(), ..Self::default() }
    }

    /// Adds a queue, or replaces the one of that name.
    #[must_use]
    pub fn with_queue(mut self, name: impl Into<String>, queue: QueueConfig) -> Self {
        self.queues.insert(name.into(), queue);
        self
    }
}

impl QueueConfig {
    /// Sets the number of consumers, and how many items each takes at most at a time.
    #[must_use]
    pub fn with_consumers(mut self, k: usize, count: usize) -> Self {
        self.consumers = vec![ConsumerGroup { k, count }];
        self
    }

    /// Sets how often an item may be handled.
    #[must_use]
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }
}
