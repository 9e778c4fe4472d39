//! The terminal: its second screen, its keys, its size. However the process ends that is not killed, it is left as it was.

use std::{
    io::{self, IsTerminal, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag, low_level,
};

use crate::cli::status::Line;

/// How long a read waits for a key, in tenths of a second; signals are seen as often.
const TENTHS: u8 = 1;

/// The second screen, without a cursor...
const OPEN: &[u8] = b"\x1b[?1049h\x1b[?25l";

/// ...and back.
const CLOSE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    End,
    Sort,
    Down,
    Up,
    /// Nothing that is known here.
    Other,
}

impl Key {
    fn read(bytes: &[u8]) -> Self {
        match bytes {
            // Control-C; Escape alone.
            [b'q' | b'Q' | 3] | [0x1b] => Self::End,
            [b's' | b'S'] => Self::Sort,
            [b'j'] | b"\x1b[B" | b"\x1bOB" => Self::Down,
            [b'k'] | b"\x1b[A" | b"\x1bOA" => Self::Up,
            _ => Self::Other,
        }
    }
}

/// The second screen. Dropped, the first one is back.
pub(super) struct Screen {
    /// How the keyboard was; none if there is none.
    before: Option<Termios>,
    ended: Arc<AtomicBool>,
    signals: Vec<SigId>,
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let mut screen = Self { before: None, ended: ended.clone(), signals: Vec::new() };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            screen.signals.push(flag::register(signal, ended.clone())?);
        }
        if io::stdin().is_terminal() {
            let before = tcgetattr(io::stdin())?;
            let mut keys = before.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = TENTHS;
            tcsetattr(io::stdin(), OptionalActions::Flush, &keys)?;
            screen.before = Some(before);
        }
        write(OPEN)?;
        Ok(screen)
    }

    /// Columns and lines.
    #[expect(clippy::unused_self, reason = "there is a size where there is a screen")]
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Shows these lines and nothing else.
    pub(super) fn show(&self, lines: &[Line], colours: bool) -> io::Result<()> {
        let (columns, rows) = self.size();
        let mut frame = String::from("\x1b[H");
        for (at, line) in lines.iter().take(rows).enumerate() {
            let end = if at == 0 { "" } else { "\r\n" };
            frame += &format!("{end}{}\x1b[K", line.show(colours, columns));
        }
        frame += "\x1b[J";
        write(frame.as_bytes())
    }

    /// Waits for a key, for so long.
    pub(super) fn key(&self, patience: Duration) -> io::Result<Option<Key>> {
        let until = Instant::now() + patience;
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Some(Key::End));
            }
            let mut bytes = [0; 8];
            let read = if self.before.is_some() {
                match io::stdin().lock().read(&mut bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                    read => read?,
                }
            } else {
                std::thread::sleep(Duration::from_millis(100 * u64::from(TENTHS)));
                0
            };
            if read > 0 {
                return Ok(Some(Key::read(&bytes[..read])));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(CLOSE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
        for id in self.signals.drain(..) {
            low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known() {
        let read = |text: &str| Key::read(text.as_bytes());
        assert_eq!([read("q"), read("\x03"), read("\x1b")], [Key::End; 3]);
        assert_eq!([read("\x1b[B"), read("\x1b[A"), read("s")], [Key::Down, Key::Up, Key::Sort]);
        assert_eq!([read("x"), read("\x1b[5~"), read("")], [Key::Other; 3]);
    }
}
