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
        match printed {
            Ok(()) => Outcome::Done,
            Err(error) => {
                if error.kind() == ErrorKind::BrokenPipe {
                    context.stop_daemon("stdout is closed, so no further item can be printed");
                }
                Outcome::retry(format_args!("cannot write to stdout: {error}"))
            }
        }
    }
}

fn print(out: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let mut line = Vec::with_capacity(payload.len() + 1);
    line.extend_from_slice(payload);
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}
