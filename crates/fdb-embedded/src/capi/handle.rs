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
