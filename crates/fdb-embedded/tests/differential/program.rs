//! Programs: calls of a few interleaved transactions, one after the other.

use std::fmt;

use fdb_embedded::testing::{KeySelector, Range};

pub type Bytes = Vec<u8>;

/// A read version to set.
#[derive(Clone, PartialEq, Eq)]
pub enum Version {
    /// The one that this transaction has, if it is known.
    Of(usize),
    Number(i64),
}

/// One call on a transaction.
#[derive(Clone, PartialEq, Eq)]
pub enum Call {
    Get {
        key: Bytes,
        snapshot: bool,
    },
    GetKey {
        selector: KeySelector,
        snapshot: bool,
    },
    GetRange(Box<Range>),
    Set {
        key: Bytes,
        value: Bytes,
    },
    Clear {
        key: Bytes,
    },
    ClearRange {
        begin: Bytes,
        end: Bytes,
    },
    Atomic {
        code: u32,
        key: Bytes,
        operand: Bytes,
    },
    AddConflict {
        kind: u32,
        begin: Bytes,
        end: Bytes,
    },
    SetOption {
        code: u32,
        value: Option<Bytes>,
    },
    GetReadVersion,
    SetReadVersion(Version),
    Commit,
    CommittedVersion,
    /// Held until the end of the program.
    Versionstamp,
    /// Held until the end of the program.
    Watch {
        key: Bytes,
    },
    /// Ends one of the transaction's futures that are held, by number; the flag says cancel, not destroy.
    EndHeld {
        index: usize,
        cancel: bool,
    },
    OnError(i32),
    Reset,
    Cancel,
    ApproximateSize,
    /// The rows that tell of the last conflict.
    ConflictingKeys,
    /// Sets a timeout of a millisecond, and waits until it is over.
    TimeOut,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Step {
    pub transaction: usize,
    pub call: Call,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    pub seed: u64,
    /// What is in the database at the start.
    pub rows: Vec<(Bytes, Bytes)>,
    pub steps: Vec<Step>,
}

/// The special keys below this prefix show the last conflict.
pub const CONFLICTING_KEYS: &[u8] = b"\xff\xff/transaction/conflicting_keys/";

/// How many transactions a program has.
pub const TRANSACTIONS: usize = 4;

/// Bytes as a person reads them, long ones by their length.
pub struct Show<'a>(pub &'a [u8]);

impl fmt::Debug for Show<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let long = self.0.len() > 64;
        let shown = if long { &self.0[..8] } else { self.0 };
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if long { write!(f, "..({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

struct Selected<'a>(&'a KeySelector);

impl fmt::Debug for Selected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0.or_equal { "<=" } else { "<" };
        write!(f, "({sign} {:?} {:+})", Show(&self.0.key), self.0.offset)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |snapshot: &bool| if *snapshot { " snapshot" } else { "" };
        match self {
            Call::Get { key, snapshot } => write!(f, "get {:?}{}", Show(key), s(snapshot)),
            Call::GetKey { selector, snapshot } => {
                write!(f, "get_key {:?}{}", Selected(selector), s(snapshot))
            }
            Call::GetRange(r) => write!(
                f,
                "get_range {:?} to {:?} limit {} bytes {} mode {} iteration {}{}{}",
                Selected(&r.begin),
                Selected(&r.end),
                r.limit,
                r.target_bytes,
                r.mode,
                r.iteration,
                s(&r.snapshot),
                if r.reverse { " reverse" } else { "" }
            ),
            Call::Set { key, value } => write!(f, "set {:?} = {:?}", Show(key), Show(value)),
            Call::Clear { key } => write!(f, "clear {:?}", Show(key)),
            Call::ClearRange { begin, end } => write!(f, "clear_range {:?} {:?}", Show(begin), Show(end)),
            Call::Atomic { code, key, operand } => {
                write!(f, "atomic {code} {:?} {:?}", Show(key), Show(operand))
            }
            Call::AddConflict { kind, begin, end } => {
                write!(f, "conflict {kind} {:?} {:?}", Show(begin), Show(end))
            }
            Call::SetOption { code, value } => {
                write!(f, "option {code} {:?}", value.as_deref().map(Show))
            }
            Call::GetReadVersion => write!(f, "get_read_version"),
            Call::SetReadVersion(Version::Of(other)) => write!(f, "set_read_version of t{other}"),
            Call::SetReadVersion(Version::Number(n)) => write!(f, "set_read_version {n}"),
            Call::Commit => write!(f, "commit"),
            Call::CommittedVersion => write!(f, "committed_version"),
            Call::Versionstamp => write!(f, "versionstamp"),
            Call::Watch { key } => write!(f, "watch {:?}", Show(key)),
            Call::EndHeld { index, cancel } => {
                write!(f, "{} held future {index}", if *cancel { "cancel" } else { "destroy" })
            }
            Call::OnError(code) => write!(f, "on_error {code}"),
            Call::Reset => write!(f, "reset"),
            Call::Cancel => write!(f, "cancel"),
            Call::ConflictingKeys => write!(f, "conflicting keys"),
            Call::ApproximateSize => write!(f, "approximate_size"),
            Call::TimeOut => write!(f, "time out"),
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{} {:?}", self.transaction, self.call)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.rows {
            writeln!(f, "  given {:?} = {:?}", Show(key), Show(value))?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {number:2}: {step:?}")?;
        }
        Ok(())
    }
}
