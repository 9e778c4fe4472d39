//! The daemon as the first process of a container, or of another PID namespace.
//!
//! The kernel makes the first process the parent of all processes whose own parent has ended. Such a process, once it ends too, stays a zombie until
//! its parent waits for it. A daemon cannot do that itself: it would take the exit codes of commands away from the code that waits for them, such as a
//! handler in Rust. So the first process starts this program again, as its only child, waits for everything that ends, and passes signals
//! on. When the child ends, it ends with the same code.

use std::{
    env,
    io::{self, IsTerminal},
    os::{fd::BorrowedFd, unix::process::CommandExt},
    process::{self, Command},
    sync::mpsc,
    thread,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait},
    termios::tcsetpgrp,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};

use super::output;

/// The signals that are for the daemon, or would end it.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// If this is the first process, runs the program in another one, and does not return.
pub(super) fn stand_by() {
    if process::id() != 1 {
        return;
    }
    match start() {
        Ok(daemon) => process::exit(wait_for_all(daemon)),
        // As where /proc is not that of the namespace.
        Err(error) => output::note(format_args!(
            "kvqueue: cannot start the daemon in a process of its own: {error}; processes that commands leave behind will stay zombies: mount \
             /proc, or use an init such as tini"
        )),
    }
}

fn start() -> io::Result<Pid> {
    // Before there is a process to pass signals on to: they wait until then.
    let mut signals = Signals::new(PASSED_ON)?;
    let (sender, daemon) = mpsc::channel();
    let pass_on = move || {
        let Ok(daemon) = daemon.recv() else { return };
        for signal in signals.forever().filter_map(Signal::from_named_raw) {
            // It may have ended this instant.
            let _ = kill_process(daemon, signal);
        }
    };
    thread::Builder::new().name("kvqueue-signals".to_owned()).spawn(pass_on)?;
    let mut arguments = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_else(|| "kvqueue".into())).args(arguments);
    // It is this process's number. Without it, the child takes the watchdog's other variable for its own.
    command.env_remove("WATCHDOG_PID");
    let terminal = terminal();
    if terminal.is_some() {
        command.process_group(0);
    }
    let daemon = Pid::from_child(&command.spawn()?);
    if let Some(terminal) = terminal {
        // A Ctrl-C reaches the daemon once, and not this process, which would pass it on. It fails where the terminal is not this session's.
        let _ = tcsetpgrp(terminal, daemon);
    }
    // The thread waits for it.
    let _ = sender.send(daemon);
    Ok(daemon)
}

/// The terminal that the program reads from, if it does.
fn terminal() -> Option<BorrowedFd<'static>> {
    io::stdin().is_terminal().then(rustix::stdio::stdin)
}

/// Waits for every process that ends, up to the daemon. Returns its exit code.
fn wait_for_all(daemon: Pid) -> i32 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == daemon => return code(status),
            Ok(_) | Err(Errno::INTR) => {}
            // There is no child any more, so another thread has waited for it.
            Err(_) => return 1,
        }
    }
}

/// As a shell has it: 128 and its number for a signal.
fn code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1)
}
