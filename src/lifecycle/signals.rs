//! Unix signals and the commands that they stand for.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1},
    flag, low_level,
};
use tokio::{io::AsyncReadExt, net};

use crate::control::Command;

/// TERM and INT, HUP, USR1. The first TERM or INT is for the daemon to drain by; a second ends the process at once, from the signal
/// handler itself, whatever state the process is in. HUP and USR1 would end a process that does not watch for them; what comes before
/// somebody reads them waits.
pub(crate) struct Signals {
    stop: UnixStream,
    reload: UnixStream,
    report: UnixStream,
    registered: Vec<SigId>,
}

impl Signals {
    pub(crate) fn watch() -> io::Result<Self> {
        let [(stop, stops), (reload, reloads), (report, reports)] = [pipe()?, pipe()?, pipe()?];
        let mut signals = Self { stop, reload, report, registered: Vec::new() };
        let seen = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag unset, and sets it.
            signals.registered.push(flag::register_conditional_shutdown(signal, 128 + signal, seen.clone())?);
            signals.registered.push(flag::register(signal, seen.clone())?);
            signals.registered.push(low_level::pipe::register(signal, stops.try_clone()?)?);
        }
        signals.registered.push(low_level::pipe::register(SIGHUP, reloads)?);
        signals.registered.push(low_level::pipe::register(SIGUSR1, reports)?);
        Ok(signals)
    }

    /// Waits for the first TERM or INT.
    pub(crate) async fn received(&self) -> io::Result<()> {
        let mut stream = net::UnixStream::from_std(self.stop.try_clone()?)?;
        stream.read_u8().await.map(drop)
    }

    /// The requests by HUP and USR1, from the first of each that has arrived. Call it where they are read, on the actors' thread.
    pub(crate) fn commands(&self) -> io::Result<SignalCommands> {
        let stream = |stream: &UnixStream| net::UnixStream::from_std(stream.try_clone()?);
        Ok(SignalCommands { reload: Some(stream(&self.reload)?), report: Some(stream(&self.report)?) })
    }
}

fn pipe() -> io::Result<(UnixStream, UnixStream)> {
    let (received, sender) = UnixStream::pair()?;
    received.set_nonblocking(true)?;
    Ok((received, sender))
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// The commands of HUP and USR1, one after the other. Without signals to watch, it never yields one.
#[derive(Default)]
pub(crate) struct SignalCommands {
    reload: Option<net::UnixStream>,
    report: Option<net::UnixStream>,
}

impl SignalCommands {
    /// Waits for the next command. It stands for all signals of its kind since the last one. Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Command {
        tokio::select! {
            () = gathered(&mut self.reload) => Command::reload(),
            () = gathered(&mut self.report) => Command::Report,
        }
    }
}

/// Waits for a signal. Signals that have arrived meanwhile count as one.
async fn gathered(stream: &mut Option<net::UnixStream>) {
    /// The process does not get as many in the time that one is seen to.
    const MOST: usize = 1_024;

    let Some(stream) = stream else { return std::future::pending().await };
    match stream.read(&mut [0; MOST]).await {
        Ok(1..) => {}
        // The other end is the signal handler's, and stays open as long as this.
        Ok(0) | Err(_) => std::future::pending().await,
    }
}
