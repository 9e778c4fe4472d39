//! Forms of the log that have an object for each event: the fields of events and spans, and lines of JSON. The fields
//! of an event's spans stand next to its own, so that `jq 'select(.queue == "emails")'` finds them; numbers are numbers.

use std::{
    error::Error,
    fmt::{Debug, Write as _},
    io::Write as _,
};

use serde_json::Value;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    fmt::{
        MakeWriter,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::{Context, Layer},
    registry::LookupSpan,
};

use crate::base::causes::with_causes;

/// Names and values, in the order in which they were recorded.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Adds a field, or changes the value of one.
    fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value.into(),
            None => self.0.push((name, value.into())),
        }
    }

    /// Adds the fields of a span around the event, except for names that are taken.
    fn add(&mut self, others: &Self) {
        for (name, value) in &others.0 {
            if !self.0.iter().any(|(known, _)| known == name) {
                self.0.push((name, value.clone()));
            }
        }
    }

    /// Takes a field out.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        let number = i64::try_from(value).map(Value::from);
        self.set(field.name(), number.unwrap_or_else(|_| value.to_string().into()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        let number = u64::try_from(value).map(Value::from);
        self.set(field.name(), number.unwrap_or_else(|_| value.to_string().into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value);
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        self.set(field.name(), with_causes(error));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field.name(), format!("{value:?}"));
    }
}

/// Writes an event with all its fields: those of the event itself, `span` with the name of the innermost
/// span, and those of its spans.
pub(super) trait Format {
    fn write(&self, event: &Event<'_>, fields: Fields);
}

/// A layer that gathers the fields of spans, and writes each event in this form.
pub(super) struct Gathered<F>(pub(super) F);

impl<S, F> Layer<S> for Gathered<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: Format + 'static,
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
        let mut fields = Fields::default();
        event.record(&mut fields);
        for (index, span) in context.event_scope(event).into_iter().flatten().enumerate() {
            if index == 0 {
                fields.add(&Fields(vec![("span", span.name().into())]));
            }
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.add(of_span);
            }
        }
        self.0.write(event, fields);
    }
}

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
