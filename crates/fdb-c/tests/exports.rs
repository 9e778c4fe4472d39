//! What the shared library exports: everything that the C header declares, and everything that FoundationDB's own
//! library exports.

#![expect(unsafe_code, reason = "loading a shared library is what is tested")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;

/// Names FoundationDB's own client library, to compare with.
const REAL_LIBRARY_VARIABLE: &str = "FDB_CLIENT_LIB";

/// Exported by FoundationDB's library without standing in the header of API version 730: what left the API, and what
/// its own multi-version client calls.
const NOT_IN_THE_HEADER: [&str; 15] = [
    "fdb_cluster_create_database",
    "fdb_cluster_destroy",
    "fdb_cluster_set_option",
    "fdb_create_cluster",
    "fdb_database_create_shared_state",
    "fdb_database_set_shared_state",
    "fdb_future_get_cluster",
    "fdb_future_get_database",
    "fdb_future_get_shared_state",
    "fdb_future_get_version",
    "fdb_future_is_error",
    "fdb_transaction_get_range_selector",
    "fdb_transaction_read_blob_granules_finish",
    "fdb_transaction_read_blob_granules_start",
    "fdb_use_future_protocol_version",
];

/// Cargo builds the library for this test, next to it.
fn our_library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its program");
    let deps = test.parent().expect("a program lies in a directory");
    deps.join("libfdb_c.so")
}

/// The functions that `foundationdb-sys` declares, which its own test holds against the C header.
fn declared() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foundationdb-sys/src");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(sources).expect("the declarations are next to this crate") {
        let path = entry.expect("the directory can be listed").path();
        if path.is_file() {
            let text = std::fs::read_to_string(&path).expect("a source file is readable text");
            let functions = text.split("pub fn ").skip(1).filter_map(|rest| rest.split('(').next());
            names.extend(functions.filter(|name| name.starts_with("fdb_")).map(str::to_owned));
        }
    }
    names
}

#[test]
fn every_declared_function_is_exported() {
    // SAFETY: the library's initialisers are those of Rust's standard library.
    let library = unsafe { Library::new(our_library()) }.expect("cargo has built the library");
    let declared = declared();
    assert!(declared.len() >= 96, "only {} declarations were found", declared.len());
    let missing: Vec<_> = declared
        .iter()
        .map(String::as_str)
        .chain(NOT_IN_THE_HEADER)
        // SAFETY: the symbol is only looked up.
        .filter(|name| unsafe { library.get::<extern "C" fn()>(name.as_bytes()) }.is_err())
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

/// The dynamic symbols that a library defines, by `nm`.
fn exported(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let output = output.expect("nm comes with the linker");
    assert!(output.status.success(), "nm cannot read {}", library.display());
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    text.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn exports_equal_those_of_foundationdb() {
    let Some(real) = std::env::var_os(REAL_LIBRARY_VARIABLE) else {
        println!("skipped: {REAL_LIBRARY_VARIABLE} names no libfdb_c.so to compare with");
        return;
    };
    let (real, ours) = (exported(Path::new(&real)), exported(&our_library()));
    assert!(real.len() > 90, "not a client library of FoundationDB: {} symbols", real.len());
    let missing: Vec<_> = real.difference(&ours).collect();
    assert!(missing.is_empty(), "FoundationDB's library exports these too: {missing:?}");
    let more: Vec<_> = ours.difference(&real).collect();
    assert!(more.is_empty(), "FoundationDB's library does not export these: {more:?}");
    println!("{} functions, in both", ours.len());
}

#[test]
fn the_library_is_named_as_bindings_expect() {
    if cfg!(target_os = "linux") {
        let output = Command::new("readelf").arg("-d").arg(our_library()).output();
        let text = String::from_utf8(output.expect("readelf comes with the linker").stdout).unwrap();
        assert!(text.contains("soname: [libfdb_c.so]"), "{text}");
    }
}
