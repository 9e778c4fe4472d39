//! Functions that the real library at hand does not have.
//!
//! It may be older than this API version, or newer and have dropped a function. FoundationDB's multi-version client
//! loads such a library too and answers a call of what it lacks with `unsupported_operation`; so does this one. What
//! version 6.2 has must be there, or the library is not loaded.

use std::ffi::{c_double, c_int};

use foundationdb_sys::{FDBFuture, FDBResult};

use super::{future, result};
use crate::error::Code;
use crate::future::Future;

/// What a function of this return type answers when the real library lacks it.
pub(super) trait Missing {
    /// The answer.
    fn missing() -> Self;
}

impl Missing for () {
    fn missing() {}
}

impl Missing for c_int {
    fn missing() -> c_int {
        Code::UNSUPPORTED_OPERATION.raw()
    }
}

impl Missing for c_double {
    fn missing() -> c_double {
        0.0
    }
}

impl Missing for *mut FDBFuture {
    fn missing() -> *mut FDBFuture {
        future::give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
    }
}

impl Missing for *mut FDBResult {
    fn missing() -> *mut FDBResult {
        result::give(Code::UNSUPPORTED_OPERATION)
    }
}

/// A function of the real library: one that must be there, or one with a stand-in.
macro_rules! found {
    ($library:expr, $name:ident, [], ($($ty:ty),*) $(-> $ret:ty)?) => {
        $library.function(concat!(stringify!($name), "\0"))?
    };
    ($library:expr, $name:ident, [$since:literal], ($($ty:ty),*) $(-> $ret:ty)?) => {{
        const { assert!($since > crate::capi::network::OLDEST_API_VERSION) };
        unsafe extern "C" fn missing($(_: $ty),*) $(-> $ret)? {
            crate::capi::missing::Missing::missing()
        }
        $library
            .function(concat!(stringify!($name), "\0"))
            .unwrap_or(missing as unsafe extern "C" fn($($ty),*) $(-> $ret)?)
    }};
}

pub(super) use found;
