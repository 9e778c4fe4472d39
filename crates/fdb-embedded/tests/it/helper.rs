//! Another process that a test starts.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Another process of this test binary, which works on a directory.
pub struct Helper {
    /// The process.
    pub child: Child,
    /// What it prints, line by line.
    pub lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// Its standard input.
    pub stdin: Option<ChildStdin>,
}

/// The environment variable with the name of the helper to run.
const NAME: &str = "FDB_EMBEDDED_HELPER";
/// The environment variable with its directory.
const DIRECTORY: &str = "FDB_EMBEDDED_HELPER_DIRECTORY";

/// The code of a helper, which works on a directory.
pub type Run = fn(&Path);

/// Runs a helper, if [`Helper::spawn`] has started this process for one. A test called `helper_process` in the root of each
/// binary with helpers calls it.
pub fn run_as_helper(helpers: &[(&str, Run)]) {
    let (Ok(name), Some(directory)) = (std::env::var(NAME), std::env::var_os(DIRECTORY)) else { return };
    let helper = helpers.iter().find(|(of, _)| *of == name);
    let (_, run) = helper.unwrap_or_else(|| panic!("there is no helper {name}"));
    run(Path::new(&directory));
}

impl Helper {
    /// Starts the helper `name` and waits until it reports that it is ready.
    pub fn start(name: &str, directory: &Path) -> Helper {
        let mut helper = Helper::spawn(name, directory);
        helper.wait_for("ready");
        helper
    }

    /// Starts the helper `name`.
    pub fn spawn(name: &str, directory: &Path) -> Helper {
        Helper::spawn_by(Command::new(std::env::current_exe().unwrap()), name, directory)
    }

    /// Starts the helper `name` by a command that runs this test binary with the arguments that it gets.
    pub fn spawn_by(mut command: Command, name: &str, directory: &Path) -> Helper {
        let mut child = command
            .args(["--exact", "--nocapture", "helper_process"])
            .env(NAME, name)
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
