//! The API version, and the macro by which the `foundationdb` crate chooses code for it.

/// The API version these declarations describe: FoundationDB 7.3.
pub const FDB_API_VERSION: u32 = 730;

/// Keeps code that holds for an API version, in places where attribute macros cannot stand.
///
/// The bounds are `min = N`, `max = N` or `min = N, max = N`, inclusive, followed by any number of
/// `feature = "name"`, each of which makes the condition true as well. What follows `=>` is an item, an
/// expression, statements, or `{ .. } else { .. }`.
///
/// Here the version is always [`FDB_API_VERSION`](crate::FDB_API_VERSION), so every known bound is decided
/// as the macro is expanded. A version that no release of the API had is a compile error.
///
/// ```
/// use foundationdb_sys::if_cfg_api_versions;
/// let wide = if_cfg_api_versions!(min = 610, max = 740 => { true } else { false });
/// let old = if_cfg_api_versions!(max = 620 => { true } else { false });
/// assert!(wide && !old);
/// ```
#[macro_export]
macro_rules! if_cfg_api_versions {
    (min = $min:tt, max = $max:tt $(, feature = $feature:literal)* => $($body:tt)*) => {
        $crate::__if_version_min! { $min $max [$($feature),*] $($body)* }
    };
    (min = $min:tt $(, feature = $feature:literal)* => $($body:tt)*) => {
        $crate::__if_version_min! { $min 740 [$($feature),*] $($body)* }
    };
    (max = $max:tt $(, feature = $feature:literal)* => $($body:tt)*) => {
        $crate::__if_version_min! { 510 $max [$($feature),*] $($body)* }
    };
}

/// Decides the lower bound: 740 is above us, anything older is met.
#[doc(hidden)]
#[macro_export]
macro_rules! __if_version_min {
    (510 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (520 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (600 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (610 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (620 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (630 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (700 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (710 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (730 $($rest:tt)*) => { $crate::__if_version_max! { $($rest)* } };
    (740 $max:tt $features:tt $($body:tt)*) => { $crate::__if_version_never! { $features $($body)* } };
    ($min:tt $($rest:tt)*) => {
        compile_error!(concat!("no FoundationDB API version is called ", stringify!($min)));
    };
}

/// Decides the upper bound: 730 and above are met, anything older is below us.
#[doc(hidden)]
#[macro_export]
macro_rules! __if_version_max {
    (730 $features:tt $($body:tt)*) => { $crate::__if_version_emit! { [all()] $($body)* } };
    (740 $features:tt $($body:tt)*) => { $crate::__if_version_emit! { [all()] $($body)* } };
    (510 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (520 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (600 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (610 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (620 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (630 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (700 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    (710 $($rest:tt)*) => { $crate::__if_version_never! { $($rest)* } };
    ($max:tt $($rest:tt)*) => {
        compile_error!(concat!("no FoundationDB API version is called ", stringify!($max)));
    };
}

/// The bounds exclude us: only a feature of the calling crate can still keep the code.
#[doc(hidden)]
#[macro_export]
macro_rules! __if_version_never {
    ([$($feature:literal),*] $($body:tt)*) => {
        $crate::__if_version_emit! { [any($(feature = $feature),*)] $($body)* }
    };
}

/// Puts the code under its condition, as a block where it is more than one statement.
#[doc(hidden)]
#[macro_export]
macro_rules! __if_version_emit {
    ([$($cfg:tt)*] { $($then:tt)* } else { $($else:tt)* }) => {{
        #[cfg($($cfg)*)]
        { $($then)* }
        #[cfg(not($($cfg)*))]
        { $($else)* }
    }};
    ([$($cfg:tt)*] $first:stmt; $($rest:tt)+) => {
        #[cfg($($cfg)*)]
        { $first; $($rest)+ }
    };
    ([$($cfg:tt)*] $($body:tt)*) => {
        #[cfg($($cfg)*)]
        $($body)*
    };
}
