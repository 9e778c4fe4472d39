//! What is varied.

use std::time::Duration;

use kvqueue_queue::{Approach, Spread, Staged};

/// One setting.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) processes: usize,
    /// In each process.
    pub(crate) consumers: usize,
    /// Items per take.
    pub(crate) k: usize,
    /// Whether one more task pushes all the while, to a queue that begins empty.
    pub(crate) producer: bool,
    pub(crate) approach: String,
    pub(crate) time: Duration,
    /// Of an item's payload.
    pub(crate) bytes: usize,
}

/// The names of the approaches.
pub(crate) fn approaches() -> Vec<&'static str> {
    vec!["front", "spread", "staged", "partitions"]
}

impl Cell {
    pub(crate) fn approach(&self) -> Approach {
        match self.approach.as_str() {
            "front" | "partitions" => Approach::Front,
            "spread" => Approach::Spread(Spread::default()),
            "staged" => Approach::Staged(Staged::default()),
            other => panic!("there is no approach {other}"),
        }
    }

    /// As an argument of a worker process.
    pub(crate) fn arguments(&self) -> [String; 6] {
        [
            self.consumers.to_string(),
            self.k.to_string(),
            self.producer.to_string(),
            self.approach.clone(),
            self.time.as_millis().to_string(),
            self.bytes.to_string(),
        ]
    }

    pub(crate) fn parse(arguments: &[&str]) -> Cell {
        let [consumers, k, producer, approach, millis, bytes] = arguments else {
            panic!("six arguments are a cell")
        };
        Cell {
            processes: 1,
            consumers: consumers.parse().unwrap(),
            k: k.parse().unwrap(),
            producer: producer.parse().unwrap(),
            approach: (*approach).to_owned(),
            time: Duration::from_millis(millis.parse().unwrap()),
            bytes: bytes.parse().unwrap(),
        }
    }
}
