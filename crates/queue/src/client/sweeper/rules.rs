//! The settings of a sweeper.

use std::time::Duration;

use crate::model::rules::{OnExpiry, RetryRules};
use crate::run::retry::RetryPolicy;

/// The settings of a [`Sweeper`](crate::Sweeper).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepRules {
    /// How many attempts an item has, and how long it waits for the next one after its lease ran out. An item whose lease runs out on
    /// the last attempt is a dead letter.
    pub retry: RetryRules,
    /// The length of the shortest leases: how often the sweeper looks at leases, if none expires sooner.
    /// [`Duration::ZERO`]: at every sweep, whatever other sweepers do.
    pub lease: Duration,
    /// How long idempotency keys are kept at least.
    pub idempotency_window: Duration,
    /// How long after its push an item of a schedule expires, if no attempt has begun by then; `None`: never.
    pub ttl: Option<Duration>,
    /// What becomes of an item that expires before its first attempt.
    pub on_expiry: OnExpiry,
    /// How long dead letters are kept, from their deaths on; `None`: for ever.
    pub dead_retention: Option<Duration>,
    /// How far the clocks of processes may lie apart. A sweeper that is further ahead of another one does nothing early, and removes nothing by its clock, until
    /// more sweepers agree with it than not, or it is alone. With [`Duration::MAX`] clocks are not compared.
    pub clock_tolerance: Duration,
    /// When the sweeper gives up a transaction.
    pub policy: RetryPolicy,
}

impl Default for SweepRules {
    /// The default retry rules, leases of thirty seconds, idempotency keys for a day, and retries without
    /// end.
    fn default() -> SweepRules {
        SweepRules {
            retry: RetryRules::default(),
            lease: Duration::from_secs(30),
            idempotency_window: Duration::from_hours(24),
            ttl: None,
            on_expiry: OnExpiry::Drop,
            dead_retention: None,
            clock_tolerance: Duration::from_mins(5),
            policy: RetryPolicy::default(),
        }
    }
}

impl SweepRules {
    /// The same with other [`retry`](SweepRules::retry) rules.
    #[must_use]
    pub fn with_retry(self, retry: RetryRules) -> SweepRules {
        SweepRules { retry, ..self }
    }

    /// The same for other lengths of [`lease`](SweepRules::lease).
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> SweepRules {
        SweepRules { lease, ..self }
    }

    /// The same with idempotency keys kept for another time.
    #[must_use]
    pub fn with_idempotency_window(self, idempotency_window: Duration) -> SweepRules {
        SweepRules { idempotency_window, ..self }
    }

    /// The same with another [`ttl`](SweepRules::ttl).
    #[must_use]
    pub fn with_ttl(self, ttl: Option<Duration>) -> SweepRules {
        SweepRules { ttl, ..self }
    }

    /// The same with another end of items that expire.
    #[must_use]
    pub fn with_on_expiry(self, on_expiry: OnExpiry) -> SweepRules {
        SweepRules { on_expiry, ..self }
    }

    /// The same with another [`dead_retention`](SweepRules::dead_retention).
    #[must_use]
    pub fn with_dead_retention(self, dead_retention: Option<Duration>) -> SweepRules {
        SweepRules { dead_retention, ..self }
    }

    /// The same with another [`clock_tolerance`](SweepRules::clock_tolerance).
    #[must_use]
    pub fn with_clock_tolerance(self, clock_tolerance: Duration) -> SweepRules {
        SweepRules { clock_tolerance, ..self }
    }

    /// The same with another [`policy`](SweepRules::policy).
    #[must_use]
    pub fn with_policy(self, policy: RetryPolicy) -> SweepRules {
        SweepRules { policy, ..self }
    }
}
