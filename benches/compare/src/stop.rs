//! Being stopped: ctrl-C and TERM end all servers and leave nothing behind.

use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::process::Processes;

/// Longest for what a signal has begun.
const LIMIT: Duration = Duration::from_secs(30);

/// Ends all that runs when it is dropped, also by a panic.
pub struct Closing(pub Processes);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// On a signal: ends what runs, removes the scratch directory, and ends this program. A second signal changes nothing: the first has
/// limits of its own.
pub fn on_signals(processes: &Processes, scratch: &Path) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    let (processes, scratch) = (processes.clone(), scratch.to_owned());
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("stopping");
            processes.close();
            // The main thread may be removing it, too.
            let _ = std::fs::remove_dir_all(&scratch);
            process::exit(128 + signal);
        }
    });
    Ok(())
}

/// The signal's thread ends the program.
pub fn wait_for_the_end() -> Result<process::ExitCode> {
    thread::sleep(LIMIT);
    bail!("stopped, but not in time")
}
