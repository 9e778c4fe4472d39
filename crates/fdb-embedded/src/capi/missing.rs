//! Functions that the loaded real library lacks.
//!
//! The library may be older than this API version, or newer without a function. As in
//! FoundationDB's multi-version client, calls of missing functions answer `unsupported_operation`.
//! The functions of version 6.2 must exist, or the library is not loaded.

use std::ffi::{c_double, c_int};

use crate::error::Code;

/// The answer for a missing function with this return type.
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

/// A function of the real library, either required or with a stand-in.
macro_rules! found {
    ($library:expr, $name:ident, [], ($($ty:ty),*) $(-> $ret:ty)?) => {
        $library.function(concat!(stringify!($name), "\0"))?
    };
    ($library:expr, $name:ident, [$since:literal], ($($ty:ty),*) $(-> $ret:ty)?) => {{
        const { assert!($since > crate::capi::OLDEST_API_VERSION) };
        unsafe extern "C" fn missing($(_: $ty),*) $(-> $ret)? {
            crate::capi::missing::Missing::missing()
        }
        $library
            .function(concat!(stringify!($name), "\0"))
            .unwrap_or(missing as unsafe extern "C" fn($($ty),*) $(-> $ret)?)
    }};
}

pub(super) use found;
