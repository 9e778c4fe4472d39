//! Handles: pointers that say which engine they belong to.

use std::sync::Arc;

use crate::fork::is_forked;

/// The lowest bit of a pointer to one of our objects; allocations are aligned, so it is otherwise 0.
const EMBEDDED: usize = 1;

/// Gives an object to the C side, which may use it on any thread, for as long as it likes.
pub(super) fn give<Object: Send + Sync + 'static, Opaque>(object: Object) -> *mut Opaque {
    const { assert!(align_of::<Object>() > EMBEDDED) };
    Arc::into_raw(Arc::new(object)).cast_mut().map_addr(|address| address | EMBEDDED).cast()
}

fn untagged<Object, Opaque>(handle: *mut Opaque) -> Option<*mut Object> {
    (handle.addr() & EMBEDDED != 0).then(|| handle.map_addr(|address| address & !EMBEDDED).cast())
}

/// The object behind a handle, if it is one of ours.
///
/// # Safety
/// `handle` must come from [`give`] with the same `Object` and not have been taken back, or come from the real
/// library.
pub(super) unsafe fn borrow<'a, Object, Opaque>(handle: *mut Opaque) -> Option<&'a Object> {
    // SAFETY: by the caller's promise a tagged handle points at a live `Object`.
    untagged(handle).map(|object: *mut Object| unsafe { &*object })
}

/// Like [`borrow`], and keeps the object, and so the handle, alive after the C side has given it back.
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

/// Takes an object back from the C side, if it is one of ours.
///
/// # Safety
/// As for [`borrow`], and the handle must not be used afterwards, but by those who [`share`] it.
pub(super) unsafe fn take<Object, Opaque>(handle: *mut Opaque) -> Option<Arc<Object>> {
    untagged(handle).map(|object: *mut Object| {
        // SAFETY: by the caller's promise a tagged handle is an `Arc` that `give` leaked, given back once.
        let object = unsafe { Arc::from_raw(object) };
        if is_forked() {
            // Its end would wait for threads and locks that are the parent's.
            std::mem::forget(Arc::clone(&object));
        }
        object
    })
}

/// Exports functions that act on a handle, and declares the table of the real library's functions of the same
/// names. The body runs for our own objects; any other handle goes to the real library with all arguments. What is
/// under `also` is only declared: those functions are written out beside the macro.
///
/// A body is safe code. It gets the caller's memory as values, which `where` names: `where key = bytes(key, key_length)`
/// passes two arguments to an unsafe function that has no requirement but the C API's contract.
///
/// A function newer than API version 620 says since when it is there: `[since 710] fn ...`. A real
/// library without it is used all the same, and the function then answers as [`Missing`](super::missing::Missing)
/// says.
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
        /// The real library's functions of these names.
        pub(super) struct $table {
            $($($also: unsafe extern "C" fn(*mut $opaque $(, $also_ty)*) $(-> $also_ret)?,)*)?
            $($name: unsafe extern "C" fn(*mut $opaque $(, $ty)*) $(-> $ret)?,)*
        }

        impl $table {
            /// Finds the functions in the real library.
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
