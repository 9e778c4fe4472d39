//! Handles: pointers that are tagged with the engine to which they belong.

use std::sync::Arc;

use crate::fork::is_forked;

/// The lowest bit of a handle of the embedded engine. Allocations are aligned, so it is 0
/// otherwise.
const EMBEDDED: usize = 1;

/// Returns an object to the caller, who may use it on any thread for any time.
pub(super) fn give<Object: Send + Sync + 'static, Opaque>(object: Object) -> *mut Opaque {
    const { assert!(align_of::<Object>() > EMBEDDED) };
    Arc::into_raw(Arc::new(object)).cast_mut().map_addr(|address| address | EMBEDDED).cast()
}

fn untagged<Object, Opaque>(handle: *mut Opaque) -> Option<*mut Object> {
    (handle.addr() & EMBEDDED != 0).then(|| handle.map_addr(|address| address & !EMBEDDED).cast())
}

/// The object of a handle; `None` for a handle of the real library.
///
/// # Safety
/// `handle` must come from [`give`] with the same `Object` and not have been taken back, or come from the real
/// library.
pub(super) unsafe fn borrow<'a, Object, Opaque>(handle: *mut Opaque) -> Option<&'a Object> {
    // SAFETY: by the caller's promise a tagged handle points at a live `Object`.
    untagged(handle).map(|object: *mut Object| unsafe { &*object })
}

/// Like [`borrow`], but keeps the object and so the handle alive after the caller has destroyed it.
///
/// # Safety
/// As for [`borrow`].
pub(super) unsafe fn share<Object, Opaque>(handle: *mut Opaque) -> Option<Arc<Object>> {
    untagged(handle).map(|object: *mut Object| {
        // SAFETY: by the caller's promise a tagged handle is an `Arc` that `give` leaked; this adds an owner.
        unsafe {
            Arc::increment_strong_count(object);
            Arc::from_raw(object)
        }
    })
}

/// Takes an object back from the caller; `None` for a handle of the real library.
///
/// # Safety
/// As for [`borrow`], and the handle must not be used afterwards, except by owners that [`share`] it.
pub(super) unsafe fn take<Object, Opaque>(handle: *mut Opaque) -> Option<Arc<Object>> {
    untagged(handle).map(|object: *mut Object| {
        // SAFETY: by the caller's promise a tagged handle is an `Arc` that `give` leaked, given back once.
        let object = unsafe { Arc::from_raw(object) };
        if is_forked() {
            // Dropping it would wait for threads and locks of the parent process.
            std::mem::forget(Arc::clone(&object));
        }
        object
    })
}

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
        table $table:ident in $field:ident; handle $opaque:ty; object $object:ty;
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
            pub(super) fn load(library: &crate::capi::real::SharedObject) -> Result<$table, crate::capi::real::LoadError> {
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
                    let real = crate::capi::real::library().$field.$name;
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
