//! Tenants. An embedded database has none, and answers as a cluster does for a missing tenant:
//! opening one succeeds, and calls that need it fail.

use std::ffi::c_int;
use std::sync::Arc;

use foundationdb_sys::{FDBDatabase, FDBFuture, FDBTenant, FDBTransaction, fdb_error_t};

use super::forwarded::forwarded;
use super::handle;
use super::slot;
use super::transaction::CTransaction;
use super::unknown_tenant::not_found;
use crate::client::{Database, Transaction};

/// The object of a tenant's handle.
pub(super) struct CTenant {
    database: Arc<Database>,
}

forwarded! {
    table RealTenantOpening; handle FDBDatabase; object Arc<Database>;

    /// Opens a tenant. The first use shows whether it exists.
    [since 710] fn fdb_database_open_tenant(
        database, _name: *const u8, _name_length: c_int, out: *mut *mut FDBTenant,
    ) -> fdb_error_t
    where out = slot(out)
    {
        out.write(handle::give(CTenant { database: Arc::clone(database) }));
        0
    }
}

/// Frees the handle; transactions made from it live on.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_tenant_destroy(tenant: *mut FDBTenant) {
    // SAFETY: the caller's promise.
    if unsafe { handle::take::<CTenant, _>(tenant) }.is_none() {
        let destroy = RealTenants::get().fdb_tenant_destroy;
        // SAFETY: the handle is the real library's, and the caller's promise.
        unsafe { destroy(tenant) }
    }
}

forwarded! {
    table RealTenants; handle FDBTenant; object CTenant;
    also { [since 710] fn fdb_tenant_destroy(); }

    /// A transaction confined to the tenant.
    [since 710] fn fdb_tenant_create_transaction(own, out: *mut *mut FDBTransaction) -> fdb_error_t
    where out = slot(out)
    {
        out.write(handle::give(CTransaction::in_tenant(Transaction::new(&own.database))));
        0
    }

    /// An int64 future: the tenant's id.
    [since 730] fn fdb_tenant_get_id(_own) -> *mut FDBFuture {
        not_found()
    }
}
