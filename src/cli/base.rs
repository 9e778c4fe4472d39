//! What all commands use.

/// The program's name.
pub(super) const NAME: &str = "kvqueue";

/// A command line is wrong in a way that clap cannot find out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub(super) String);

/// The input was refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct DataError(pub(super) String);
