//! `libfdb_c.so`: the `fdb_*` functions of [`fdb_embedded`] as a shared library, under the name by which every
//! language's FoundationDB binding looks for its client.
//!
//! The functions are not named here; a reference to the crate is what makes rustc link and export them.

use fdb_embedded as _;
