//! Names and times that the parts of `exec` share.

use std::time::Duration;

/// How long the handler waits for the status and the error output of a command that seems to have
/// ended.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The streams of a command, as the log names them.
pub(super) const STDERR: &str = "stderr";
pub(super) const STDOUT: &str = "stdout";

/// Names the run that a process belongs to.
pub(super) const RUN: &str = "KVQUEUE_RUN";
