//! The messages between a guest and its host.
//!
//! A message is one byte for its kind, followed by its fields ([`super::wire`]). A frame is a
//! message preceded by its length ([`super::stream`]). The guest chooses the ids of views, requests
//! and watches, each unique in its connection. Decoding checks everything that the engine relies
//! on, so that no decoded message can do harm.

use bytes::Bytes;

use super::commit::CommitMessage;
use super::wire::{Malformed, Reader, Writer};
use crate::engine::{CommitFailure, CommitResult, Committed};
use crate::error::Code;
use crate::rows::RowSet;

/// The first bytes of a connection.
const MAGIC: u64 = u64::from_le_bytes(*b"fdb-embd");
/// The version of the protocol: of everything in this file.
pub const PROTOCOL: u32 = 3;

/// The version at which to open a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewVersion {
    /// The newest version.
    Newest,
    /// A version chosen by the client.
    Version(i64),
    /// The newest version, readable until the view is closed.
    Pinned,
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first message of a connection.
    Hello {
        protocol: u32,
    },
    OpenView {
        view: u64,
        at: ViewVersion,
    },
    CloseView {
        view: u64,
    },
    Get {
        request: u64,
        view: u64,
        key: Vec<u8>,
    },
    /// Rows from one end of a range, until either limit is reached.
    Range {
        request: u64,
        view: u64,
        begin: Vec<u8>,
        end: Vec<u8>,
        backward: bool,
        rows: u32,
        bytes: u32,
    },
    Commit {
        request: u64,
        commit: CommitMessage<u64>,
    },
    /// Asks for a response as soon as the value of the key is not `baseline`.
    Arm {
        watch: u64,
        key: Vec<u8>,
        baseline: Option<Bytes>,
    },
    Disarm {
        watch: u64,
    },
}

/// From the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The response to the first message: the host's protocol, which has to equal the guest's.
    Welcome {
        protocol: u32,
        pid: u32,
    },
    View {
        view: u64,
        version: Result<i64, Code>,
    },
    Value {
        request: u64,
        value: Result<Option<Bytes>, Code>,
    },
    Rows {
        request: u64,
        rows: Result<RowSet, Code>,
    },
    Committed {
        request: u64,
        result: CommitResult,
    },
    Fired {
        watch: u64,
        error: Option<Code>,
    },
}

mod kind {
    pub const HELLO: u8 = 1;
    pub const OPEN_VIEW: u8 = 2;
    pub const CLOSE_VIEW: u8 = 3;
    pub const GET: u8 = 4;
    pub const RANGE: u8 = 5;
    pub const COMMIT: u8 = 6;
    pub const ARM: u8 = 7;
    pub const DISARM: u8 = 8;

    pub const WELCOME: u8 = 129;
    pub const VIEW: u8 = 130;
    pub const VALUE: u8 = 131;
    pub const ROWS: u8 = 132;
    pub const COMMITTED: u8 = 133;
    pub const FIRED: u8 = 134;
}

impl Request {
    /// Appends the encoded message.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut w = Writer(into);
        match self {
            Self::Hello { protocol } => {
                w.u8(kind::HELLO);
                w.u64(MAGIC);
                w.u32(*protocol);
            }
            Self::OpenView { view, at } => {
                w.u8(kind::OPEN_VIEW);
                w.u64(*view);
                encode_view_version(&mut w, *at);
            }
            Self::CloseView { view } => {
                w.u8(kind::CLOSE_VIEW);
                w.u64(*view);
            }
            Self::Get { request, view, key } => {
                w.u8(kind::GET);
                w.u64(*request);
                w.u64(*view);
                w.bytes(key);
            }
            Self::Range { request, view, begin, end, backward, rows, bytes } => {
                w.u8(kind::RANGE);
                w.u64(*request);
                w.u64(*view);
                w.bytes(begin);
                w.bytes(end);
                w.bool(*backward);
                w.u32(*rows);
                w.u32(*bytes);
            }
            Self::Commit { request, commit } => {
                w.u8(kind::COMMIT);
                w.u64(*request);
                commit.encode(&mut w);
            }
            Self::Arm { watch, key, baseline } => {
                w.u8(kind::ARM);
                w.u64(*watch);
                w.bytes(key);
                w.optional(baseline.as_deref());
            }
            Self::Disarm { watch } => {
                w.u8(kind::DISARM);
                w.u64(*watch);
            }
        }
    }

    /// Decodes the message in a frame.
    pub fn decode(frame: &[u8]) -> Result<Request, Malformed> {
        let mut r = Reader(frame);
        let request = match r.u8()? {
            kind::HELLO => {
                if r.u64()? != MAGIC {
                    return Err(Malformed("it does not begin as a guest does"));
                }
                Self::Hello { protocol: r.u32()? }
            }
            kind::OPEN_VIEW => Self::OpenView { view: r.u64()?, at: decode_view_version(&mut r)? },
            kind::CLOSE_VIEW => Self::CloseView { view: r.u64()? },
            kind::GET => Self::Get { request: r.u64()?, view: r.u64()?, key: r.key()?.to_vec() },
            kind::RANGE => Self::Range {
                request: r.u64()?,
                view: r.u64()?,
                begin: r.key()?.to_vec(),
                end: r.key()?.to_vec(),
                backward: r.bool()?,
                rows: r.u32()?,
                bytes: r.u32()?,
            },
            kind::COMMIT => Self::Commit { request: r.u64()?, commit: CommitMessage::decode(&mut r)? },
            kind::ARM => Self::Arm {
                watch: r.u64()?,
                key: r.key()?.to_vec(),
                baseline: r.optional_value()?.map(Bytes::copy_from_slice),
            },
            kind::DISARM => Self::Disarm { watch: r.u64()? },
            _ => return Err(Malformed("its kind is not known")),
        };
        r.end().map(|()| request)
    }
}

