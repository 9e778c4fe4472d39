//! Network options: codes, names and values, and those set in the environment.
//!
//! All are accepted, but none changes the embedded engine, which has no trace files or connections.
//! They are kept for the real library. Numbers and names are from FoundationDB's published option
//! list for API version 730.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::{Code, Result};
use crate::options::{flag, int};

/// The kind of value that an option takes, as FoundationDB checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    /// None.
    Flag,
    /// An integer within these bounds.
    Int(i64, i64),
    /// Text or bytes.
    Text,
    /// A path.
    Path,
    /// The path of a file that exists.
    File,
    /// Letters, digits and underscores.
    Identifier,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `name=value`.
    Knob,
    /// Any value, or none.
    Any,
}
use ValueKind::{Any, File, Flag, Identifier, Int, Knob, OneOf, Path, Text};

const DISABLE_MULTI_VERSION_CLIENT_API: i32 = 60;
const CALLBACKS_ON_EXTERNAL_THREADS: i32 = 61;
const EXTERNAL_CLIENT_LIBRARY: i32 = 62;
const EXTERNAL_CLIENT_DIRECTORY: i32 = 63;
const DISABLE_LOCAL_CLIENT: i32 = 64;
const CLIENT_THREADS_PER_VERSION: i32 = 65;
const FUTURE_VERSION_CLIENT_LIBRARY: i32 = 66;
const DISABLE_CLIENT_BYPASS: i32 = 72;

/// Options that have to be set before the network is set up.
const BEFORE_SETUP: [i32; 7] = [
    DISABLE_MULTI_VERSION_CLIENT_API,
    CALLBACKS_ON_EXTERNAL_THREADS,
    EXTERNAL_CLIENT_LIBRARY,
    EXTERNAL_CLIENT_DIRECTORY,
    DISABLE_LOCAL_CLIENT,
    CLIENT_THREADS_PER_VERSION,
    FUTURE_VERSION_CLIENT_LIBRARY,
];

/// Options of which the first one that is set excludes the other.
const EXCLUSIVE: [(i32, i32); 2] = [
    (DISABLE_MULTI_VERSION_CLIENT_API, DISABLE_LOCAL_CLIENT),
    (DISABLE_MULTI_VERSION_CLIENT_API, DISABLE_CLIENT_BYPASS),
];

