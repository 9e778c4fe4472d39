//! A queue as lines of JSON: what `export` writes and `import` reads. `docs/TRANSFER.md` specifies it.

mod frame;
mod reader;
mod record;

pub(super) use frame::{Header, Tally};
pub(super) use reader::{Damage, Reader, Record};
pub(super) use record::line;

/// The version of the format.
const FORMAT: u32 = 1;

/// The longest line: the longest payload, of which JSON may write each byte as six, and the item's other fields.
const MAX_LINE: usize = 64 << 20;
