//! The error of an operation that was given up, and its attempts.

use std::fmt;

use foundationdb::FdbError;

use crate::model::codes::{OUT_OF_SPACE, TOO_LARGE};
use crate::model::error::QueueError;

/// The attempts of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Transactions begun.
    pub begun: u32,
    /// Transactions that conflicted with a concurrent one (error 1020).
    pub conflicts: u32,
    /// Those whose commit may or may not have happened.
    pub unknown: u32,
}

/// An operation was given up.
#[derive(Clone, Debug, thiserror::Error)]
pub struct RetryError {
    /// The error of the last attempt.
    #[source]
    pub error: QueueError,
    /// The attempts of the operation.
    pub attempts: Attempts,
}

impl RetryError {
    /// Whether an attempt may have committed all the same.
    pub fn is_maybe_committed(&self) -> bool {
        self.attempts.unknown > 0
    }

    /// The database's error code, if the database's error ended it.
    pub fn code(&self) -> Option<i32> {
        self.error.database().map(FdbError::code)
    }

    /// Whether the database refused to store more: its disk is full. Nothing was written.
    pub fn is_out_of_space(&self) -> bool {
        self.code() == Some(OUT_OF_SPACE)
    }

    /// Whether it was refused because a transaction or a value was too large, and nothing was written.
    pub(crate) fn is_too_large(&self) -> bool {
        self.code().is_some_and(|code| TOO_LARGE.contains(&code)) && !self.is_maybe_committed()
    }
}

impl fmt::Display for RetryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attempts { begun, conflicts, unknown } = self.attempts;
        write!(f, "transaction given up after {begun} attempts")?;
        if conflicts > 0 {
            write!(f, ", {conflicts} of them conflicts")?;
        }
        if unknown > 0 {
            write!(f, ", {unknown} of them with an unknown outcome")?;
        }
        Ok(())
    }
}
