//! A tenant that does not exist: an embedded database has none.

use std::sync::atomic::{AtomicBool, Ordering};

use foundationdb_sys::FDBFuture;

use super::future;
use crate::error::Code;
use crate::future::Future;

/// A future of the error for a missing tenant.
pub(super) fn not_found() -> *mut FDBFuture {
    future::give(Future::ready(Err(Code::TENANT_NOT_FOUND)))
}

/// The state of a transaction in a missing tenant. A cluster does not find the tenant; but a
/// transaction with a read version knows from it that tenants are disabled.
#[derive(Default)]
pub(super) struct UnknownTenant {
    has_read_version: AtomicBool,
}

impl UnknownTenant {
    /// Notes that the transaction has asked for its read version.
    pub(super) fn note_read_version(&self) {
        self.has_read_version.store(true, Ordering::Relaxed);
    }

    /// The error of reads.
    pub(super) fn read_error(&self) -> Code {
        let disabled = self.has_read_version.load(Ordering::Relaxed);
        if disabled { Code::TENANTS_DISABLED } else { Code::TENANT_NOT_FOUND }
    }
}
