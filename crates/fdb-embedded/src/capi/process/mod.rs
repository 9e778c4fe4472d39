//! What the engine asks of the process by C functions: that is here because only the directory `capi` may call them.

pub mod atfork;
pub mod heap;
pub mod peer;
