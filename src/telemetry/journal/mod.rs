//! The journal, by its native protocol: each field of an event and of its spans is a field there, as in `journalctl QUEUE=emails ITEM=...`.
//! They also stand behind the text, since plain `journalctl` shows nothing else; the crate tracing-journald has the text alone there.
//!
//! | file | role |
//! |---|---|
//! | `fields` | fields of events and spans, as texts |
//! | `message` | one message of the protocol |

mod fields;
mod message;

use std::{io, os::unix::net::UnixDatagram};

use tracing::{
    Event, Subscriber,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    layer::{Context, Layer},
    registry::LookupSpan,
};

use self::{fields::Fields, message::Message};

/// Where systemd-journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Writes to the journal of this machine.
pub(super) struct Journal {
    socket: UnixDatagram,
}

/// Opens it.
///
/// # Errors
/// There is none, or it may not be written to.
pub(super) fn layer() -> io::Result<Journal> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(SOCKET)?;
    Ok(Journal { socket })
}

impl Journal {
    fn write<S>(&self, event: &Event<'_>, context: &Context<'_, S>) -> io::Result<()>
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
        self.socket.send(&message.encode()).map(drop)
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
        // A journal that is gone comes back by itself; there is nobody to tell of it.
        let _ = self.write(event, &context);
    }
}
