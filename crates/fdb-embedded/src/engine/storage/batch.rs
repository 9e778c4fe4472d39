//! A batch of commits, and the durability that its commits wait for.

use crate::engine::mutation::Mutation;

/// The mutations of a batch of commits, in order, with the batch's versions.
#[derive(Debug, Default, PartialEq)]
pub struct WriteBatch {
    /// The commit version that all commits of the batch share.
    pub version: i64,
    /// The new version ceiling, if the batch raises it.
    pub ceiling: Option<i64>,
    /// The mutations, with their versionstamps filled in.
    pub mutations: Vec<Mutation>,
}

/// The durability that a commit waits for before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A flush: the commit survives a power failure.
    Flushed,
    /// The write to the log, as PostgreSQL's asynchronous commit: the commit survives the end of
    /// any process, but not of the machine. Later commits never survive without it.
    Asynchronous,
}
