//! Another process that a test starts.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Another process: an ignored test of this binary, which works on a directory until its standard input ends.
pub struct Helper {
    /// The process.
    pub child: Child,
    /// What it prints, line by line.
    pub lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// Its standard input.
    pub stdin: Option<ChildStdin>,
}

/// Tells a helper which directory to work on.
const DIRECTORY: &str = "FDB_EMBEDDED_HELPER_DIRECTORY";

impl Helper {
    /// Starts the ignored test `name` and waits until it reports that it is ready.
    pub fn start(name: &str, directory: &Path) -> Helper {
        let mut helper = Helper::spawn(name, directory);
        helper.wait_for("ready");
        helper
    }

    /// Starts the ignored test `name`.
    pub fn spawn(name: &str, directory: &Path) -> Helper {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", name])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Helper { child, lines, stdin }
    }

    /// Waits until it prints a line; the test harness may have begun the first one.
    pub fn wait_for(&mut self, what: &str) {
        let found = self.lines.by_ref().map_while(Result::ok).any(|line| line.ends_with(what));
        assert!(found, "the helper ended before it said {what:?}");
    }

    /// The directory, in the helper.
    pub fn directory() -> Option<std::path::PathBuf> {
        std::env::var_os(DIRECTORY).map(Into::into)
    }

    /// In the helper: says that it is ready and waits for the end of its input.
    pub fn ready_until_told() {
        println!("\nready");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if std::thread::panicking() {
            // It may be stopped, or wait for something that the test was to do.
            let _ = self.child.kill();
        }
        // One that a test has killed is waited for already.
        let _ = self.child.wait();
    }
}
