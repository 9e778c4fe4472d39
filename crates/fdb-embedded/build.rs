//! Writes an empty `libfdb_c.a`, so that `-lfdb_c`, which the `foundationdb-sys` of crates.io asks for, finds
//! something on a machine without FoundationDB. The symbols themselves come from this crate.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    std::fs::write(out.join("libfdb_c.a"), "!<arch>\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
}
