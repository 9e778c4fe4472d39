//! Whether the index of a keyed queue is right, and making it right.
//!
//! Every transaction keeps the rules of the index ([`keyed`](crate::ops::keyed)). So it goes wrong only by other programs, or by damage. Then a key may have
//! no place, and no fetch finds its items; or the counter of a scope's running items is wrong, and its limit closes it for ever.
//!
//! - [`rows`] is the check, on rows from wherever they come;
//! - [`lease_rows`] finds the running items in the rows of leases;
//! - [`read`] reads the index in one transaction;
//! - [`unlisted`] looks for keys with items that are not in the index, a page of keys at a time;
//! - [`repair`] lists keys again, and corrects counters.

pub(crate) mod lease_rows;
pub(crate) mod read;
pub(crate) mod repair;
pub(crate) mod rows;
pub(crate) mod unlisted;
