//! `stdout`: prints each payload and a newline.

use std::io::{self, ErrorKind, Write};

use async_trait::async_trait;
use kvqueue_queue::Item;

use super::{Context, Handler, Outcome, Settings, SettingsError};

/// Prints each payload and a newline, in one piece however many consumers print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stdout;

impl Stdout {
    /// It has no settings.
    pub fn from_config(settings: &Settings) -> Result<Self, SettingsError> {
        settings.expect_none().map(|()| Self)
    }
}

#[async_trait]
impl Handler for Stdout {
    async fn handle(&self, item: &Item, context: &Context) -> Outcome {
        // A reader that lags blocks the write; the pool's other tasks must go on meanwhile.
        let printed = tokio::task::block_in_place(|| print(&mut io::stdout().lock(), &item.payload));
        outcome(printed, context)
    }
}

fn print(out: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let mut line = Vec::with_capacity(payload.len() + 1);
    line.extend_from_slice(payload);
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

fn outcome(printed: io::Result<()>, context: &Context) -> Outcome {
    match printed {
        Ok(()) => Outcome::Done,
        // Not the item's fault, and no other item would fare better.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            context.stop_daemon("stdout is closed, so no further item can be printed");
            Outcome::Release
        }
        Err(error) => Outcome::retry(format_args!("cannot write to stdout: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::testing::Kit;

    /// Prints on something that fails so.
    struct Failing(ErrorKind);

    #[async_trait]
    impl Handler for Failing {
        async fn handle(&self, _: &Item, context: &Context) -> Outcome {
            outcome(Err(self.0.into()), context)
        }
    }

    #[test]
    fn a_line_is_written_in_one_piece() {
        let mut out = Vec::new();
        print(&mut out, b"\xffone\ntwo").unwrap();
        assert_eq!(out, b"\xffone\ntwo\n");
    }

    #[test]
    fn a_closed_stdout_ends_the_daemon_and_fails_no_item() {
        let kit = Kit::new(Failing(ErrorKind::BrokenPipe));
        assert_eq!(block_on(kit.handle("x")), Outcome::Release);
        assert_eq!(kit.stop_requested(), Some("stdout is closed, so no further item can be printed"));
    }

    #[test]
    fn a_full_disk_is_retried() {
        let kit = Kit::new(Failing(ErrorKind::StorageFull));
        assert_eq!(block_on(kit.handle("x")), Outcome::retry("cannot write to stdout: no storage space"));
        assert_eq!(kit.stop_requested(), None);
    }
}
