//! The text format of Prometheus, version 0.0.4, as far as it is written here.

use std::{fmt, fmt::Write, sync::LazyLock};

use super::{
    family::Metric,
    histogram::{BOUNDS, Reading},
};

/// The bounds of buckets, in seconds.
static SECONDS: LazyLock<[String; BOUNDS.len()]> =
    LazyLock::new(|| BOUNDS.map(|micros| (micros as f64 / 1e6).to_string()));

/// Where the samples of one metric go. There may be hundreds of thousands, so what lines have in common is formatted once.
pub(crate) struct Samples<'a> {
    metric: &'a Metric,
    out: &'a mut String,
    /// The labels of the lines that are being written, as in `queue="a",state="ready"`.
    labels: String,
}

impl<'a> Samples<'a> {
    /// Begins a metric.
    pub(super) fn begin(metric: &'a Metric, out: &'a mut String) -> Self {
        let Metric { name, help, kind, .. } = metric;
        write(out, format_args!("# HELP {name} "));
        escape(help, false, out);
        write(out, format_args!(".\n# TYPE {name} {}\n", kind.as_str()));
        Self { metric, out, labels: String::new() }
    }

    /// A figure, and the values of the metric's labels.
    pub(super) fn add(&mut self, values: &[&str], figure: impl fmt::Display) {
        self.label(values);
        self.line("", None, figure);
    }

    /// A histogram.
    pub(super) fn add_histogram(&mut self, values: &[&str], reading: &Reading) {
        self.label(values);
        for (bound, count) in SECONDS.iter().zip(reading.cumulative) {
            self.line("_bucket", Some(bound), count);
        }
        self.line("_bucket", Some("+Inf"), reading.count);
        self.line("_sum", None, reading.sum.as_secs_f64());
        self.line("_count", None, reading.count);
    }

    /// The following lines have these values of the metric's labels.
    fn label(&mut self, values: &[&str]) {
        debug_assert_eq!(values.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.labels.clear();
        for (label, value) in self.metric.labels.iter().zip(values) {
            if !self.labels.is_empty() {
                self.labels.push(',');
            }
            self.labels.push_str(label);
            self.labels.push_str("=\"");
            escape(value, true, &mut self.labels);
            self.labels.push('"');
        }
    }

    fn line(&mut self, suffix: &str, bound: Option<&str>, figure: impl fmt::Display) {
        let Self { metric, out, labels } = self;
        out.push_str(metric.name);
        out.push_str(suffix);
        if bound.is_some() || !labels.is_empty() {
            out.push('{');
            out.push_str(labels);
            if let Some(bound) = bound {
                out.push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
                out.push_str(bound);
                out.push('"');
            }
            out.push('}');
        }
        write(out, format_args!(" {figure}\n"));
    }
}

fn write(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes all that is written");
}

/// A backslash and the end of a line would end what they are in, and so would a quotation mark, within them.
fn escape(text: &str, in_quotes: bool, out: &mut String) {
    if !text.contains(['\\', '\n', '"']) {
        return out.push_str(text);
    }
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if in_quotes => out.push_str("\\\""),
            char => out.push(char),
        }
    }
}