/// Code, name in the environment, kind of value. Codes of 1000 and above are internal to
/// FoundationDB.
const OPTIONS: &[(i32, &str, ValueKind)] = &[
    (10, "LOCAL_ADDRESS", Any),
    (20, "CLUSTER_FILE", Any),
    (30, "TRACE_ENABLE", Any),
    (31, "TRACE_ROLL_SIZE", Int(0, i64::MAX)),
    (32, "TRACE_MAX_LOGS_SIZE", Int(0, i64::MAX)),
    (33, "TRACE_LOG_GROUP", Any),
    (34, "TRACE_FORMAT", OneOf(&["xml", "json"])),
    (35, "TRACE_CLOCK_SOURCE", OneOf(&["now", "realtime"])),
    (36, "TRACE_FILE_IDENTIFIER", Identifier),
    (37, "TRACE_SHARE_AMONG_CLIENT_THREADS", Flag),
    (38, "TRACE_INITIALIZE_ON_SETUP", Any),
    (39, "TRACE_PARTIAL_FILE_SUFFIX", Text),
    (40, "KNOB", Knob),
    (41, "TLS_PLUGIN", Text),
    (42, "TLS_CERT_BYTES", Text),
    (43, "TLS_CERT_PATH", Text),
    (45, "TLS_KEY_BYTES", Text),
    (46, "TLS_KEY_PATH", Text),
    (47, "TLS_VERIFY_PEERS", Text),
    (48, "BUGGIFY_ENABLE", Any),
    (49, "BUGGIFY_DISABLE", Any),
    (50, "BUGGIFY_SECTION_ACTIVATED_PROBABILITY", Any),
    (51, "BUGGIFY_SECTION_FIRED_PROBABILITY", Any),
    (52, "TLS_CA_BYTES", Text),
    (53, "TLS_CA_PATH", Text),
    (54, "TLS_PASSWORD", Text),
    (DISABLE_MULTI_VERSION_CLIENT_API, "DISABLE_MULTI_VERSION_CLIENT_API", Flag),
    (CALLBACKS_ON_EXTERNAL_THREADS, "CALLBACKS_ON_EXTERNAL_THREADS", Flag),
    (EXTERNAL_CLIENT_LIBRARY, "EXTERNAL_CLIENT_LIBRARY", File),
    (EXTERNAL_CLIENT_DIRECTORY, "EXTERNAL_CLIENT_DIRECTORY", Path),
    (DISABLE_LOCAL_CLIENT, "DISABLE_LOCAL_CLIENT", Flag),
    (CLIENT_THREADS_PER_VERSION, "CLIENT_THREADS_PER_VERSION", Int(1, 1024)),
    (FUTURE_VERSION_CLIENT_LIBRARY, "FUTURE_VERSION_CLIENT_LIBRARY", File),
    (67, "RETAIN_CLIENT_LIBRARY_COPIES", Flag),
    (68, "IGNORE_EXTERNAL_CLIENT_FAILURES", Flag),
    (69, "FAIL_INCOMPATIBLE_CLIENT", Flag),
    (70, "DISABLE_CLIENT_STATISTICS_LOGGING", Flag),
    (71, "ENABLE_SLOW_TASK_PROFILING", Flag),
    (71, "ENABLE_RUN_LOOP_PROFILING", Flag),
    (DISABLE_CLIENT_BYPASS, "DISABLE_CLIENT_BYPASS", Any),
    (80, "CLIENT_BUGGIFY_ENABLE", Any),
    (81, "CLIENT_BUGGIFY_DISABLE", Any),
    (82, "CLIENT_BUGGIFY_SECTION_ACTIVATED_PROBABILITY", Int(0, 100)),
    (83, "CLIENT_BUGGIFY_SECTION_FIRED_PROBABILITY", Int(0, 100)),
    (
        90,
        "DISTRIBUTED_CLIENT_TRACER",
        OneOf(&["none", "disabled", "logfile", "file", "log_file", "network_lossy"]),
    ),
    (91, "CLIENT_TMP_DIR", Path),
    (1000, "SUPPORTED_CLIENT_VERSIONS", Text),
    (1001, "EXTERNAL_CLIENT", Any),
    (1002, "EXTERNAL_CLIENT_TRANSPORT_ID", Any),
];

/// Options below this code may be set in the environment.
const FIRST_HIDDEN: i32 = 1000;
/// The prefix of the environment variables.
const PREFIX: &str = "FDB_NETWORK_OPTION_";

/// Checks a network option, as FoundationDB does in its order of checks. `earlier` are the codes of
/// the options that were set before.
pub fn check(code: i32, value: Option<&[u8]>, earlier: &[i32], is_network_set_up: bool) -> Result<()> {
    let (_, _, kind) = OPTIONS.iter().find(|(known, ..)| *known == code).ok_or(Code::INVALID_OPTION)?;
    match code {
        // An assertion of FoundationDB's.
        DISABLE_CLIENT_BYPASS if is_network_set_up => return Err(Code::INTERNAL_ERROR),
        CLIENT_THREADS_PER_VERSION if is_network_set_up && value.is_some() => {
            return Err(Code::INVALID_OPTION);
        }
        _ => kind.check(value)?,
    }
    let is_late = is_network_set_up && BEFORE_SETUP.contains(&code);
    let has_set = |other: i32| earlier.contains(&other);
    let is_excluded = |&(a, b): &(i32, i32)| (code == a && has_set(b)) || (code == b && has_set(a));
    if is_late || EXCLUSIVE.iter().any(is_excluded) { Err(Code::INVALID_OPTION) } else { Ok(()) }
}

impl ValueKind {
    fn check(self, value: Option<&[u8]>) -> Result<()> {
        let holds = |test: fn(&[u8]) -> bool| value.is_some_and(test);
        let fits = match self {
            Any => true,
            Flag => return flag(value),
            Int(min, max) => return int(value, min, max).map(drop),
            Text => value.is_some(),
            Path => holds(|value| !value.is_empty()),
            File => match value {
                Some(file) if !file.is_empty() => return exists(file),
                _ => false,
            },
            Identifier => holds(|value| value.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')),
            OneOf(words) => value.is_some_and(|value| words.iter().any(|word| word.as_bytes() == value)),
            Knob => holds(|value| value.contains(&b'=')),
        };
        if fits { Ok(()) } else { Err(Code::INVALID_OPTION_VALUE) }
    }

    /// Parses a value from the environment.
    fn parse(self, text: Vec<u8>) -> Result<Vec<u8>> {
        let Int(..) = self else { return Ok(text) };
        let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim_start().parse::<i64>().ok());
        number.map(|number| number.to_le_bytes().to_vec()).ok_or(Code::INVALID_OPTION_VALUE)
    }
}

