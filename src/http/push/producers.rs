//! Producers, one for each queue that single items are pushed to: what comes at the same time goes into one transaction.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kvqueue_queue::{Kind, Producer, Queue, Session};

use crate::http::backend::{Backend, POLICY};

/// The most queues with a producer. When there are more, all producers are dropped; each ends after its last push.
const MOST: usize = 64;

/// The producers there are, by their queues' names.
#[derive(Debug, Default)]
pub(in crate::http) struct Producers(Mutex<HashMap<Vec<u8>, Entry>>);

#[derive(Debug)]
struct Entry {
    producer: Producer,
    kind: Kind,
    max_payload: usize,
}

impl Producers {
    /// The producer of a queue, made if there is none that pushes as the configuration says now.
    pub(super) fn producer(&self, backend: &Arc<Backend>, queue: Queue, max_payload: usize) -> Producer {
        let mut producers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, kind) = (queue.name().to_vec(), queue.kind());
        if let Some(entry) = producers.get(&name)
            && (entry.kind, entry.max_payload) == (kind, max_payload)
        {
            return entry.producer.clone();
        }
        if producers.len() >= MOST {
            producers.clear();
        }
        let session = Session::new(queue).with_policy(POLICY);
        let (producer, driver) = Producer::with_max_payload(session, backend.daemon.db.clone(), max_payload);
        drop(backend.spawn(async move {
            if let Err(error) = driver.run().await {
                // A sweeper clears its token later.
                tracing::debug!(
                    event = "session_not_closed",
                    %error,
                    "cannot close the session of a producer"
                );
            }
        }));
        producers.insert(name, Entry { producer: producer.clone(), kind, max_payload });
        producer
    }

    /// Lets them end.
    pub(in crate::http) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
