//! Guides for programs that use kvqueue as a library. They have no code of their own; their examples are
//! tested.
//!
//! | you want to | read |
//! |---|---|
//! | handle items with a function of your program | [`Worker`](crate::Worker) |
//! | process items with Rust code | [`write_a_handler`] |
//! | test that code | [`test_your_handler`] |
//! | run the daemon inside your program | [`embed_the_daemon`] |
//! | push an item together with your own writes | [`push_in_your_transaction`] |

pub mod embed_the_daemon;
#[cfg(test)]
pub(crate) mod generated;
pub mod push_in_your_transaction;
pub mod test_your_handler;
pub mod write_a_handler;
