//! Lines of JSON: an object for each event. The fields of its spans stand beside its own, so that `jq 'select(.queue == "emails")'` finds
//! them; numbers are numbers.

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

use crate::causes::with_causes;

/// What events of the crate `log` say of themselves begins so.
const OF_LOG: &str = "log.";

/// Writes them to this.
pub(super) struct Objects<W>(pub(super) W);

/// Names and values in the order in which they came.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// One more, or another value for one.
    fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value.into(),
            None => self.0.push((name, value.into())),
        }
    }

    /// Those of a span around it, but for names that are taken.
    fn add(&mut self, others: &Self) {
        for (name, value) in &others.0 {
            if !self.0.iter().any(|(known, _)| known == name) {
                self.0.push((name, value.clone()));
            }
        }
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

/// The line of an event, with its end.
fn line(event: &Event<'_>, mut fields: Fields) -> String {
    let mut time = String::new();
    // Without a time the line is as good.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let mut line = format!("{{\"timestamp\":\"{time}\",\"level\":\"{}\"", event.metadata().level());
    let mut target = Value::from(event.metadata().target());
    fields.0.retain(|(name, value)| {
        if *name == "log.target" {
            target = value.clone();
        }
        !name.starts_with(OF_LOG)
    });
    for (name, value) in fields.0.into_iter().chain([("target", target)]) {
        write!(line, ",{}:{value}", Value::from(name)).expect("a string takes all that is written");
    }
    line + "}\n"
}

impl<S, W> Layer<S> for Objects<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
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
        // Nobody could be told that there is no log.
        let _ = self.0.make_writer().write_all(line(event, fields).as_bytes());
    }
}