fn exists(file: &[u8]) -> Result<()> {
    let is_there = std::path::Path::new(OsStr::from_bytes(file)).exists();
    if is_there { Ok(()) } else { Err(Code::FILE_NOT_FOUND) }
}

/// Checks the options in the environment.
pub fn check_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    for (code, name, kind) in OPTIONS.iter().filter(|(code, ..)| *code < FIRST_HIDDEN) {
        let Some(text) = variable(&format!("{PREFIX}{name}")) else { continue };
        let values = split(&text.into_vec());
        let fits = values.and_then(|values| {
            values.into_iter().try_for_each(|value| check(*code, Some(&kind.parse(value)?), &[], false))
        });
        fits.map_err(|_| Code::ENVIRONMENT_OPTION_FAILED)?;
    }
    Ok(())
}

/// Splits the values of a variable at colons. A backslash escapes a colon or a backslash.
fn split(text: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut values = vec![Vec::new()];
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let literal = match byte {
            b':' => {
                values.push(Vec::new());
                continue;
            }
            b'\\' => bytes.next().filter(|next| b":\\".contains(next)).ok_or(Code::INVALID_OPTION_VALUE)?,
            other => other,
        };
        if let Some(value) = values.last_mut() {
            value.push(*literal);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_option_values_are_checked() {
        fn check(code: i32, value: Option<&[u8]>) -> Result<()> {
            super::check(code, value, &[], false)
        }
        let int = |value: i64| Some(value.to_le_bytes());
        assert_eq!(check(9999, None), Err(Code::INVALID_OPTION));
        assert_eq!(check(30, None), Ok(()));
        assert_eq!(check(31, Some(b"x")), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(check(32, int(-1).as_ref().map(|v| &v[..])), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(check(65, int(0).as_ref().map(|v| &v[..])), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(check(34, Some(b"json")), Ok(()));
        assert_eq!(check(34, Some(b"yaml")), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(check(40, Some(b"name")), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(check(63, None), Err(Code::INVALID_OPTION_VALUE));
        assert_eq!(check(71, Some(b"x")), Err(Code::INVALID_OPTION_VALUE));
    }

    #[test]
    fn the_environment_is_read_by_name() {
        let with = |name: &'static str, value: &'static str| {
            check_environment(move |variable| (variable == name).then(|| OsString::from(value)))
        };
        assert_eq!(check_environment(|_| None), Ok(()));
        assert_eq!(with("FDB_NETWORK_OPTION_TRACE_FORMAT", "json"), Ok(()));
        assert_eq!(with("FDB_NETWORK_OPTION_TRACE_FORMAT", "yaml"), Err(Code::ENVIRONMENT_OPTION_FAILED));
        assert_eq!(with("FDB_NETWORK_OPTION_TRACE_ROLL_SIZE", "17"), Ok(()));
        assert_eq!(with("FDB_NETWORK_OPTION_TRACE_ROLL_SIZE", "x"), Err(Code::ENVIRONMENT_OPTION_FAILED));
        assert_eq!(with("FDB_NETWORK_OPTION_KNOB", "a=1:b=\\:2"), Ok(()));
        assert_eq!(with("FDB_NETWORK_OPTION_KNOB", "a=1:b"), Err(Code::ENVIRONMENT_OPTION_FAILED));
        assert_eq!(with("FDB_NETWORK_OPTION_KNOB", "a=\\n"), Err(Code::ENVIRONMENT_OPTION_FAILED));
        assert_eq!(with("FDB_NETWORK_OPTION_EXTERNAL_CLIENT", "x"), Ok(()));
    }

    #[test]
    fn option_values_are_separated_by_colons() {
        assert_eq!(split(b"a:b\\:c:\\\\").unwrap(), [&b"a"[..], b"b:c", b"\\"]);
    }
}
