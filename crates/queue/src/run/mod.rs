//! Running transactions, whatever they do: until one has committed (`retry`); exactly once, though the outcome of a commit may be unknown
//! (`operation`, `exactly_once`, `token`); not in a frozen queue (`pause`); how they read the rows of a range (`range_read`); and what they wait
//! for (`watch`, `turn`).

pub(crate) mod conflict;
pub(crate) mod exactly_once;
pub(crate) mod operation;
pub(crate) mod pause;
pub(crate) mod range_read;
pub mod retry;
pub(crate) mod token;
pub(crate) mod turn;
pub(crate) mod version;
pub(crate) mod version_history;
pub(crate) mod watch;
