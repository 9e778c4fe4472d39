//! Which network options are accepted when, and with which values, as FoundationDB's own library has it.
//!
//! Each sequence of calls runs in a process of its own, because a process has one network. With `FDB_CLIENT_LIB` the same
//! sequences run on FoundationDB's library too, where they have to come out the same.

#![expect(unsafe_code, reason = "the functions under test are those of a C library")]

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

/// Names FoundationDB's own client library, to compare with.
const REAL_LIBRARY_VARIABLE: &str = "FDB_CLIENT_LIB";
/// In the process of a sequence: its library and its number.
const RUN_VARIABLE: &str = "FDB_C_OPTIONS";

/// Cargo builds the library for this test, next to it.
fn our_library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its program");
    test.parent().expect("a program lies in a directory").join("libfdb_c.so")
}

/// A call, with the error that it returns.
enum Call {
    Set(c_int, Option<&'static [u8]>, c_int),
    SetUp(c_int),
}
use Call::{Set, SetUp};

const NOT_THERE: Option<&[u8]> = Some(b"/no/such/file");
const THERE: Option<&[u8]> = Some(b"/dev/null");
const TWO: Option<&[u8]> = Some(&[2, 0, 0, 0, 0, 0, 0, 0]);
const NO_THREADS: Option<&[u8]> = Some(&[0; 8]);
const EMPTY: Option<&[u8]> = Some(b"");
const WORD: Option<&[u8]> = Some(b"word");

fn sequences() -> Vec<Vec<Call>> {
    vec![
        // Values before the network is set up.
        vec![
            Set(61, WORD, 2006),
            Set(61, None, 0),
            Set(62, None, 2006),
            Set(62, EMPTY, 2006),
            Set(62, NOT_THERE, 1511),
            Set(63, None, 2006),
            Set(63, EMPTY, 2006),
            Set(64, WORD, 2006),
            Set(65, None, 2006),
            Set(65, NO_THREADS, 2006),
            Set(65, TWO, 0),
            Set(66, EMPTY, 2006),
            Set(66, NOT_THERE, 1511),
            Set(67, WORD, 2006),
            Set(72, WORD, 0),
            Set(91, EMPTY, 2006),
            Set(91, WORD, 0),
            Set(9999, None, 2007),
        ],
        // The first of two that exclude each other counts.
        vec![Set(60, None, 0), Set(64, None, 2007), Set(72, None, 2007), Set(61, EMPTY, 0), SetUp(0)],
        vec![Set(64, None, 0), Set(60, None, 2007)],
        vec![Set(72, None, 0), Set(60, None, 2007), SetUp(0)],
        // After the network is set up.
        vec![
            SetUp(0),
            Set(60, WORD, 2006),
            Set(60, None, 2007),
            Set(61, None, 2007),
            Set(62, EMPTY, 2006),
            Set(62, NOT_THERE, 1511),
            Set(62, THERE, 2007),
            Set(63, None, 2006),
            Set(63, EMPTY, 2006),
            Set(63, NOT_THERE, 2007),
            Set(64, WORD, 2006),
            Set(64, None, 2007),
            Set(65, None, 2006),
            Set(65, NO_THREADS, 2007),
            Set(65, TWO, 2007),
            Set(66, EMPTY, 2006),
            Set(66, NOT_THERE, 1511),
            Set(66, THERE, 2007),
            Set(67, None, 0),
            Set(68, None, 0),
            Set(69, None, 0),
            Set(70, None, 0),
            Set(72, None, 4100),
            Set(72, WORD, 4100),
            Set(91, EMPTY, 2006),
            Set(91, WORD, 0),
            Set(33, WORD, 0),
            Set(40, WORD, 2006),
            Set(9999, None, 2007),
        ],
    ]
}

/// Runs a sequence, if this process was started for one.
#[test]
fn runs_one_sequence() {
    let Ok(what) = std::env::var(RUN_VARIABLE) else { return };
    let (at, library) = what.split_once(' ').expect("a number and a library");
    // SAFETY: the library is FoundationDB's or ours, and the functions are declared as in its header.
    let library = unsafe { Library::new(library) }.expect("the library can be loaded");
    // SAFETY: as above.
    let (select, set_up, set) = unsafe {
        (
            library.get::<unsafe extern "C" fn(c_int, c_int) -> c_int>(b"fdb_select_api_version_impl\0"),
            library.get::<unsafe extern "C" fn() -> c_int>(b"fdb_setup_network\0"),
            library
                .get::<unsafe extern "C" fn(c_int, *const u8, c_int) -> c_int>(b"fdb_network_set_option\0"),
        )
    };
    let (select, set_up, set) =
        (select.expect("it is there"), set_up.expect("it is there"), set.expect("it is there"));
    // SAFETY: numbers only.
    assert_eq!(unsafe { select(730, 730) }, 0);
    let sequence = sequences().swap_remove(at.parse().expect("a number"));
    for (step, call) in sequence.iter().enumerate() {
        let (found, expected) = match call {
            // SAFETY: it takes nothing.
            SetUp(expected) => (unsafe { set_up() }, *expected),
            Set(code, value, expected) => {
                let length = value.map_or(0, |value| c_int::try_from(value.len()).expect("it is short"));
                let value = value.map_or(std::ptr::null(), <[u8]>::as_ptr);
                // SAFETY: a slice that outlives the call, or null.
                (unsafe { set(*code, value, length) }, *expected)
            }
        };
        let option = if let Set(code, ..) = call { code.to_string() } else { "set-up".to_owned() };
        assert_eq!(found, expected, "call {step} of sequence {at}: {option}");
    }
}

fn check(library: &Path) {
    for at in 0..sequences().len() {
        let child = Command::new(std::env::current_exe().expect("a test knows its program"))
            .args(["--exact", "--nocapture", "runs_one_sequence"])
            .env(RUN_VARIABLE, format!("{at} {}", library.display()))
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&child.stderr) + String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{}: {said}", library.display());
    }
}

#[test]
fn network_options_are_accepted_as_by_foundationdb() {
    check(&our_library());
    if let Some(real) = std::env::var_os(REAL_LIBRARY_VARIABLE) {
        check(Path::new(&real));
    }
}
