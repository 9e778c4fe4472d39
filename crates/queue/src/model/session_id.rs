//! The identity of a session.

use std::fmt;

use uuid::Uuid;

/// The identity of a session in the database: 16 bytes that no other session of the queue ever has.
///
/// [`SessionId::new`] makes one. Use bytes of your own only if they are as unique as a UUID, also after
/// a restart. Nothing checks that, since a check would cost a read with every fetch. Two sessions with
/// one id lose items: one may take the other's transactions for its own, and overwrites its leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// A new id: a UUID of version 7.
    #[expect(clippy::new_without_default, reason = "a default would be the same each time")]
    pub fn new() -> SessionId {
        SessionId(Uuid::now_v7().into_bytes())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
