//! Holds the declarations against a C header, where one is installed.
//!
//! `FDB_C_HEADER` names the `fdb_c.h` to compare with; without it the place where FoundationDB's package puts
//! the header is looked at. Compared are the functions with their numbers of parameters and the enumerations'
//! constants with their values, in both directions.

mod c_header;
mod rust_source;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// What one side declares.
struct Declared {
    /// Function name to number of parameters.
    functions: BTreeMap<String, usize>,
    /// Constant, as bindgen names it, to value.
    constants: BTreeMap<String, i64>,
}

#[test]
fn declarations_match_the_c_header() {
    let Some(header) = header_path() else {
        println!(
            "skipped: no C header here; set FDB_C_HEADER to an fdb_c.h or install the FoundationDB client package"
        );
        return;
    };
    let c = c_header::read(&header);
    let rust = rust_source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    // An empty side would match nothing and prove nothing.
    assert!(c.functions.len() > 90 && c.constants.len() > 100, "the header was not understood: {header:?}");

    let mut differences = compare("function", &c.functions, &rust.functions);
    differences.extend(compare("constant", &c.constants, &rust.constants));
    assert!(differences.is_empty(), "against {}:\n{}", header.display(), differences.join("\n"));
    println!("{} functions and {} constants agree", c.functions.len(), c.constants.len());
}

/// The header to compare with, if there is one. A path that `FDB_C_HEADER` names must exist.
fn header_path() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FDB_C_HEADER") {
        let named = PathBuf::from(named);
        assert!(named.is_file(), "FDB_C_HEADER names {}, which is not a file", named.display());
        return Some(named);
    }
    let installed = PathBuf::from("/usr/include/foundationdb/fdb_c.h");
    installed.is_file().then_some(installed)
}

/// What differs between the header and our declarations, one line each.
fn compare<V: PartialEq + Debug>(
    kind: &str,
    c: &BTreeMap<String, V>,
    rust: &BTreeMap<String, V>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in c {
        match rust.get(name) {
            None => lines.push(format!("{kind} {name}: in the header, not declared here")),
            Some(ours) if ours != value => {
                lines.push(format!("{kind} {name}: {value:?} in the header, {ours:?} here"));
            }
            Some(_) => {}
        }
    }
    for name in rust.keys().filter(|name| !c.contains_key(*name)) {
        lines.push(format!("{kind} {name}: declared here, not in the header"));
    }
    lines
}

/// How many comma-separated parts stand between the parenthesis at the start of `text` and its partner.
fn parameter_count(text: &str) -> usize {
    let mut depth = 0;
    let mut commas = 0;
    let mut last = '(';
    for c in text.chars().filter(|c| !c.is_whitespace()) {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            ',' if depth == 1 => commas += 1,
            _ => {}
        }
        last = c;
    }
    match last {
        '(' => 0,
        // A trailing comma opens no further parameter.
        ',' => commas,
        _ => commas + 1,
    }
}

#[test]
fn parameters_are_counted_at_the_outer_level() {
    assert_eq!(parameter_count("()"), 0);
    assert_eq!(parameter_count("(int a)"), 1);
    assert_eq!(parameter_count("(void (*hook)(void*, int), void* p);"), 2);
    assert_eq!(parameter_count("(a: u8, b: u8,) -> u8"), 2);
}
