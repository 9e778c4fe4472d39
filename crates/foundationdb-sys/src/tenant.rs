//! Tenants: named parts of a database.

use crate::types::{FDBFuture, FDBTenant, FDBTransaction, fdb_error_t};

unsafe extern "C" {
    /// Makes a transaction confined to the tenant.
    pub fn fdb_tenant_create_transaction(
        tenant: *mut FDBTenant,
        out_transaction: *mut *mut FDBTransaction,
    ) -> fdb_error_t;

    /// A future of the tenant's numeric id.
    pub fn fdb_tenant_get_id(tenant: *mut FDBTenant) -> *mut FDBFuture;

    /// Gives up the handle; transactions made from it live on.
    pub fn fdb_tenant_destroy(tenant: *mut FDBTenant);
}
