//! Functions that act on a handle of either engine.

/// Exports functions that act on a handle, and declares the table of the real library's functions
/// with the same names. The body runs for our own objects. Calls with other handles are forwarded
/// to the real library. Functions under `also` are only declared; they are written out separately.
///
/// A body is safe code. It receives the caller's memory as values, which `where` names: `where key
/// = bytes(key, key_length)` passes two arguments to an unsafe function that requires nothing but
/// the C API's contract.
///
/// A function newer than API version 620 has a mark such as `[since 710] fn ...`. If the real
/// library lacks it, the call answers as [`Missing`](super::missing::Missing) says.
macro_rules! forwarded {
    (
        table $table:ident; handle $opaque:ty; object $object:ty;
        $(also { $($([since $also_since:literal])? fn $also:ident($($also_ty:ty),*) $(-> $also_ret:ty)?;)* })?
        $(
            $(#[$doc:meta])*
            $([since $since:literal])? fn $name:ident($self:ident $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)?
            $(where $($value:ident = $read:ident($($from:ident),+)),+)? $body:block
        )*
    ) => {
        /// The real library's functions with these names.
        pub(super) struct $table {
            $($($also: unsafe extern "C" fn(*mut $opaque $(, $also_ty)*) $(-> $also_ret)?,)*)?
            $($name: unsafe extern "C" fn(*mut $opaque $(, $ty)*) $(-> $ret)?,)*
        }

        impl $table {
            /// Looks the functions up in the real library.
            pub(super) fn load(library: &crate::capi::shared_object::SharedObject) -> Result<$table, crate::capi::shared_object::LoadError> {
                // SAFETY: the types are those of the C header, which the real library implements.
                unsafe {
                    Ok($table {
                        $($($also: crate::capi::missing::found!(
                            library, $also, [$($also_since)?], (*mut $opaque $(, $also_ty)*) $(-> $also_ret)?
                        ),)*)?
                        $($name: crate::capi::missing::found!(
                            library, $name, [$($since)?], (*mut $opaque $(, $ty)*) $(-> $ret)?
                        ),)*
                    })
                }
            }

            /// Keeps the table for the calls, after the real library has started.
            pub(super) fn keep(self) {
                let _ = Self::place().set(self);
            }

            /// The table, for a handle that is not ours.
            fn get() -> &'static $table {
                Self::place().get().expect("a handle that is not ours was made by the real library, so it is loaded")
            }

            fn place() -> &'static std::sync::OnceLock<$table> {
                static PLACE: std::sync::OnceLock<$table> = std::sync::OnceLock::new();
                &PLACE
            }
        }

        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The handle must be live, and pointers must be what the C API's documentation says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(handle: *mut $opaque $(, $arg: $ty)*) $(-> $ret)? {
                // SAFETY: the caller keeps the C API's contract: the handle is live, and of the type that this function takes.
                let Some($self) = (unsafe { crate::capi::handle::borrow::<$object, _>(handle) }) else {
                    let real = $table::get().$name;
                    // SAFETY: the handle is the real library's, whose contract is the same, and `load` gave the function its type.
                    return unsafe { real(handle $(, $arg)*) };
                };
                $($(
                    // SAFETY: the caller keeps the C API's contract: a pointer and its length describe memory that is readable
                    // during the call, and a result's pointer is writable during the call.
                    let $value = unsafe { $read($($from),+) };
                )+)?
                $body
            }
        )*
    };
}

pub(super) use forwarded;
