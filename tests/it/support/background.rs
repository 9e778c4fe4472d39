//! A program that runs while the test goes on.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{PATIENCE, Ran, events};

/// The JSON line of an event with this code.
pub(crate) fn event_field(code: &str) -> String {
    format!("\"event\":\"{code}\"")
}

/// A running program and what it has said on stderr. Killed when dropped.
pub(crate) struct Background {
    child: Child,
    lines: Receiver<String>,
    said: String,
    stdout: Option<JoinHandle<String>>,
}

impl Background {
    /// Starts it, with JSON for a log.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::spawn(command)
    }

    /// The same, with something to read: what is written to the pipe.
    pub(crate) fn fed(mut command: Command) -> (Self, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut started = Self::spawn(command);
        let input = started.child.stdin.take().unwrap();
        (started, input)
    }

    fn spawn(mut command: Command) -> Self {
        command.env("KVQUEUE_LOG__FORMAT", "json");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut out = child.stdout.take().unwrap();
        let stdout = thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, lines, said: String::new(), stdout: Some(stdout) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line on stderr that contains `text`, and returns it. One that goes on saying other things is not waited for for ever.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait_for_line(text, |line| line.contains(text))
    }

    /// Waits for an event with this code, in either format, and returns its line.
    #[track_caller]
    pub(crate) fn wait_for_event(&mut self, code: &str) -> String {
        self.wait_for_line(code, |line| events(line, code) > 0)
    }

    /// The same. The line may have come before.
    #[track_caller]
    pub(crate) fn event(&mut self, code: &str) -> String {
        let before = self.said.lines().find(|line| events(line, code) > 0).map(str::to_owned);
        before.unwrap_or_else(|| self.wait_for_event(code))
    }

    #[track_caller]
    fn wait_for_line(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let last = Instant::now() + 3 * PATIENCE;
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if Instant::now() < last => {
                    self.said.push_str(&line);
                    self.said.push('\n');
                    if is_it(&line) {
                        return line;
                    }
                }
                _ => panic!("never said {what:?}, but:\n{}", self.said),
            }
        }
    }

    /// The same for several texts, in any order, also if it was said before.
    #[track_caller]
    pub(crate) fn wait_for_all(&mut self, texts: &[&str]) {
        for text in texts {
            if self.said(text) == 0 {
                self.wait_for(text);
            }
        }
    }

    /// How many lines of what has been waited for contain `text`.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.said.lines().filter(|line| line.contains(text)).count()
    }

    /// How many events with this code have been waited for.
    pub(crate) fn events(&self, code: &str) -> usize {
        events(&self.said, code)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Suspends it. Each of its threads has come to rest then, which takes a moment on a busy machine.
    #[track_caller]
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
        let rests = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            // One that has ended since has no state.
            let mut states =
                threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).ok());
            if states.all(|stat| rests(&stat)) {
                return;
            }
            assert!(Instant::now() < deadline, "it does not come to rest");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let status = self.child.wait().unwrap();
        let mut stderr = std::mem::take(&mut self.said);
        for line in self.lines.iter() {
            stderr.push_str(&line);
            stderr.push('\n');
        }
        Ran { code: status.code(), stdout, stderr, created: None }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Either may fail because it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