impl Response {
    /// Appends the encoded message.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut w = Writer(into);
        match self {
            Self::Welcome { protocol, pid } => {
                w.u8(kind::WELCOME);
                w.u64(MAGIC);
                w.u32(*protocol);
                w.u32(*pid);
            }
            Self::View { view, version } => {
                w.u8(kind::VIEW);
                w.u64(*view);
                if outcome(&mut w, version.as_ref().err()) {
                    version.iter().for_each(|version| w.i64(*version));
                }
            }
            Self::Value { request, value } => {
                w.u8(kind::VALUE);
                w.u64(*request);
                if outcome(&mut w, value.as_ref().err()) {
                    value.iter().for_each(|value| w.optional(value.as_deref()));
                }
            }
            Self::Rows { request, rows } => {
                w.u8(kind::ROWS);
                w.u64(*request);
                if outcome(&mut w, rows.as_ref().err()) {
                    rows.iter().for_each(|rows| encode_rows(&mut w, rows));
                }
            }
            Self::Committed { request, result } => {
                w.u8(kind::COMMITTED);
                w.u64(*request);
                outcome(&mut w, result.as_ref().err().map(|failure| &failure.code));
                match result {
                    Ok(committed) => {
                        w.i64(committed.version);
                        w.u16(committed.order);
                    }
                    Err(failure) => w.ranges(&failure.conflicting),
                }
            }
            Self::Fired { watch, error } => {
                w.u8(kind::FIRED);
                w.u64(*watch);
                outcome(&mut w, error.as_ref());
            }
        }
    }

    /// Decodes the message in a frame.
    pub fn decode(frame: &[u8]) -> Result<Response, Malformed> {
        let mut r = Reader(frame);
        let response = match r.u8()? {
            kind::WELCOME => {
                if r.u64()? != MAGIC {
                    return Err(Malformed("it does not begin as a host does"));
                }
                Self::Welcome { protocol: r.u32()?, pid: r.u32()? }
            }
            kind::VIEW => Self::View { view: r.u64()?, version: result(&mut r, Reader::i64)? },
            kind::VALUE => {
                let value = |r: &mut Reader<'_>| Ok(r.optional_value()?.map(Bytes::copy_from_slice));
                Self::Value { request: r.u64()?, value: result(&mut r, value)? }
            }
            kind::ROWS => Self::Rows { request: r.u64()?, rows: result(&mut r, decode_rows)? },
            kind::COMMITTED => Self::Committed { request: r.u64()?, result: decode_committed(&mut r)? },
            kind::FIRED => Self::Fired { watch: r.u64()?, error: result(&mut r, |_| Ok(()))?.err() },
            _ => return Err(Malformed("its kind is not known")),
        };
        r.end().map(|()| response)
    }
}

fn encode_view_version(w: &mut Writer<'_>, at: ViewVersion) {
    match at {
        ViewVersion::Newest => w.u8(0),
        ViewVersion::Version(version) => {
            w.u8(1);
            w.i64(version);
        }
        ViewVersion::Pinned => w.u8(2),
    }
}

fn decode_view_version(r: &mut Reader<'_>) -> Result<ViewVersion, Malformed> {
    match r.u8()? {
        0 => Ok(ViewVersion::Newest),
        1 => Ok(ViewVersion::Version(r.i64()?)),
        2 => Ok(ViewVersion::Pinned),
        _ => Err(Malformed("what a view is to show is not known")),
    }
}

/// Encodes whether there is an error, and its code; true if there is none.
fn outcome(w: &mut Writer<'_>, error: Option<&Code>) -> bool {
    w.bool(error.is_none());
    error.into_iter().for_each(|code| w.code(*code));
    error.is_none()
}

fn result<'b, T>(
    r: &mut Reader<'b>,
    value: impl FnOnce(&mut Reader<'b>) -> Result<T, Malformed>,
) -> Result<Result<T, Code>, Malformed> {
    if r.bool()? { value(r).map(Ok) } else { r.code().map(Err) }
}

fn encode_rows(w: &mut Writer<'_>, rows: &RowSet) {
    w.bool(rows.more);
    w.count(rows.len());
    for (key, value) in rows.iter() {
        w.bytes(key);
        w.bytes(value);
    }
}

fn decode_rows(r: &mut Reader<'_>) -> Result<RowSet, Malformed> {
    let mut rows = RowSet::default();
    rows.more = r.bool()?;
    for _ in 0..r.count(8)? {
        let key = r.key()?;
        rows.push(key, r.value()?);
    }
    Ok(rows)
}

fn decode_committed(r: &mut Reader<'_>) -> Result<CommitResult, Malformed> {
    if r.bool()? {
        return Ok(Ok(Committed { version: r.i64()?, order: r.u16()? }));
    }
    let code = r.code()?;
    Ok(Err(CommitFailure { code, conflicting: r.ranges()? }))
}

#[cfg(test)]
mod tests;
