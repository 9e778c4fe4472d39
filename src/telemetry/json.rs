//! Lines of JSON: an object for each event. The fields of its spans stand next to its own, so that
//! `jq 'select(.queue == "emails")'` finds them; numbers are numbers.

use std::{fmt::Write as _, io::Write as _};

use serde_json::Value;
use tracing::Event;
use tracing_subscriber::fmt::{
    MakeWriter,
    format::Writer,
    time::{FormatTime, SystemTime},
};

use super::fields::{Fields, Format};

/// The prefix of the fields that events of the crate `log` have.
const OF_LOG: &str = "log.";

/// Writes lines of JSON to this.
pub(super) struct Json<W>(pub(super) W);

impl<W> Format for Json<W>
where
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn write(&self, event: &Event<'_>, fields: Fields) {
        // A line that cannot be written is lost: there is no other place to report that.
        let _ = self.0.make_writer().write_all(line(event, fields).as_bytes());
    }
}

/// The line of an event, with its end.
fn line(event: &Event<'_>, mut fields: Fields) -> String {
    let mut time = String::new();
    // Without a time the line is as good.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut line = format!("{{\"timestamp\":\"{time}\",\"level\":\"{}\"", event.metadata().level());
    let target = fields.take("log.target").unwrap_or_else(|| event.metadata().target().into());
    let own = fields.iter().filter(|(name, _)| !name.starts_with(OF_LOG));
    for (name, value) in own.chain([("target", &target)]) {
        write!(line, ",{}:{value}", Value::from(name)).expect("a string takes all that is written");
    }
    line + "}\n"
}
