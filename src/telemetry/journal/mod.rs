//! The journal, by its native protocol: each field of an event and of its spans is a field there, as in `journalctl QUEUE=emails ITEM=...`.
//! They also stand behind the text, since plain `journalctl` shows nothing else; the crate tracing-journald has the text alone there.
//!
//! | file | role |
//! |---|---|
//! | `fields` | fields of events and spans, as texts |
//! | `message` | one message of the protocol |
//! | `socket` | datagrams to the journal |

mod fields;
mod message;
mod socket;

use std::{io, path::Path};

use tracing::{
    Event, Subscriber,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    layer::{Context, Layer},
    registry::LookupSpan,
};

use self::{fields::Fields, message::Message, socket::Socket};
use super::{
    out::Out,
    writer::{Batch, Sink},
};

/// Where systemd-journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Writes to the journal of this machine.
pub(super) struct Journal {
    out: Out,
}

/// Whether there is a journal.
///
/// # Errors
/// There is none, or it may not be written to.
pub(super) fn probe() -> io::Result<()> {
    Socket::open(Path::new(SOCKET)).map(drop)
}

/// Logs to the journal that [`probe`] found; through a thread if `queued`.
pub(super) fn layer(queued: bool) -> Journal {
    Journal { out: Out::to(|| to_journal(Path::new(SOCKET)), queued) }
}

/// A journal that is gone is looked for again with each batch.
fn to_journal(path: &'static Path) -> Sink {
    let mut socket = None;
    Box::new(move |batch: &Batch| {
        if socket.is_none() {
            socket = Socket::open(path).ok();
        }
        let Some(socket) = &socket else { return batch.len() };
        batch.messages().filter(|message| socket.send(message).is_err()).count()
    })
}

impl Journal {
    /// Where its messages go.
    pub(super) fn out(&self) -> &Out {
        &self.out
    }

    fn write<S>(&self, event: &Event<'_>, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.add(of_span);
            }
        }
        let message = Message::of(event.metadata(), fields);
        self.out.write(&message.encode());
    }
}

impl<S> Layer<S> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        self.write(event, &context);
    }
}
