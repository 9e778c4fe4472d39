//! The C library's heap.

/// Returns freed memory to the system. The C library otherwise keeps free memory between pieces
/// that are in use. Takes some milliseconds, in which other threads may wait for memory.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: it is declared as in malloc.h. It takes the locks that it needs, so any thread may call it at any time, and it touches
    // nothing that is in use.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    malloc_trim(0);
}

/// Other C libraries return memory themselves, or cannot.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}
