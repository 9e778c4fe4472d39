//! The hot paths of the layer over the embedded engine, to count what instructions they take.
//!
//! ```sh
//! .ci/instructions              # counts, under valgrind, and compares with stored.txt
//! .ci/instructions --store      # counts, and writes stored.txt
//! ```
//!
//! One process goes one path, the same way each time: one client on one thread, fixed payloads and session ids, a new database. What
//! comes before it is done outside of [`measured`], the only function whose name the script knows. Everything that runs while that runs is
//! counted, on all threads, the engine's included, but for what the script leaves out because it goes by timing.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

// The client library's symbols, for the linker.
use fdb_embedded as _;

mod path;

use fdb_embedded::Network;
use foundationdb::Database;
use futures::executor::block_on;
use path::{PATHS, Path, Ready};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let _network = Network::start().unwrap();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => PATHS.iter().for_each(|path| println!("{} {}", path.name, path.items())),
        // To see that they can be gone.
        [] => PATHS.iter().for_each(go),
        [name] => go(PATHS.iter().find(|path| path.name == *name).expect("--list says which there are")),
        _ => panic!("one path, or --list"),
    }
}

fn go(path: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let db = Database::from_path(&format!("embedded:{}", scratch.path().join("db").display())).unwrap();
    let mut ready = block_on(path.prepare(&db));
    measured(path, &db, &mut ready);
    ready.check(path);
}

/// What is counted. Neither inlined nor generic, so that it can be found by its name.
#[inline(never)]
fn measured(path: &Path, db: &Database, ready: &mut Ready) {
    block_on(path.go(db, ready));
}
