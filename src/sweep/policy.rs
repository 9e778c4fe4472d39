//! How long sweeps try.

use std::time::Duration;

use kvqueue_queue::RetryPolicy;

/// A transaction that takes longer is given up, and tried again later.
pub(super) const POLICY: RetryPolicy =
    RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(60)) };

/// How long sweepers that are stopped try to give up their duty.
pub(super) const LEAVE: Duration = Duration::from_secs(1);
