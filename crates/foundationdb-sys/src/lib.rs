//! FoundationDB's 7.3 C API as Rust declarations, without bindgen.
//!
//! It stands in for the crate of the same name on crates.io, by `[patch.crates-io]`, so that the `foundationdb`
//! crate builds without libclang, a C header or a build script. What it promises:
//!
//! * Every function of the header at API version 730, every option and every structure, under the names
//!   that bindgen gives them. `tests/header.rs` holds them against an installed header.
//! * Structures have the header's layout; the compiler checks it.
//! * No link directive. The symbols come from the `fdb-embedded` crate, which a program must mention
//!   (`use fdb_embedded as _;`) for the linker to see it.
//!
//! Functions are grouped by the object they act on: [`network`], [`future`], [`result`], [`database`], [`tenant`],
//! [`transaction`] with [`mutation`], and [`granule`]. Everything is also available at the root.

#![expect(unsafe_code, reason = "declaring foreign functions is what this crate is for")]
#![expect(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "names are the C header's, as bindgen renders them"
)]

#[cfg(any(
    feature = "fdb-5_1",
    feature = "fdb-5_2",
    feature = "fdb-6_0",
    feature = "fdb-6_1",
    feature = "fdb-6_2",
    feature = "fdb-6_3",
    feature = "fdb-7_0",
    feature = "fdb-7_1",
    feature = "fdb-7_4",
))]
compile_error!(
    "this foundationdb-sys declares API version 730 only: give `foundationdb` the feature fdb-7_3 and no other version"
);

pub mod database;
pub mod future;
pub mod granule;
pub mod granule_types;
pub mod mutation;
pub mod network;
pub mod options;
pub mod result;
pub mod tenant;
pub mod transaction;
pub mod types;
mod versions;

pub use database::*;
pub use future::*;
pub use granule::*;
pub use granule_types::*;
pub use mutation::*;
pub use network::*;
pub use options::*;
pub use result::*;
pub use tenant::*;
pub use transaction::*;
pub use types::*;
pub use versions::FDB_API_VERSION;
