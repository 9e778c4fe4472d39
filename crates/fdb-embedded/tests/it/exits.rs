//! The end of a process whose network runs, as a program of tests ends: its harness has no place to stop the network.

use std::path::Path;
use std::process::Command;

use crate::common::{Helper, cluster_file, network, scratch, set};
use foundationdb::Database;

/// The code of such a process.
const CODE: i32 = 7;
/// So many end. Without [`fdb_embedded::testing::NetworkUse`] about one of three crashes.
const PROCESSES: usize = 160;
const AT_ONCE: usize = 4;

/// FoundationDB's client destroys at the end of a process what its network thread still uses.
#[test]
fn a_process_that_exits_while_its_network_runs_ends_with_its_own_code() {
    if cluster_file().is_none() {
        return;
    }
    // No other test uses the cluster at the same time.
    let _scratch = scratch();
    let end_one = || {
        let mut helper =
            Helper::spawn_by(Command::new(std::env::current_exe().unwrap()), "exits", Path::new("/"));
        helper.child.wait().unwrap().code()
    };
    let end_some = || (0..PROCESSES / AT_ONCE).map(|_| end_one()).collect::<Vec<_>>();
    let codes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(end_some)).collect();
        threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    let others = codes.iter().filter(|code| **code != Some(CODE)).count();
    assert_eq!(others, 0, "of {PROCESSES} processes; their codes are {codes:?}");
}

/// Commits, closes the database, and exits.
pub fn helper_exits(_directory: &Path) {
    let network = network();
    let db = Database::from_path(&cluster_file().unwrap()).unwrap();
    set(&db, b"exits", b"").unwrap();
    drop((db, network));
    std::process::exit(CODE);
}
