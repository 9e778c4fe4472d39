//! Another process that hosts a database directory, so that this one is its guest.

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use fdb_embedded::Network;
use fdb_embedded::testing::Database;

/// Tells the process which directory to host.
const DIRECTORY: &str = "FDB_EMBEDDED_HOST_DIRECTORY";

/// The process; it ends with the value.
pub struct Host {
    child: Child,
    /// Kept open: what it still prints goes there.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Host {
    /// Starts it and waits until it has the directory.
    pub fn start(directory: &Path) -> Host {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "host::host_process"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("ready")),
            "the host ended early"
        );
        Host { child, _output: lines }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// Hosts a directory in the process that [`Host`] starts. Otherwise it does nothing.
#[test]
fn host_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let _network = Network::start().unwrap();
    let url = format!("embedded:{}", Path::new(&directory).display());
    let _database = Database::open(&url).unwrap();
    println!("\nready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
